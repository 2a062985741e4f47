"""A process that follows: ``follow.py <queue>``, from the oldest message on.

It says ``ready`` when it has met the end of the log. It prints each message (partition, ID, value)
and ends after one with the topic ``end`` in each partition.
"""

from __future__ import annotations

import sys

import hqueue


def main() -> None:
    with hqueue.connect() as client:
        queue = client.queue(sys.argv[1])
        list(queue.scan())
        print("ready", flush=True)
        left = queue.partitions
        for message in queue.scan(follow=True, idle_ms_max=120_000):
            if message.topic == "end":
                left -= 1
                if not left:
                    return
                continue
            print(message.partition, int(message.id), message.value.decode())
    sys.exit("the end did not come")


main()
