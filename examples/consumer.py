"""Share the work of a queue: start this several times, and each process has some partitions.

python examples/consumer.py events billing
"""

from __future__ import annotations

import argparse
import signal

import hqueue
from hqueue import PartitionKey


def show(what: str, partitions: list[PartitionKey]) -> None:
    print(f"# {what} {', '.join(str(each.partition) for each in partitions)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Print messages, each once for a group.")
    parser.add_argument("queue", help="its name; it must be there")
    parser.add_argument("group", help="any name; processes with one name share the partitions")
    parser.add_argument("--idle-ms", type=int, default=10_000, help="longest wait for a message")
    arguments = parser.parse_args()

    with hqueue.Consumer(group=arguments.group) as consumer:
        signal.signal(signal.SIGTERM, lambda *_: consumer.request_stop())
        consumer.subscribe(
            arguments.queue,
            on_assigned=lambda partitions: show("got", partitions),
            on_revoked=lambda partitions: show("gave up", partitions),
        )
        for message in consumer.messages(idle_ms_max=arguments.idle_ms):
            print(f"{message.partition} {message.topic} {message.value.decode()}", flush=True)
            # Asking for the next message says that this one is processed.


if __name__ == "__main__":
    main()
