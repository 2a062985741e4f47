"""Read a queue as a consumer of a group, and put each message's results into another queue, once.

python examples/read_process_write.py orders invoices billing

Any number of these processes may run, and each may die or pause at any point.
"""

from __future__ import annotations

import argparse
import signal

from hqueue import ExactlyOnceProcessor, Message, ReceivedMessage


def process(message: ReceivedMessage) -> list[Message]:
    """The results of a message: none, one or several."""
    return [Message(message.topic, message.value.upper(), message.key, message.headers)]


def main() -> None:
    parser = argparse.ArgumentParser(description="Process each message of a queue once.")
    parser.add_argument("source", help="the queue that is read; it must be there")
    parser.add_argument("target", help="the queue for the results; it must be there")
    parser.add_argument("group", help="any name; processes with one name share the partitions")
    parser.add_argument("--idle-ms", type=int, default=20_000, help="longest wait for a message")
    parser.add_argument("--cut", type=int, default=500, help="the most messages of a batch")
    arguments = parser.parse_args()

    with ExactlyOnceProcessor(
        arguments.source, arguments.target, arguments.group, process, messages_max=arguments.cut
    ) as processor:
        signal.signal(signal.SIGTERM, lambda *_: processor.request_stop())
        processed = processor.run(idle_ms_max=arguments.idle_ms)
    print(f"{processed} messages are processed")


if __name__ == "__main__":
    main()
