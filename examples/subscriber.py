"""Have a worker deliver messages: some are done, some come again, some become dead letters.

hqueue worker &
python examples/subscriber.py events indexer --count 3
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Sequence

import hqueue
from hqueue import DeliveryOptions, MessageListener, ReceivedMessage, Status, Subscription


def say(text: str) -> None:
    """Print a line in one piece: listeners are called in threads of their own."""
    print(f"{text}\n", end="", flush=True)


class Indexer(MessageListener):
    """Handles one message at a time, because its subscription asks for deliveries of one."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._retried: set[bytes] = set()
        self.done = threading.Event()

    def consume(self, messages: Sequence[ReceivedMessage]) -> Status:
        for message in messages:
            if message.value == b"broken":
                say("rejected: broken")
                return Status.DEAD_LETTER  # To the dead letters: `hqueue dead-letters` shows them.
            if message.value == b"later" and message.value not in self._retried:
                self._retried.add(message.value)
                say("not now: later")
                return Status.RETRY  # The same message again, before any later one.
            say(f"indexed: {message.value.decode()}")
            self._left -= 1
            if self._left == 0:
                self.done.set()
        return Status.DONE


def main() -> None:
    parser = argparse.ArgumentParser(description="Receive messages from a worker.")
    parser.add_argument("queue", help="its name; it must be there")
    parser.add_argument("name", help="the subscriber's name, under which its checkpoints are kept")
    parser.add_argument("--count", type=int, default=10, help="end after this many messages")
    parser.add_argument("--seconds", type=float, default=60, help="end after this time in any case")
    parser.add_argument(
        "--shared", action="store_true", help="share the partitions with subscribers of this name"
    )
    arguments = parser.parse_args()

    indexer = Indexer(arguments.count)
    subscription = Subscription(
        arguments.name,
        topics=["pages"],
        delivery=DeliveryOptions(batch_messages_max=1, attempts_max=10),
    )
    with hqueue.connect() as client:
        queue = client.queue(arguments.queue)
        with queue.subscriber(subscription, indexer, shared=arguments.shared):
            say("subscribed")
            ended = indexer.done.wait(arguments.seconds)
    print("done" if ended else "too few messages came")


if __name__ == "__main__":
    main()
