"""The options of a write, and which columns it takes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
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

__all__ = ["WriteOptions", "check_columns", "check_headers", "columns_of"]

TEXT: tuple[type[DataType], ...] = (StringType,)
BYTES: tuple[type[DataType], ...] = (StringType, BinaryType)
WHOLE: tuple[type[DataType], ...] = (ByteType, ShortType, IntegerType, LongType)

COLUMNS: dict[str, tuple[type[DataType], ...]] = {
    "topic": TEXT,
    "value": BYTES,
    "key": BYTES,
    "partition": WHOLE,
}

NAMES = (*COLUMNS, "headers")


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
    # Spark's own, which come along.
    Option("checkpointLocation", "checkpoint", str, "stream"),
    Option("queryName", "query_name", str, "stream"),
)


@dataclasses.dataclass(frozen=True)
class WriteOptions(TaskOptions):
    """The options of a write: the queue, the topic, and what makes the write exactly once. See
    docs/spark-sink.md for each.
    """

    topic: str | None = None
    write_id: str | None = None
    write_epoch: int = 0
    checkpoint: str | None = None
    query_name: str | None = None

    @classmethod
    def of(cls, given: Mapping[str, str], kind: Literal["batch", "stream"]) -> WriteOptions:
        """The options of a write, checked. Raises as `parse_options`."""
        options = cls(**parse_options(given, _OPTIONS, kind))
        if options.write_id is None and options.write_epoch:
            raise InvalidInputError(
                "writeEpoch counts the steps of a write that writeId names: give both",
                writeEpoch=options.write_epoch,
            )
        return options


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
    # Whether the session is case sensitive is known in tasks only: these check it again.
    found = columns_of(schema.names, options)
    for name, kinds in COLUMNS.items():
        if name in found and not isinstance(schema[found[name]].dataType, kinds):
            raise InvalidInputError(
                "a column has an unsupported type",
                column=found[name],
                type=schema[found[name]].dataType.simpleString(),
                types=[kind().simpleString() for kind in kinds],
            )
    if "headers" in found:
        _check_headers(schema, found["headers"])


def columns_of(
    names: Sequence[str], options: WriteOptions, *, case_sensitive: bool = False
) -> dict[str, str]:
    """The columns of a message that a frame has, by the names that messages have for them.

    As in Spark, case does not matter unless the session is case sensitive. A column that has
    exactly the name comes before others.

    Raises:
        InvalidInputError: one is missing, or two could be meant.
    """
    found: dict[str, str] = {}
    for name in NAMES:
        alike = [each for each in names if each == name]
        if not alike and not case_sensitive:
            alike = [each for each in names if each.lower() == name]
        if len(alike) > 1:
            raise InvalidInputError(
                "two columns have the same name: drop or rename one of them", columns=alike
            )
        if alike:
            found[name] = alike[0]
    needed = ["value"] if options.topic is not None else ["topic", "value"]
    missing = [name for name in needed if name not in found]
    if missing:
        raise InvalidInputError(
            "a write needs the columns value and topic (or the option topic), and takes key, "
            "headers and partition",
            missing=missing,
            columns=sorted(names),
        )
    return found


def check_headers(schema: StructType) -> None:
    """Refuse values that are not headers, if there is a column of that name.

    Raises:
        InvalidInputError: it has another type.
    """
    if "headers" in schema.names:
        _check_headers(schema, "headers")


def _check_headers(schema: StructType, column: str) -> None:
    if not _are_headers(schema[column].dataType):
        raise InvalidInputError(
            "a column has an unsupported type",
            column=column,
            type=schema[column].dataType.simpleString(),
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
