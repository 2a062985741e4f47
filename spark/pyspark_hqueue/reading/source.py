"""Reading in batch."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from hqueue import InvalidInputError
from pyspark_hqueue.reading.clients import client_of, task_token
from pyspark_hqueue.reading.decode import read_ranges
from pyspark_hqueue.reading.plain_errors import plain_errors
from pyspark_hqueue.reading.plan import Task, cut, pieces_of, position_of
from pyspark_hqueue.reading.pushdown import narrowing_of, pushes_filters
from pyspark_hqueue.reading.read_options import ReadOptions
from pyspark_hqueue.reading.schema import COLUMNS, RANGES, WITH_HEADERS
from pyspark_hqueue.reading.topic_ranges import planned

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

__all__ = ["batch_reader", "check_schema", "schema_of"]


@plain_errors
def schema_of(options: Mapping[str, str]) -> StructType:
    """The columns that a read with these options has. Raises as `ReadOptions.check`."""
    ReadOptions.check(options)
    if options.get("rangesonly", "").lower() == "true":
        return RANGES
    return WITH_HEADERS if options.get("includeheaders", "").lower() == "true" else COLUMNS


def check_schema(given: StructType, there: StructType) -> None:
    """Refuse a schema of the user's own, unless it chooses among the columns that are there, in
    upper or lower case.
    """
    known = {field.name: field for field in there}
    wrong = [
        field.name
        for field in given
        if (column := known.get(field.name.lower())) is None
        or field.dataType != column.dataType
        or column.nullable > field.nullable
    ]
    if wrong or not len(given):
        raise InvalidInputError(
            "a read has only these columns: give no schema, or choose some of them",
            wrong=wrong,
            columns=there.simpleString(),
        )


@plain_errors
def batch_reader(given: Mapping[str, str], schema: StructType) -> DataSourceReader:
    """A reader for these options. Raises as `ReadOptions.of`."""
    options = ReadOptions.of(given, "batch")
    check_schema(schema, options.columns)
    kind = PushingReader if pushes_filters() else QueueReader
    return kind(options, schema)


class QueueReader(DataSourceReader):
    """Reads what is in the queue at the time of planning."""

    def __init__(self, options: ReadOptions, columns: StructType) -> None:
        self.options = options
        self.columns = columns

    @plain_errors
    def partitions(self) -> list[InputPartition]:
        client = client_of(self.options.settings)
        ranges = planned(client, self.options)
        queue = client.queue(self.options.queue)
        pieces = pieces_of(queue, ranges, self.options)
        # Of an empty list Spark makes a task that has no ranges.
        tasks = cut(ranges, pieces, functools.partial(position_of, queue)) or [Task(())]
        token = task_token(self.options)
        return [task.proven_by(token) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)
        return read_ranges(self.options, partition.ranges, self.columns, partition.token)


class PushingReader(QueueReader):
    """A reader that the filters of the query narrow."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Narrow the read; return the filters that Spark must apply to what comes."""
        narrowing, rest = narrowing_of(filters)
        self.options = dataclasses.replace(self.options, narrowing=narrowing)
        return rest
