"""Publish to a topic and subscribe to it, with nothing but a hub's address.

hqueue hub events &
python examples/topics.py 127.0.0.1:9190 events bills
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Sequence

import hqueue
from hqueue import ReceivedMessage


class Auditor:
    """Prints messages. When a call returns, its messages are acknowledged, and don't come again."""

    def __init__(self, count: int) -> None:
        self._left = count
        self.done = threading.Event()

    def __call__(self, messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            print(f"{message.topic} {message.value.decode()}", flush=True)
        self._left -= len(messages)
        if self._left <= 0:
            self.done.set()


def main() -> None:
    parser = argparse.ArgumentParser(description="Publish messages once, and receive them.")
    parser.add_argument("hubs", help="host:port of one or more, with commas")
    parser.add_argument("queue", help="its name; the hubs serve it")
    parser.add_argument("topic", help="any name; the topic is created if it is not there")
    parser.add_argument("--count", type=int, default=3, help="how many messages")
    parser.add_argument("--seconds", type=float, default=60, help="end after this time in any case")
    arguments = parser.parse_args()
    count = arguments.count

    # Hubs keep a publisher's sequence numbers by its name, so this run continues the one before.
    with hqueue.connect_hubs(arguments.hubs, queue=arguments.queue, publisher="biller") as client:
        bills_topic = client.topic(arguments.topic)
        last = bills_topic.last_sequence_number()
        first = 0 if last is None else last + 1
        bills = [f"bill {number}".encode() for number in range(first, first + count)]
        auditor = Auditor(count)
        with bills_topic.subscribe("audit", auditor):
            bills_topic.publish_idempotent(bills, sequence_number=first)
            again = bills_topic.publish_idempotent(bills, sequence_number=first)
            ended = auditor.done.wait(arguments.seconds)
    print(f"published; again: {again.duplicates} left out")
    print("done" if ended else "too few messages came")


if __name__ == "__main__":
    main()
