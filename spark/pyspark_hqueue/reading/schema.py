"""The columns of a read."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

__all__ = ["COLUMNS", "RANGES", "arrow_schema"]


def _required(*fields: tuple[str, DataType]) -> StructType:
    return StructType([StructField(name, kind, nullable=False) for name, kind in fields])


COLUMNS = _required(
    ("partition", IntegerType()),
    ("timestamp", TimestampType()),
    ("sequence", ShortType()),
    ("id", LongType()),
    ("topic", StringType()),
    ("value", BinaryType()),
)
"""A row a message. ``timestamp`` (milliseconds) and ``sequence`` are the parts of its MessageID;
``id`` is the same as one integer, which sorts as the messages of a partition do."""

RANGES = _required(
    ("partition", IntegerType()),
    ("start", LongType()),
    ("stop", LongType()),
    ("ordinal", LongType()),
    ("messages", LongType()),
    ("exact", BooleanType()),
)
"""A row a range: the IDs ``[start, stop)`` of a partition, how many messages it had before, how
many lie there, and whether all of them have to be there."""


_ARROW: dict[type[DataType], pa.DataType] = {
    BinaryType: pa.binary(),
    BooleanType: pa.bool_(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    ShortType: pa.int16(),
    StringType: pa.string(),
    TimestampType: pa.timestamp("us", tz="UTC"),
}


def arrow_schema(columns: StructType) -> pa.Schema:
    """The Arrow schema that Spark wants of these columns; it takes no other.

    PySpark has a function for it, which each of its versions wants to be called in another way.
    """
    return pa.schema(
        [pa.field(f.name, _ARROW[type(f.dataType)], nullable=f.nullable) for f in columns]
    )
