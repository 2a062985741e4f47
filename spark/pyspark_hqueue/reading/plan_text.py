"""How a read of `pyspark_hqueue.read` shows itself in Spark's plans: ``explain`` and the web UI."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from hqueue import MessageID
from pyspark_hqueue.reading.plan import Range
from pyspark_hqueue.reading.read_options import ReadOptions

__all__ = ["plan_text"]

LISTED_MAX = 10
"""Of topics and of ranges: a plan is kept in the driver's memory and in the event log."""


def plan_text(options: ReadOptions, ranges: Sequence[Range], columns: Iterable[str]) -> str:
    """What a read asks the store for, on one line.

    Args:
        options: how it is read.
        ranges: what is read.
        columns: the names of the columns that are made.
    """
    parts = [f"queue={options.queue}"]
    if isinstance(options.topics, re.Pattern):
        parts.append(f"topics=/{options.topics.pattern}/")
    elif options.topics is not None:
        parts.append(f"topics={_listed(sorted(options.topics))}")
    name = "topicRanges" if options.topic_ranges else "ranges"
    parts.append(f"{name}={_listed(list(map(_range_text, ranges)))}")
    parts.append(f"columns={_listed(list(columns))}")
    return f"hqueue({', '.join(parts)})"


def _range_text(range_: Range) -> str:
    start, stop = (MessageID.from_int(each) for each in (range_.start, range_.stop))
    return f"{range_.partition}: {start} to {stop}"


def _listed(texts: Sequence[str]) -> str:
    shown = list(texts[:LISTED_MAX])
    if len(texts) > LISTED_MAX:
        shown.append(f"{len(texts) - LISTED_MAX} more")
    return f"[{', '.join(shown)}]"
