"""How much of what is there goes into one batch of a stream. Needs PySpark 4.2."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark_hqueue.reading.read_options import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as AvailableNow

    ADMITS = True
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as AvailableNow

        ADMITS = True
    except ImportError:
        ADMITS = False

        class AvailableNow:
            """Nothing: before PySpark 4.2 a Python source can't do it."""


__all__ = ["ADMITS", "AvailableNow", "Limit", "default_limit", "limit_of", "shares"]


@dataclasses.dataclass(frozen=True, slots=True)
class Limit:
    """Messages of one batch: `least`, or it is waited for more, and `most`, None for all."""

    least: int = 0
    most: int | None = None


def default_limit(options: ReadOptions) -> Any:
    """The limit that the options set, as Spark wants to know it."""
    from pyspark.sql.streaming import datasource  # noqa: PLC0415  (it is not in PySpark 4.0)

    if options.trigger_messages_max is not None:
        return datasource.ReadMaxRows(options.trigger_messages_max)
    if options.trigger_messages_min is not None:
        return datasource.ReadMinRows(options.trigger_messages_min)
    return datasource.ReadAllAvailable()


def limit_of(given: Any, options: ReadOptions, *, waits: bool) -> Limit:
    """What Spark's limit means. One that names no number is for all there is, whatever is set.

    Args:
        given: the limit.
        options: they have both bounds; Spark's limits hold only one.
        waits: whether a batch may wait for more; not the first one, nor where the query ends.
    """
    most, least = getattr(given, "max_rows", None), getattr(given, "min_rows", None)
    if most is not None:
        least = options.trigger_messages_min
    return Limit(least or 0 if waits else 0, most)


def shares(messages: Mapping[int, int], most: int) -> dict[int, int]:
    """Divide `most` messages among partitions by how many each has, so that none is left behind.

    What rounding leaves goes to those that lost most by it.
    """
    total = sum(messages.values())
    found = {partition: number * most // total for partition, number in messages.items()}
    left = most - sum(found.values())
    by_rest = sorted(
        messages, key=lambda partition: (-(messages[partition] * most % total), partition)
    )
    for partition in by_rest[:left]:
        found[partition] += 1
    return found
