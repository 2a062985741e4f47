"""Looks for messages to take: at the ends of the logs, and in the group's records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from hqueue.handle import QueueLog
from hqueue.log import Batch
from hqueue.metadata.steps import OnStore, Read
from hqueue.runtime.steps import Wait, Work, until_given
from hqueue.runtime.stepwise import stepwise
from hqueue.sharing.partition_reading import BYTES_MAX, PartitionReading
from hqueue.sharing.shared_partition import SharedPartition

__all__ = ["ShareRecords", "poll_ends"]


class ShareRecords(OnStore):
    """Reads the records of a group's partitions. Thread-safe."""

    @stepwise
    def read(self, partitions: Sequence[SharedPartition]) -> Work[Any, None]:
        """Read the records of partitions, in one round trip or a few, and let `see` note them."""
        found = yield Read([each.path for each in partitions])
        for each in partitions:
            each.see(found.get(each.path))


def poll_ends(
    log: QueueLog, partitions: Iterable[PartitionReading], *, check: bool
) -> Work[Any, bool]:
    """Ask once for new messages in the partitions that were read to their ends. Returns whether
    some came.

    Args:
        log: the queue's log.
        partitions: the partitions of that queue.
        check: whether to check that the logs still end there: one may have been truncated.
    """
    readings = {}
    for reading in partitions:
        if reading.cursor is not None and reading.at_tail:
            readings[reading.partition] = reading
            if check:
                yield from reading.check_tail()
    if not readings:
        return False
    cursors = [each.cursor for each in readings.values() if each.cursor is not None]
    poll = log.reader.reading.poll
    found: list[Batch] = yield Wait(
        lambda: log.reader.do_long(_given(poll(cursors, BYTES_MAX, 1, None))),
        lambda: log.loop_reader.do_long(_given(poll(cursors, BYTES_MAX, 1, None))),
    )
    came = defaultdict(list)
    for batch in found:
        came[batch.partition].append(batch)
    for partition, reading in readings.items():
        yield from reading.add(came[partition])
    return bool(found)


def _given(polling: Work[Any, None]) -> Work[Any, list[Batch]]:
    """All batches that a poll gives."""
    batches: list[Batch] = []
    while (given := (yield from until_given(polling))) is not None:
        batches += given.item
    return batches
