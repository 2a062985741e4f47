"""Warns of topics in ``subscribe`` that are probably misspelt."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence

from hqueue import Queue
from hqueue.runtime.logs import Log
from hqueue.settings.names import closest
from pyspark_hqueue.reading.read_options import ReadOptions

__all__ = ["known_topics", "warn_of_topics"]

logger = Log(__name__)

HEADERS_MAX = 10_000
"""How many headers are read at most: ten requests or so, if a topic is not found."""

PARTITIONS_MAX = 16


def warn_of_topics(queue: Queue, options: ReadOptions, partitions: Sequence[int]) -> None:
    """Log topics that ``subscribe`` names, and that the queue seems not to have.

    The newest headers are read until all are found: mostly one request. A topic that is not among
    them counts as misspelt if these are all that there are, or if one of them has a similar name.

    Args:
        queue: the queue.
        options: what is read.
        partitions: those that are read, the fullest first.
    """
    if not isinstance(options.topics, frozenset):
        return
    known, is_all = known_topics(queue, options.topics, partitions)
    if not known:
        return  # Nothing was written yet.
    for topic in sorted(options.topics - known):
        near = closest(topic, known)
        if near is not None:
            logger.warning(
                "subscribe names the topic %r, which was not found in the queue %r: is %r meant?",
                topic,
                queue.name,
                near,
            )
        elif is_all:
            logger.warning(
                "subscribe names the topic %r, but the partitions that are read of the queue %r "
                "have no message of it yet",
                topic,
                queue.name,
            )


def known_topics(
    queue: Queue, wanted: Collection[str], partitions: Sequence[int]
) -> tuple[frozenset[str], bool]:
    """The topics of the newest batches, up to those with which all that are wanted are found; and
    whether all batches were looked at.
    """
    share = HEADERS_MAX // max(1, min(len(partitions), PARTITIONS_MAX))
    is_all = len(partitions) <= PARTITIONS_MAX
    found: set[str] = set()
    for partition in partitions[:PARTITIONS_MAX]:
        (offsets,) = queue.offsets([partition])
        start = offsets.beginning
        if start is None:
            continue
        if offsets.end_ordinal - offsets.beginning_ordinal > share:
            # A batch has a message or more: so no more headers than these follow.
            start = queue.id_at(partition, offsets.end_ordinal - share)
            is_all = False
        for header in itertools.islice(queue.headers(partition, start, None), share):
            found.update(entry.topic for entry in header.topics)
            if found.issuperset(wanted):
                return frozenset(found), is_all
    return frozenset(found), is_all
