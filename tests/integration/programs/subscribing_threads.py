"""A process that subscribes by hubs: ``subscribing_threads.py <hub> <queue> <topics>``. When it has
got what it published, also where its hub abandoned topics meanwhile, and idles, it says which
threads it has: the names as JSON, and how many the system knows.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time

import hqueue

BOUND_S = 60.0
SETTLED_S = 5.0


def main(hub: str, queue: str, topics: int) -> None:
    came: set[bytes] = set()
    with hqueue.connect_hubs(hub, queue=queue) as client:
        for n in range(topics):
            client.topic(f"t{n}").subscribe(
                "sub", lambda messages: came.update(each.value for each in messages)
            )
        print("subscribed", flush=True)
        sys.stdin.readline()
        for n in range(topics):
            client.topic(f"t{n}").publish(b"%d" % n)
        ends_s = time.monotonic() + BOUND_S
        while len(came) < topics:
            assert time.monotonic() < ends_s, "not all messages came"
            time.sleep(0.02)
        time.sleep(SETTLED_S)
        names = sorted(each.name for each in threading.enumerate())
        print(json.dumps([names, len(os.listdir("/proc/self/task"))]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
