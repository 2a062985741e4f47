"""Filters of a query that narrow what is read, before anything is.

Spark pushes them from 4.1 on, where ``spark.sql.python.filterPushdown.enabled`` is set. Those that
the reader hands back it applies again to what comes; the others it shows as pushed in the plan.
"""

from __future__ import annotations

import dataclasses
import datetime
import operator
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from hqueue.message_id import id_of
from hqueue.settings.limits import MESSAGE_ID_MAX
from pyspark_hqueue.reading.plain_errors import main_is_of_spark

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

__all__ = ["Narrowing", "narrowing_of", "pushes_filters"]

_PUSHING = "sql.worker.data_source_pushdown_filters"

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_MILLISECOND = datetime.timedelta(milliseconds=1)

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "EqualTo": operator.eq,
    "EqualNullSafe": operator.eq,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
}


def pushes_filters() -> bool:
    """Whether this is the process that Spark pushes filters in.

    Spark refuses a reader that could take filters wherever the session doesn't push any, and tells
    a data source nothing of the session.
    """
    return f"pyspark.{_PUSHING}" in sys.modules or main_is_of_spark(_PUSHING)


@dataclasses.dataclass(frozen=True)
class Narrowing:
    """What filters leave of a read: IDs in ``[start, stop)``, and some partitions and topics.

    Args:
        start: the first ID.
        stop: the first ID that isn't wanted any more.
        topics: the topics; None for all.
        partitions: comparisons that hold for a partition that is wanted.
    """

    start: int = 0
    stop: int = MESSAGE_ID_MAX + 1
    topics: frozenset[str] | None = None
    partitions: tuple[tuple[Callable[[Any, Any], bool], Any], ...] = ()

    def matches(self, partition: int) -> bool:
        """Whether anything of a partition is wanted."""
        return self.start < self.stop and all(
            compare(partition, value) for compare, value in self.partitions
        )


def narrowing_of(filters: Iterable[Filter]) -> tuple[Narrowing, list[Filter]]:
    """What all of these filters together leave, and those that it doesn't apply in full."""
    wanted, rest = Narrowing(), []
    for filter_ in filters:
        narrowed = _narrowed(wanted, filter_)
        if narrowed is not None:
            wanted = narrowed
        if narrowed is None or _is_wider(filter_):
            rest.append(filter_)
    return wanted, rest


def _narrowed(wanted: Narrowing, filter_: Filter) -> Narrowing | None:
    """What a filter leaves of a read; None if it says nothing here."""
    kind = type(filter_).__name__
    column, value = _column_of(filter_), getattr(filter_, "value", None)
    if value is None or (kind not in _COMPARISONS and kind != "In"):
        return None
    # No row equals a null.
    values = [each for each in value if each is not None] if kind == "In" else [value]
    if column == "partition":
        test = (_is_in, tuple(values)) if kind == "In" else (_COMPARISONS[kind], value)
        return dataclasses.replace(wanted, partitions=(*wanted.partitions, test))
    if column == "topic" and kind in ("EqualTo", "EqualNullSafe", "In"):
        topics = frozenset(values) if wanted.topics is None else wanted.topics & frozenset(values)
        return dataclasses.replace(wanted, topics=topics)
    if column in ("id", "timestamp") and values:
        spans = [_span(kind, *_ids_of(each)) for each in values]
        return dataclasses.replace(
            wanted,
            start=max(wanted.start, min(start for start, _ in spans)),
            stop=min(wanted.stop, max(stop for _, stop in spans)),
        )
    return None


def _is_wider(filter_: Filter) -> bool:
    """Whether a filter leaves less than the narrowing by it: between IDs of a list lie others."""
    return type(filter_).__name__ == "In" and _column_of(filter_) in ("id", "timestamp")


def _column_of(filter_: Filter) -> str:
    """The name of a filter's column in lower case; empty if it names no column."""
    return ".".join(getattr(filter_, "attribute", ())).lower()


def _is_in(partition: int, values: tuple[Any, ...]) -> bool:
    return partition in values


def _ids_of(value: object) -> tuple[int, int]:
    """The first ID that is not before an ID or a time, and the first one after it."""
    if isinstance(value, datetime.datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=datetime.timezone.utc)
        since_epoch = moment - _EPOCH
        # Messages have whole milliseconds, and lie at none between two of them.
        return id_of(-(-since_epoch // _MILLISECOND)), id_of(since_epoch // _MILLISECOND + 1)
    assert isinstance(value, int)
    return value, value + 1


def _span(kind: str, at: int, behind: int) -> tuple[int, int]:
    """The IDs ``[start, stop)`` that fit a comparison with a value, by what `_ids_of` gives."""
    start, stop = 0, MESSAGE_ID_MAX + 1
    if kind in ("GreaterThan", "GreaterThanOrEqual"):
        start = behind if kind == "GreaterThan" else at
    elif kind in ("LessThan", "LessThanOrEqual"):
        stop = at if kind == "LessThan" else behind
    else:
        start, stop = at, behind
    return max(0, start), min(max(0, stop), MESSAGE_ID_MAX + 1)
