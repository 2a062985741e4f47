"""Put messages into a queue, and read them back.

python examples/put_and_scan.py events
"""

from __future__ import annotations

import argparse
import datetime

import hqueue
from hqueue import Message


def main() -> None:
    parser = argparse.ArgumentParser(description="Put messages into a queue, and read them back.")
    parser.add_argument("queue", help="its name; it must be there")
    arguments = parser.parse_args()

    began = datetime.datetime.now(datetime.timezone.utc)
    with hqueue.connect() as client:
        queue = client.queue(arguments.queue)

        # The message is durable when `put` returns.
        first = queue.put(Message("clicks", b"hello"), partition=0)
        print(f"put {first}")

        # One batch: all of them or none, in this order.
        queue.put([Message("clicks", b"a"), Message("views", b"b")], partition=0)

        # The same key always goes to the same partition, so its messages stay in order.
        for value in (b"signed up", b"paid"):
            queue.put(Message("bills", value), key="user-42")

        # Scan all partitions from the oldest message on, each partition in its order.
        with queue.scan(topics=["clicks", "views"]) as scanner:
            for message in scanner:
                print(f"{message.partition} {message.topic} {message.value.decode()}")

        # Scan from a time on. If several machines write, begin a little earlier: clocks differ.
        since = began - datetime.timedelta(seconds=5)
        with queue.scan(topics=["bills"], start=since) as scanner:
            print("bills since:", ", ".join(message.value.decode() for message in scanner))


if __name__ == "__main__":
    main()
