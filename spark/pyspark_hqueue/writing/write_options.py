"""The options of a write, and which columns it takes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Literal

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

from hqueue import InvalidInputError
from hqueue.message import topic_bytes
from hqueue.metadata import check_name
from hqueue.settings.reserved import check_topic
from pyspark_hqueue.reading.read_options import Option, flag, parse_options, queue_name, whole
from pyspark_hqueue.reading.schema import HEADERS
from pyspark_hqueue.reading.task_options import TaskOptions

__all__ = ["WriteOptions", "check_columns", "check_headers"]

TEXT: tuple[type[DataType], ...] = (StringType,)
BYTES: tuple[type[DataType], ...] = (StringType, BinaryType)
WHOLE: tuple[type[DataType], ...] = (ByteType, ShortType, IntegerType, LongType)

COLUMNS: dict[str, tuple[type[DataType], ...]] = {
    "topic": TEXT,
    "value": BYTES,
    "key": BYTES,
    "partition": WHOLE,
}


def _topic(text: str) -> str:
    topic_bytes(text)
    check_topic(text)
    return text


_OPTIONS = (
    Option("queue", "queue", queue_name),
    Option("path", "queue", queue_name),
    Option("topic", "topic", _topic),
    Option("writeId", "write_id", check_name, "batch"),
    Option("writeEpoch", "write_epoch", functools.partial(whole, 0), "batch"),
    Option("delegationTokens", "delegation_tokens", flag),
    Option("checkpointLocation", "checkpoint", str, "stream"),  # Spark's own: it comes along.
)


@dataclasses.dataclass(frozen=True)
class WriteOptions(TaskOptions):
    """The options of a write: the queue, the topic, and what makes the write exactly once. See
    docs/spark.md for each.
    """

    topic: str | None = None
    write_id: str | None = None
    write_epoch: int = 0
    checkpoint: str | None = None

    @classmethod
    def of(cls, given: Mapping[str, str], kind: Literal["batch", "stream"]) -> WriteOptions:
        """The options of a write, checked. Raises as `parse_options`."""
        return cls(**parse_options(given, _OPTIONS, kind))


def check_columns(schema: StructType, options: WriteOptions, *, overwrite: bool) -> None:
    """Refuse what can't be written, before a task is started.

    Raises:
        InvalidInputError: a column is missing or has another type, or the write is not an append.
    """
    if overwrite:
        raise InvalidInputError(
            'a queue can only be appended to: write with .mode("append"), and a stream with '
            '.outputMode("append")'
        )
    types = {field.name: field.dataType for field in schema}
    needed = ["value"] if options.topic is not None else ["topic", "value"]
    missing = [name for name in needed if name not in types]
    if missing:
        raise InvalidInputError(
            "a write needs the columns value and topic (or the option topic), and takes key, "
            "headers and partition",
            missing=missing,
            columns=sorted(types),
        )
    for name, kinds in COLUMNS.items():
        if name in types and not isinstance(types[name], kinds):
            raise InvalidInputError(
                "a column has an unsupported type",
                column=name,
                type=types[name].simpleString(),
                types=[kind().simpleString() for kind in kinds],
            )
    check_headers(schema)


def check_headers(schema: StructType) -> None:
    """Refuse values that are not headers, if there is a column of that name.

    Raises:
        InvalidInputError: it has another type.
    """
    if "headers" in schema.names and not _are_headers(schema["headers"].dataType):
        raise InvalidInputError(
            "a column has an unsupported type",
            column="headers",
            type=schema["headers"].dataType.simpleString(),
            types=[HEADERS.simpleString()],
        )


def _are_headers(kind: DataType) -> bool:
    """Whether these are pairs of a name and a value, whatever may be null in them."""
    pair = kind.elementType if isinstance(kind, ArrayType) else None
    return (
        isinstance(pair, StructType)
        and pair.names == ["key", "value"]
        and isinstance(pair["key"].dataType, TEXT)
        and isinstance(pair["value"].dataType, BYTES)
    )
