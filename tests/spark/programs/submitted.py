"""Does what a test asks for: ``submitted.py <port of the test>``.

Each line that comes in is JSON, with a ``job``, a method of `Jobs`, and its arguments; each
gets a line of JSON with its ``result``, or its ``error``. Where a job has a ``mark``, the first try
of each task, or of the task of the number ``only``, stands still behind `ROWS_BEFORE` of its rows,
until ``mark.go`` is there; that it does, ``mark.<task>`` says.
"""

from __future__ import annotations

import json
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

ROWS_BEFORE = 20_000
WAIT_S = 400


def standing_still(
    mark: str, only: int | None
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def passed_on(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        task, rows = context.partitionId(), 0
        for batch in batches:
            yield batch
            rows += batch.num_rows
            if rows >= ROWS_BEFORE and only in (None, task):
                try:
                    Path(f"{mark}.{task}").touch(exist_ok=False)
                except FileExistsError:
                    continue
                ends = time.monotonic() + WAIT_S
                while not Path(f"{mark}.go").exists():
                    assert time.monotonic() < ends
                    time.sleep(0.02)

    return passed_on


class Jobs:
    """What can be asked for."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def packages(self) -> dict[str, list[str]]:
        """The files that the package comes from, on the driver and in tasks."""
        import hqueue  # noqa: PLC0415

        def there(_: int) -> str:
            import hqueue  # noqa: PLC0415

            return hqueue.__file__

        found = self._spark.sparkContext.parallelize(range(2), 2).map(there).distinct().collect()
        return {"driver": [hqueue.__file__], "tasks": found}

    def executors(self) -> int:
        """How many there are."""
        return int(self._spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1

    def read(self, options: dict[str, str], *, name: str, located: bool) -> dict[str, int]:
        """How many rows a read has, and how many different values."""
        from pyspark_hqueue import read  # noqa: PLC0415

        self._spark.sparkContext.setJobDescription(name)
        if located:
            frame = read(self._spark, **options)
        else:
            frame = self._spark.read.format("hqueue").options(**options).load()
        rows = frame.select("partition", "value").collect()
        return {"rows": len(rows), "values": len({bytes(row.value) for row in rows})}

    def copy(
        self,
        options: dict[str, str],
        *,
        name: str,
        target: str,
        checkpoint: str,
        mark: str,
        only: int | None = None,
    ) -> None:
        """Stream a queue into another."""
        reader = self._spark.readStream.format("hqueue").options(**options)
        frame = reader.option("startingOffsets", "earliest").load().select("topic", "value")
        connection = {key: value for key, value in options.items() if key.startswith("hqueue.")}
        query = (
            frame.mapInArrow(standing_still(mark, only), frame.schema)
            .writeStream.format("hqueue")
            .queryName(name)
            .options(**connection, queue=target, checkpointLocation=checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(WAIT_S)


def main(port: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    jobs = Jobs(spark)
    with socket.create_connection(("127.0.0.1", int(port))) as connected:
        lines = connected.makefile("rw")
        for line in lines:
            asked = json.loads(line)
            answer: dict[str, Any]
            try:
                answer = {"result": getattr(jobs, asked.pop("job"))(**asked)}
            except Exception:
                answer = {"error": traceback.format_exc()}
            lines.write(json.dumps(answer) + "\n")
            lines.flush()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
