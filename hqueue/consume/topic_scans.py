"""Which parts of the log hold the messages of a topic that has an owner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hqueue.consume.scan import Scan
from hqueue.errors import InvalidInputError, NoTopicPersistenceInfoError
from hqueue.log.steps import Work
from hqueue.metadata.managers import LogRange, RangesOf
from hqueue.position import Position
from hqueue.settings.kinds import check_flag

__all__ = ["moved_since", "scans_of", "topic_scans"]


def scans_of(
    topic: str, ranges: Sequence[LogRange], start: Position | None, stop: Position | None
) -> list[tuple[int, Scan]]:
    """The scans of partitions, one after the other. Of a range that is marked it is
    only what its owner appended: not what somebody else put there under the topic's name.

    Raises:
        InvalidInputError: a moment or the topic is out of range, or `stop` lies before `start`.
    """
    wanted = Scan(start, stop, [topic])
    scans = []
    for each in ranges:
        scan = Scan(topics=[topic])
        scan.owner_epoch = each.epoch if each.marked else None
        scan.start = max(wanted.start, int(each.first))
        scan.stop = wanted.stop if each.last is None else min(wanted.stop, int(each.last) + 1)
        if scan.start < scan.stop:
            scans.append((each.partition, scan))
    return scans


def topic_scans(
    topic: str,
    ranges_of: RangesOf,
    start: Position | None,
    stop: Position | None,
    *,
    whole: bool,
) -> Work[list[tuple[int, Scan]]]:
    """The scans of `Queue.scan_topic`; `ranges_of` asks where the topic lies.

    Raises:
        As `Queue.scan_topic`.
    """
    check_flag(whole, "whole")
    if whole and stop is None:
        raise InvalidInputError(
            "whole=True needs a stop: give the position at which to stop", topic=topic
        )
    scans_of(topic, (), start, stop)  # Refuses bad input before anything is asked.
    return scans_of(topic, (yield ranges_of(topic)), start, stop)


def moved_since(
    ranges_of: RangesOf,
    known: Mapping[str, Sequence[LogRange]] | None,
) -> Callable[[str], Work[bool]]:
    """Says of a topic whether it lies elsewhere by now than was known of it."""

    def moved(topic: str) -> Work[bool]:
        try:
            return list((yield ranges_of(topic))) != list((known or {})[topic])
        except NoTopicPersistenceInfoError:
            return True

    return moved
