"""Administers groups of both kinds: share groups here, consumer groups by means of
`hqueue.groups.administration`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from hqueue.errors import UnsupportedFormatError
from hqueue.groups.administration import (
    Group,
    GroupAdministration,
    chosen_partitions,
    new_writer,
)
from hqueue.groups.descriptions import GroupDescription, GroupPartition, SharedMessages
from hqueue.groups.kinds import SHARE
from hqueue.groups.positions import start_positions
from hqueue.log.lag import PartitionLag
from hqueue.message_id import MessageID
from hqueue.metadata import PartitionKey
from hqueue.metadata.ports import ANY, Change, Record, Version
from hqueue.metadata.steps import Create, Delete, Keys, List, Read, Work, Write
from hqueue.position import Start, check_start
from hqueue.runtime.stepwise import stepwise
from hqueue.settings.attributes import check_queue_name
from hqueue.sharing.window import Fate, Span, Window
from hqueue.sharing.window_record import decode_window, encode_window

__all__ = ["AnyGroupAdministration"]

TRIES_MAX = 10
"""How often a reset tries to write records that consumers change meanwhile."""


class AnyGroupAdministration(GroupAdministration):
    """Administers consumer groups and share groups: in the caller's thread, or in an event loop."""

    @stepwise
    def describe(self, name: str, queue: str | None = None) -> Work[GroupDescription]:
        group = Group(self._cluster, self._store, name)
        if (yield from group.kinds.kind.steps()) != SHARE:
            return (yield from super().describe.steps(name, queue))
        if queue is not None:
            queue = check_queue_name(queue)
        everyone = yield from group.members.everyone.steps()
        members = {consumer: dict(streams) for consumer, streams in everyone.items()}
        records = _by_key(group, (yield List(group.paths.shares, 2)))
        read = {
            key: _decoded(record.value, group.paths.share(key))
            for key, record in sorted(records.items())
            if queue in (None, key.queue)
        }
        windows = {key: each for key, each in read.items() if isinstance(each, Window)}
        looks = yield from self._looks(windows)
        partitions = [_described(key, each, looks.get(key)) for key, each in read.items()]
        return GroupDescription(name, members, tuple(partitions), SHARE)

    @stepwise
    def reset(
        self, name: str, queue: str, start: Start, partitions: Collection[int] | None
    ) -> Work[dict[int, MessageID]]:
        group = Group(self._cluster, self._store, name)
        if (yield from group.kinds.kind.steps()) != SHARE:
            return (yield from super().reset.steps(name, queue, start, partitions))
        log = yield from self._cluster.log.steps(queue)
        check_start(start)
        numbers = chosen_partitions(log, partitions)
        yield from group.check_inactive(log.name)
        found = yield from start_positions(log, start, numbers)
        begins = {PartitionKey(log.name, number): at.next for number, at in found.items()}
        left = dict(begins)
        writer = new_writer()
        for _ in range(TRIES_MAX):
            paths = {group.paths.share(key): key for key in left}
            values = {
                path: encode_window(Window(int(left[key])), f"{writer}/reset")
                for path, key in paths.items()
            }
            delayed = yield from self._delayed(paths)
            known = yield Read(paths)
            yield from group.check_inactive(log.name, unknown=len(left) < len(begins))
            known = {**(yield Create({p: v for p, v in values.items() if p not in known})), **known}
            changes = {path: Change(values[path], known[path].version) for path in paths}
            written: Mapping[str, Version | None] = yield Write(changes)
            yield Delete(dict.fromkeys(delayed, ANY))
            for path, version in written.items():
                if version is not None:
                    del left[paths[path]]
            if not left:
                return {key.partition: begins[key] for key in sorted(begins)}
        raise group.active(log.name, unknown=len(left) < len(begins))

    @stepwise
    def delete(self, name: str, queue: str | None) -> Work[None]:
        group = Group(self._cluster, self._store, name)
        if (yield from group.kinds.kind.steps()) != SHARE:
            yield from super().delete.steps(name, queue)
            return
        queue = None if queue is None else check_queue_name(queue)
        paths = group.paths
        below, depth = (paths.shares, 2) if queue is None else (paths.shares_of(queue), 1)
        records: Mapping[str, Record] = yield List(below, depth)
        yield from group.check_inactive(queue)
        if not records:
            raise group.not_found(queue)
        yield Delete(dict.fromkeys((yield from self._delayed(records)), ANY))
        versions = {path: record.version for path, record in records.items()}
        left: Collection[str] = yield Delete(versions, levels_above=1)
        if left:
            raise group.active(queue, unknown=len(left) < len(versions))
        if queue is None or not (yield Keys(paths.shares, 2)):
            yield from group.delete_empty_nodes()

    def _delayed(self, paths: Collection[str]) -> Work[list[str]]:
        """The paths of the records of delays below these windows' records."""
        found: list[str] = []
        for path in paths:
            found += yield Keys(path, 1)
        return found

    def _looks(self, windows: Mapping[PartitionKey, Window]) -> Work[dict[PartitionKey, _Look]]:
        """Where these windows stand in their logs. Queues that are deleted or disabled are left
        out.
        """
        ends = {key: MessageID.from_int(window.end) for key, window in windows.items()}
        behind = yield from self._lags(ends)
        begins = {
            key: MessageID.from_int(
                min(each.begin for each in windows[key].each if not each.is_done)
            )
            for key in behind
            if windows[key].unfinished
        }
        first = yield from self._lags(begins)
        taken = {key: _acquired(windows[key]) for key in behind}
        oldest = yield from self._lags(
            {key: MessageID.from_int(spans[0].begin) for key, spans in taken.items() if spans}
        )
        return {
            key: _Look(
                first.get(key, behind[key]),
                behind[key].messages,
                oldest[key].age_ms if key in oldest else 0,
            )
            for key in behind
        }


class _Look(NamedTuple):
    """Where a window stands in its log."""

    lag: PartitionLag
    """The lag from the first unfinished message on."""
    behind: int
    """How many messages of the log no consumer has had."""
    acquired_age_ms: int


def _by_key(group: Group, records: Mapping[str, Record]) -> dict[PartitionKey, Record]:
    keys = {path: group.paths.partition_key(path) for path in records}
    return {key: records[path] for path, key in keys.items() if key is not None}


def _decoded(value: bytes, path: str) -> Window | UnsupportedFormatError:
    try:
        return decode_window(value, path)
    except UnsupportedFormatError as exc:
        return exc


def _acquired(window: Window) -> Sequence[Span]:
    taken = (span for span in window.each if span.mark.fate is Fate.ACQUIRED)
    return sorted(taken, key=lambda span: span.begin)


def _described(
    key: PartitionKey, read: Window | UnsupportedFormatError, look: _Look | None
) -> GroupPartition:
    if isinstance(read, UnsupportedFormatError):
        return GroupPartition(*key, owner=None, committed=None, lag=None, unreadable=read)
    acquired = _acquired(read)
    holders: Counter[str] = Counter()
    for span in acquired:
        holders[span.mark.holder] += span.messages
    shared = SharedMessages(
        acquired=read.acquired,
        acquired_age_ms=0 if look is None else look.acquired_age_ms,
        redelivered=sum(span.messages for span in acquired if span.mark.deliveries > 1),
        released=read.unfinished - read.acquired,
        holders=dict(sorted(holders.items())),
        delayed=sum(each.messages for each in read.delays),
        next_due_ms=min((each.due_ms for each in read.delays), default=None),
        rejected=read.dead_letters.rejected,
        exhausted=read.dead_letters.exhausted,
    )
    lag = None
    if look is not None:
        messages = read.unfinished + look.behind
        age_ms = look.lag.age_ms if messages else 0
        lag = PartitionLag(messages, age_ms, look.lag.passed)
    committed = MessageID.from_int(read.begin)
    return GroupPartition(*key, owner=None, committed=committed, lag=lag, shared=shared)
