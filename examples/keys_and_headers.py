"""Put messages with keys and headers, and read them back.

python examples/keys_and_headers.py events
"""

from __future__ import annotations

import argparse

import hqueue
from hqueue import Message


def main() -> None:
    parser = argparse.ArgumentParser(description="Put messages with keys and headers.")
    parser.add_argument("queue", help="its name; it must be there")
    arguments = parser.parse_args()

    with hqueue.connect() as client:
        queue = client.queue(arguments.queue)

        # The key is stored with the message, and the same key always goes to the same partition.
        queue.put(Message("bills", b"signed up", key=b"user-42"))

        # Headers are ordered pairs; names may repeat. Most messages have none.
        headers = [("content-type", b"text/plain"), ("trace", b"a1"), ("trace", b"b2")]
        queue.put(Message("bills", b"paid", key=b"user-42", headers=headers))

        # A producer sends messages of many keys, each to its key's partition.
        with queue.producer() as producer:
            for number in range(6):
                visitor = b"user-%d" % (number % 3)
                producer.send(Message("visits", b"page %d" % number, key=visitor))

        with queue.scan(topics=["bills"]) as scanner:
            for message in scanner:
                key = "no key" if message.key is None else message.key.decode()
                print(f"{message.topic} {key} {message.value.decode()}")
                for name, value in message.headers:
                    print(f"  {name}: {value.decode()}")

        # The messages of a key come in their order, so the last one is the newest.
        with queue.scan(topics=["visits"]) as scanner:
            newest = {message.key: message.value.decode() for message in scanner}
        print("newest:", ", ".join(sorted(newest.values())))


if __name__ == "__main__":
    main()
