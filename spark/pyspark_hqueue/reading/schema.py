"""The columns of a read."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
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

__all__ = ["COLUMNS", "HEADERS", "RANGES", "WITH_HEADERS", "arrow_schema"]


def _required(*fields: tuple[str, DataType]) -> StructType:
    return StructType([StructField(name, kind, nullable=False) for name, kind in fields])


COLUMNS = StructType(
    [
        *_required(
            ("partition", IntegerType()),
            ("timestamp", TimestampType()),
            ("sequence", ShortType()),
            ("id", LongType()),
            ("topic", StringType()),
            ("value", BinaryType()),
        ),
        StructField("key", BinaryType()),
    ]
)
"""A row a message. ``timestamp`` (milliseconds) and ``sequence`` are the parts of its MessageID;
``id`` is the same as one integer, which sorts as the messages of a partition do. ``key`` is null
where there is none."""

HEADERS = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
"""Headers, pairs of a name and a value, as Spark's Kafka source has them."""

WITH_HEADERS = StructType([*COLUMNS, StructField("headers", HEADERS)])
"""A row a message, with its ``headers``: null where there are none."""

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


def _arrow_type(kind: DataType) -> pa.DataType:
    if isinstance(kind, ArrayType):
        element = _arrow_type(kind.elementType)
        return pa.list_(pa.field("element", element, nullable=kind.containsNull))
    if isinstance(kind, StructType):
        return pa.struct(list(arrow_schema(kind)))
    return _ARROW[type(kind)]


def arrow_schema(columns: StructType) -> pa.Schema:
    """The Arrow schema that Spark wants of these columns; it takes no other.

    PySpark has a function for it, which each of its versions wants to be called in another way.
    """
    return pa.schema(
        [pa.field(f.name, _arrow_type(f.dataType), nullable=f.nullable) for f in columns]
    )
