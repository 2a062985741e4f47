"""A process with a client, a producer and a consumer: ``threads.py <queue>``. It says which threads
it has when it has worked, and idles: the names as JSON, and how many the system knows.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time

import hqueue

MESSAGES = 1_000
BOUND_S = 60.0
SETTLED_S = 5.0


def main(name: str) -> None:
    with hqueue.connect() as client:
        queue = client.create_queue(name, partitions=4)
        with queue.producer() as producer, hqueue.Consumer(name, group=name, client=client) as one:
            for n in range(MESSAGES):
                producer.send_value("t", b"%d" % n)
            assert producer.flush(BOUND_S)
            ends_s, came = time.monotonic() + BOUND_S, 0
            while came < MESSAGES:
                came += len(one.poll(500))
                assert time.monotonic() < ends_s, "not all messages came"
            one.commit()
            settled_s = time.monotonic() + SETTLED_S
            while time.monotonic() < settled_s:
                assert not one.poll(200)
            names = sorted(each.name for each in threading.enumerate())
            print(json.dumps([names, len(os.listdir("/proc/self/task"))]), flush=True)
        client.disable_queue(name)
        client.delete_queue(name)


if __name__ == "__main__":
    main(sys.argv[1])
