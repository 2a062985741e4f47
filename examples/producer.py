"""Send many messages, batched in the background, and learn the result of each.

python examples/producer.py events --count 100000
"""

from __future__ import annotations

import argparse

import hqueue
from hqueue import Message, MessageID


class Failures:
    """Collects the errors of messages that were not written. Threads of the producer call it."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []

    def note(self, message_id: MessageID | None, error: BaseException | None) -> None:
        if error is not None:
            self.errors.append(error)


def main() -> None:
    parser = argparse.ArgumentParser(description="Send many messages to a queue.")
    parser.add_argument("queue", help="its name; it must be there")
    parser.add_argument("--count", type=int, default=10_000, help="how many messages")
    arguments = parser.parse_args()

    failures = Failures()
    with hqueue.connect() as client:
        queue = client.queue(arguments.queue)

        # A message waits at most `linger_ms`, so that others can be sent with it. `send` returns at
        # once, unless the buffer is full. The end of the block writes the rest of the buffer.
        with queue.producer(linger_ms=5) as producer:
            for number in range(arguments.count):
                message = Message("numbers", str(number).encode())
                producer.send(message, key=f"user-{number % 100}", callback=failures.note)

            # For an important message, wait until it is durable.
            delivery = producer.send(Message("numbers", b"the last one"))
            print(f"durable as {delivery.result(timeout_s=60)}")

    print(f"sent {arguments.count + 1}, failed {len(failures.errors)}")
    for error in failures.errors[:3]:
        # Each error says whether its messages may be in the log.
        print(error)


if __name__ == "__main__":
    main()
