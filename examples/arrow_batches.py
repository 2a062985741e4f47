"""Write and read whole record batches: the fastest way through Python.

python examples/arrow_batches.py events --count 100000
"""

from __future__ import annotations

import argparse
from collections import Counter

import pyarrow as pa

import hqueue

ROWS_PER_BATCH = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description="Write and read record batches.")
    parser.add_argument("queue", help="its name; it must be there")
    parser.add_argument("--count", type=int, default=20_000, help="how many messages")
    arguments = parser.parse_args()

    with hqueue.connect() as client:
        queue = client.queue(arguments.queue)

        # Any source of Arrow data will do: a Parquet file, a table of pandas or polars.
        numbers = range(arguments.count)
        table = pa.table(
            {
                "topic": ["even" if number % 2 == 0 else "odd" for number in numbers],
                "value": [str(number).encode() for number in numbers],
            }
        )
        with queue.producer() as producer:
            sent = [producer.send_batch(b) for b in table.to_batches(max_chunksize=ROWS_PER_BATCH)]
        print(f"wrote {sum(len(delivery.result()) for delivery in sent)} messages")

        # The columns are partition, timestamp, id, topic, value, key and headers. Python handles
        # whole columns, and no single message.
        counts: Counter[str] = Counter()
        with queue.scan() as scanner:
            for batch in scanner.arrow_batches():
                for row in batch.column("topic").value_counts().to_pylist():
                    counts[row["values"]] += row["counts"]
        for topic, count in sorted(counts.items()):
            print(f"{topic}: {count}")


if __name__ == "__main__":
    main()
