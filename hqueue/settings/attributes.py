"""A queue's attributes: what can be set, and its names in HBase and in Alibaba's HQueue."""

from __future__ import annotations

import dataclasses
import datetime
import re
from collections.abc import Callable, Mapping
from typing import Any

from hqueue.errors import InvalidInputError, QueueExistsError
from hqueue.settings.limits import (
    PARTITIONS_MAX,
    QUEUE_NAME_LENGTH_MAX,
    TTL_SECONDS_MAX,
    TTL_SECONDS_MIN,
)
from hqueue.settings.names import with_closest
from hqueue.settings.numbers import as_whole, read_whole

__all__ = [
    "ATTRIBUTES",
    "Attribute",
    "QueueDescription",
    "check_attributes",
    "check_partition",
    "check_partitions",
    "check_queue_name",
    "check_same_partitions",
    "ttl_seconds",
]

COMPRESSIONS = ("NONE", "GZ", "SNAPPY", "LZ4", "ZSTD", "LZO", "BZIP2")
DURABILITIES = ("SYNC_WAL", "FSYNC_WAL")
"""What HBase has beyond these would acknowledge a put before it is written."""


@dataclasses.dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute of a queue. What it does is said in `hqueue.settings.keyword_options`.

    Args:
        name: its name in Python and on the command line.
        toolkit_name: its name in the toolkit shell of Alibaba's HQueue.
        table_key: the key in HBase's table description.
        parse: reads and checks a value.
        fixed: whether it can only be set when the queue is created.
    """

    name: str
    toolkit_name: str
    table_key: str
    parse: Callable[[Any], int | str]
    fixed: bool = False


def _number(low: int, high: int) -> Callable[[Any], int]:
    return lambda value: read_whole(value, low, high)


def _one_of(names: tuple[str, ...]) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        name = str(value).upper()
        if name not in names:
            raise InvalidInputError(
                "unknown value of an attribute",
                value=value,
                known=", ".join(names),
            )
        return name

    return parse


ATTRIBUTES: Mapping[str, Attribute] = {
    attribute.name: attribute
    for attribute in (
        Attribute(
            "partitions_per_region",
            "hbase.hqueue.partitionsPerRegion",
            "hqueue.partitionsPerRegion",
            _number(1, PARTITIONS_MAX),
            fixed=True,
        ),
        Attribute(
            "memstore_flush_bytes",
            "hbase.hregion.memstore.flush.size",
            "MEMSTORE_FLUSHSIZE",
            _number(1024 * 1024, 2**40),
        ),
        Attribute(
            "major_compaction_ms",
            "hbase.hregion.majorcompaction",
            "hbase.hregion.majorcompaction",
            _number(0, 2**53),
        ),
        Attribute(
            "compaction_files_min",
            "hbase.hstore.compaction.min",
            "hbase.hstore.compaction.min",
            _number(2, 10_000),
        ),
        Attribute(
            "compaction_files_max",
            "hbase.hstore.compaction.max",
            "hbase.hstore.compaction.max",
            _number(2, 10_000),
        ),
        Attribute(
            "compression",
            "hbase.hqueue.compression",
            "COMPRESSION",
            _one_of(COMPRESSIONS),
        ),
        Attribute(
            "blocking_store_files",
            "hbase.hstore.blockingStoreFiles",
            "hbase.hstore.blockingStoreFiles",
            _number(2, 1_000_000),
        ),
        Attribute(
            "durability",
            "hbase.hqueue.durability",
            "DURABILITY",
            _one_of(DURABILITIES),
        ),
    )
}


@dataclasses.dataclass(frozen=True, slots=True)
class QueueDescription:
    """A queue's attributes, as HBase has them."""

    name: str
    partitions: int
    ttl_seconds: int | None
    """How long messages are kept, in seconds; None for ever."""
    attributes: Mapping[str, int | str]
    """The attributes that are set. The others have HBase's defaults."""
    enabled: bool | None = None
    """Whether the queue is enabled; None if that was not requested."""


def check_attributes(given: Mapping[str, Any]) -> dict[str, int | str]:
    """Check attributes, by their names here or in the toolkit shell.

    Raises:
        InvalidInputError: an unknown name (the closest is named) or a value out of range.
    """
    by_name = {a.toolkit_name: a for a in ATTRIBUTES.values()} | dict(ATTRIBUTES)
    checked: dict[str, int | str] = {}
    for name, value in given.items():
        if name not in by_name:
            unknown = InvalidInputError("unknown attribute", attribute=name)
            raise with_closest(unknown, name, by_name)
        attribute = by_name[name]
        try:
            checked[attribute.name] = attribute.parse(value)
        except InvalidInputError as exc:
            exc.facts["attribute"] = name
            raise
    low, high = checked.get("compaction_files_min"), checked.get("compaction_files_max")
    if low is not None and high is not None and int(low) > int(high):
        raise InvalidInputError(
            "compaction_files_min is greater than compaction_files_max", minimum=low, maximum=high
        )
    return checked


_NAME = re.compile(r"(?:[A-Za-z0-9_]+:)?[A-Za-z0-9_][A-Za-z0-9_.\-]*", re.ASCII)


def check_queue_name(name: object) -> str:
    """A queue's name: its table's, with HBase's namespace and a colon before it or without. That
    of the default namespace is left out, so that each queue has one name.

    Raises:
        InvalidInputError: HBase would not take it.
    """
    if (
        not isinstance(name, str)
        or len(name) > QUEUE_NAME_LENGTH_MAX
        or not _NAME.fullmatch(name)
        or name.startswith("hbase:")
    ):
        raise InvalidInputError(
            "a queue's name may have letters, digits, '_', '-' and '.', can't begin with '-' or "
            "'.', and has 1 to 200 characters",
            name=name,
        )
    # Hubs, workers and groups of a queue with two names would know nothing of each other.
    return name.removeprefix("default:")


def check_partitions(partitions: object) -> int:
    """The number of partitions of a queue.

    Raises:
        InvalidInputError: it is not 1 to 32,767.
    """
    number = as_whole(partitions, 1, PARTITIONS_MAX)
    if number is None:
        raise InvalidInputError("a queue must have 1 to 32767 partitions", partitions=partitions)
    return number


def check_same_partitions(queue: str, there: int, wanted: int) -> None:
    """Check that an existing queue has as many partitions as the one to create.

    Raises:
        QueueExistsError: the queue has another number of partitions.
    """
    if there != wanted:
        raise QueueExistsError(
            "the queue exists with another number of partitions",
            queue=queue,
            partitions=there,
        )


def check_partition(partition: object, partitions: int, **facts: object) -> int:
    """A partition of a queue that has this many of them.

    Raises:
        InvalidInputError: it has none of this number. `facts` say which queue it is.
    """
    number = as_whole(partition, 0, partitions - 1)
    if number is None:
        wrong = InvalidInputError("there is no such partition")
        wrong.facts.update(facts, partition=partition, partitions=partitions)
        raise wrong
    return number


_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"(\d{1,12})\s*([smhdw]?)", re.ASCII)


def ttl_seconds(ttl: str | int | datetime.timedelta | None) -> int | None:
    """How long messages are kept, in seconds; None for ever.

    Args:
        ttl: seconds, a timedelta, a text as ``90s``, ``15m``, ``12h``, ``7d``, ``2w``, or
            ``forever`` or None.

    Raises:
        InvalidInputError: it can't be read, or is not 60 seconds to 68 years.
    """
    if ttl is None or ttl == "forever":
        return None
    if isinstance(ttl, datetime.timedelta):
        seconds = int(ttl.total_seconds())
    elif isinstance(ttl, str):
        match = _DURATION.fullmatch(ttl.strip())
        if match is None:
            raise InvalidInputError(
                "a TTL must be seconds, or be written as 90s, 15m, 12h, 7d or 2w", ttl=ttl
            )
        seconds = int(match[1]) * _UNITS[match[2] or "s"]
    elif (whole := as_whole(ttl, 0)) is not None:
        seconds = whole
    else:
        raise InvalidInputError(
            "a TTL must be seconds, or be written as 90s, 15m, 12h, 7d or 2w", ttl=ttl
        )
    if not TTL_SECONDS_MIN <= seconds < TTL_SECONDS_MAX:
        raise InvalidInputError("a TTL must be 60 seconds to 68 years", ttl=ttl)
    return seconds
