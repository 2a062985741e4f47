"""What a batch read gives: partitions, or the ranges of a topic that hubs own."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from hqueue import Client, MessageID, Queue
from hqueue.errors import NoTopicPersistenceInfoError
from hqueue.metadata.managers import LogRange
from pyspark_hqueue.reading.groups import committed_by
from pyspark_hqueue.reading.plan import Range, partitions_of, snapshot
from pyspark_hqueue.reading.read_options import ReadOptions
from pyspark_hqueue.reading.topic_names import warn_of_topics

__all__ = ["planned"]


def planned(client: Client, options: ReadOptions) -> list[Range]:
    """What a batch read gives, as `snapshot`; with ``topicRanges`` only what lies in the topic's
    ranges, in the order of IDs.

    Raises:
        NoTopicPersistenceInfoError: no hub ever owned the topic.
        StoreUnavailableError: the metadata stayed away for ``operation_timeout_ms``.
        and as `snapshot`.
    """
    queue = client.queue(options.queue)
    if not options.topic_ranges:
        ranges = snapshot(queue, options, committed_by(client, options))
        counts = {range_.partition: range_.messages for range_ in ranges}
        read = partitions_of(queue, options)
        warn_of_topics(queue, options, sorted(read, key=lambda p: -counts.get(p, 0)))
        return ranges
    # Before the ends of the log are: what was published before this call is in these ranges.
    lies = _ranges_of(client, options)
    partitions = frozenset(each.partition for each in lies)
    if options.partitions is not None:
        partitions &= options.partitions
    if not partitions:
        return []
    wanted = dataclasses.replace(options, partitions=partitions)
    there = {range_.partition: range_ for range_ in snapshot(queue, wanted)}
    parts = (_part(queue, there[e.partition], e) for e in lies if e.partition in there)
    return [part for each in parts for part in each]


def _ranges_of(client: Client, options: ReadOptions) -> Sequence[LogRange]:
    assert isinstance(options.topics, frozenset)
    (topic,) = options.topics
    with client.topic_metadata(options.queue) as metadata:
        known = metadata.persistence.read_topic_persistence_info(topic).result()
    if known is None:
        raise NoTopicPersistenceInfoError(
            "no hub has owned this topic yet: leave out topicRanges to read its messages from "
            "the whole queue",
            topic=topic,
            queue=options.queue,
        )
    return known.value.ranges


def _part(queue: Queue, whole: Range, lies: LogRange) -> Iterator[Range]:
    """What a partition's range has of a topic's, if it has anything."""
    start = max(whole.start, int(lies.first))
    stop = whole.stop if lies.last is None else min(whole.stop, int(lies.last) + 1)
    if start >= stop:
        return
    before = _count_before(queue, whole, start)
    messages = max(0, _count_before(queue, whole, stop) - before)
    epoch = lies.epoch if lies.marked else None
    yield dataclasses.replace(
        whole, start=start, stop=stop, ordinal=before, messages=messages, owner_epoch=epoch
    )


def _count_before(queue: Queue, whole: Range, at: int) -> int:
    """Messages that the partition had before an ID in its range; more when some were collected."""
    if at == whole.start:
        return whole.ordinal
    if at == whole.stop:
        return whole.ordinal + whole.messages
    return max(whole.ordinal, queue.count_before(whole.partition, MessageID.from_int(at)))
