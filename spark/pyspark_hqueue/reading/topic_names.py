"""Warns of topics in ``subscribe`` that are probably misspelt."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import islice

from hqueue import MessageID, PartitionOffsets, Queue
from hqueue.runtime.logs import Log
from hqueue.settings.limits import TIMESTAMP_MS_MAX
from hqueue.settings.names import closest
from pyspark_hqueue.reading.read_options import ReadOptions

__all__ = ["known_topics", "warn_of_topics"]

logger = Log(__name__)

SPANS_MS = (60_000, 3_600_000, TIMESTAMP_MS_MAX)
"""How far before a partition's end is looked: further, if a topic is not found."""

HEADERS_MAX = 10_000
"""How many headers are read of each span: ten requests or so, if a topic is not found."""

PARTITIONS_MAX = 16


def warn_of_topics(queue: Queue, options: ReadOptions, partitions: Sequence[int]) -> None:
    """Log topics that ``subscribe`` names, and that the queue seems not to have.

    Headers are read until all are found: mostly with one request. A topic that is not among them
    counts as misspelt if these are all that there are, or if one of them has a similar name.

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
    """The topics of the latest batches, or of more if not all that are wanted are among them; and
    whether all batches were looked at.
    """
    looked_at = partitions[:PARTITIONS_MAX]
    share = HEADERS_MAX // max(1, len(looked_at))
    offsets: dict[int, PartitionOffsets] = {}
    found: set[str] = set()
    counts: list[int] = []
    for span_ms in SPANS_MS:
        counts.clear()
        for partition in looked_at:
            if partition not in offsets:
                (offsets[partition],) = queue.offsets([partition])
            start_ms = max(0, offsets[partition].end.timestamp - span_ms)
            count = 0
            for header in islice(queue.headers(partition, MessageID(start_ms), None), share):
                count += 1
                found.update(entry.topic for entry in header.topics)
                if found.issuperset(wanted):
                    return frozenset(found), False
            counts.append(count)
    return frozenset(found), len(partitions) <= PARTITIONS_MAX and max(counts, default=0) < share
