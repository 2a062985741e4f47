"""Put each line of a file once, however often the program is killed and started again.

python examples/put_once.py events orders-2026-01 orders.txt
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

import hqueue
from hqueue import Messages

LINES_PER_BATCH = 1_000


def main() -> None:
    parser = argparse.ArgumentParser(description="Put each line of a file into a queue, once.")
    parser.add_argument("queue", help="its name; it must be there")
    parser.add_argument(
        "producer", help="a name for this import: letters, digits, '_', '-' and '.'"
    )
    parser.add_argument("file", type=Path, help="its lines must stay the same between the runs")
    arguments = parser.parse_args()

    with hqueue.connect() as client, arguments.file.open("rb") as file:
        queue = client.queue(arguments.queue)

        # The time at which the first run of this import began: the log is searched from there on.
        since = queue.claim_epoch(arguments.producer)

        for number in itertools.count():
            lines = [line.rstrip(b"\n") for line in itertools.islice(file, LINES_PER_BATCH)]
            if not lines:
                break
            # The key always names this batch. A run that puts the batch again finds it in the log,
            # and gets the IDs of the first put.
            ids = queue.put(
                Messages("orders", lines),
                partition=number % queue.partitions,
                idempotency_key=f"{arguments.producer} {number}",
                since=since,
            )
            print(f"batch {number}: {len(ids)} lines from {ids[0]} on", flush=True)


if __name__ == "__main__":
    main()
