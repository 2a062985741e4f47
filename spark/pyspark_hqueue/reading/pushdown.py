"""Filters of a query that narrow what is read, before anything is.

Spark pushes them from 4.1 on, where ``spark.sql.python.filterPushdown.enabled`` is set. It applies
all of them again to what comes, so narrowing may leave rows that don't fit, but drops none that do.
"""

from __future__ import annotations

import dataclasses
import datetime
import operator
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from hqueue import MessageID
from hqueue.settings.limits import MESSAGE_ID_MAX, TIMESTAMP_MS_MAX

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

__all__ = ["Narrowing", "narrowing_of", "pushes_filters"]

_PUSHING = "pyspark.sql.worker.data_source_pushdown_filters"

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)

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
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _PUSHING in sys.modules or (main is not None and main.name == _PUSHING)


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
        return all(compare(partition, value) for compare, value in self.partitions)


def narrowing_of(filters: Iterable[Filter]) -> Narrowing:
    """What all of these filters together leave. Those that say nothing here leave everything."""
    wanted = Narrowing()
    for filter_ in filters:
        kind = type(filter_).__name__
        column, value = getattr(filter_, "attribute", None), getattr(filter_, "value", None)
        if value is None or (kind not in _COMPARISONS and kind != "In"):
            continue
        if column == ("partition",):
            test = (_is_in, tuple(value)) if kind == "In" else (_COMPARISONS[kind], value)
            wanted = dataclasses.replace(wanted, partitions=(*wanted.partitions, test))
        elif column == ("topic",) and kind in ("EqualTo", "EqualNullSafe", "In"):
            topics = frozenset(value) if kind == "In" else frozenset([value])
            if wanted.topics is not None:
                topics &= wanted.topics
            wanted = dataclasses.replace(wanted, topics=topics)
        elif column in (("id",), ("timestamp",)):
            values = list(value) if kind == "In" else [value]
            if not values:
                continue
            spans = [_span(kind, _ids_of(one)) for one in values]
            wanted = dataclasses.replace(
                wanted,
                start=max(wanted.start, min(start for start, _ in spans)),
                stop=min(wanted.stop, max(stop for _, stop in spans)),
            )
    return wanted


def _is_in(partition: int, values: tuple[Any, ...]) -> bool:
    return partition in values


def _ids_of(value: object) -> tuple[int, int]:
    """The IDs ``[first, after)`` that an ID or a time stands for: a time for all of its
    millisecond, which it may be only a part of.
    """
    if isinstance(value, datetime.datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=datetime.timezone.utc)
        ms = (moment - _EPOCH) // datetime.timedelta(milliseconds=1)
        if ms < 0:
            return 0, 0
        first = int(MessageID(min(ms, TIMESTAMP_MS_MAX)))
        return first, first + int(MessageID(1))
    assert isinstance(value, int)
    return value, value + 1


def _span(kind: str, ids: tuple[int, int]) -> tuple[int, int]:
    """The IDs that fit a comparison with a value, and perhaps some of the value's millisecond."""
    first, after = ids
    if kind.startswith("GreaterThan"):
        return max(0, first), MESSAGE_ID_MAX + 1
    if kind.startswith("LessThan"):
        return 0, min(max(0, after), MESSAGE_ID_MAX + 1)
    return max(0, first), min(max(0, after), MESSAGE_ID_MAX + 1)
