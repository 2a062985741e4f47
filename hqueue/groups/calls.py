"""The calls of a consumer that concern positions, commits and rejected messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from hqueue.dead_letters.of_groups import GroupDeadLetters, Rejection, check_reason
from hqueue.errors import CommitFailedError, InvalidInputError, Outcome
from hqueue.groups.committer import OnCommit
from hqueue.groups.consumption import Consumption
from hqueue.groups.offsets import UNSET
from hqueue.groups.offsets import Position as GroupPosition
from hqueue.groups.positions import BEGINNING, unreadable_offset
from hqueue.log.lag import PartitionLag
from hqueue.message import ConsumedMessage, ReceivedMessage
from hqueue.message_id import MessageID
from hqueue.metadata import PartitionKey
from hqueue.position import Position, as_message_id, is_time
from hqueue.runtime.steps import Wait, Work
from hqueue.runtime.stepwise import Stepwise, stepwise
from hqueue.settings.attributes import check_queue_name
from hqueue.settings.kinds import listed
from hqueue.settings.numbers import check_whole

__all__ = ["ConsumerCalls", "Partition", "ToCommit"]

Partition = PartitionKey | tuple[str, int]
"""A partition of a queue: the queue's name, and a number."""

# A mapping's keys are of just one type: so what `committed` returns needs a type of its own here.
ToCommit = (
    ReceivedMessage
    | Mapping[Partition, MessageID]
    | Mapping[PartitionKey, MessageID]
    | Mapping[tuple[str, int], MessageID]
    | None
)
"""The positions to commit: a message, for the position after it; for each partition the first ID
that is not consumed; or None, for the position after all messages that were returned."""


class ConsumerCalls(Stepwise):
    """The calls of `hqueue.Consumer` and of `hqueue.aio.Consumer` that take a program's own
    arguments, as steps. Their descriptions are there.

    Args:
        consumption: the consumer's partitions and positions.
        group: the group's name.
    """

    def __init__(self, consumption: Consumption, group: str | None) -> None:
        self._consumption = consumption
        self._group = group

    @stepwise
    def assign(self, partitions: Iterable[Partition]) -> Work[Any, None]:
        keys = _as_keys(partitions)
        for key in keys:
            log = yield from self._consumption.log(*key)
            check_whole(key.partition, 0, log.partitions - 1, option="partition")
        yield from self._consumption.assign.steps(keys)

    def assignment(self) -> set[PartitionKey]:
        self._consumption.process.check()
        return self._consumption.positions.keys()

    def subscription(self) -> set[str]:
        self._consumption.process.check()
        found = self._consumption.membership.found
        return set() if found is None else set(found.selected)

    def paused(self) -> set[PartitionKey]:
        self._consumption.process.check()
        return set(self._consumption.paused)

    @stepwise
    def position(self, partition: Partition) -> Work[Any, MessageID]:
        (key,) = self._chosen([partition])
        return (yield from self._consumption.resolve(key)).next

    @stepwise
    def seek(self, partition: Partition, to: Position) -> Work[Any, None]:
        (key,) = self._chosen([partition])
        at, positions = as_message_id(to), self._consumption.positions
        find = positions.since if is_time(to) else positions.check_position
        self._consumption.seek(key, (yield from find(key, at)))

    @stepwise
    def seek_to_beginning(self, *partitions: Partition) -> Work[Any, None]:
        for key in self._chosen(partitions):
            self._consumption.seek(key, BEGINNING)
        return
        yield

    @stepwise
    def seek_to_end(self, *partitions: Partition) -> Work[Any, None]:
        for key in self._chosen(partitions):
            self._consumption.seek(key, (yield from self._consumption.positions.end(key)))

    def pause(self, *partitions: Partition) -> None:
        self._consumption.pause(self._chosen(partitions))

    def resume(self, *partitions: Partition) -> None:
        self._consumption.resume(self._chosen(partitions))

    @stepwise
    def commit(self, positions: ToCommit) -> Work[Any, None]:
        yield from self._consumption.commit.steps(partial(self._to_commit, positions))

    @stepwise
    def commit_later(self, positions: ToCommit, on_commit: OnCommit | None) -> Work[Any, None]:
        decide = partial(self._to_commit, positions)
        yield from self._consumption.commit_later.steps(decide, on_commit)

    @stepwise
    def reject(self, message: ConsumedMessage, reason: str) -> Work[Any, None]:
        if self._group is None:
            raise InvalidInputError("a consumer without a group can't reject: give it a group")
        if not isinstance(message, ConsumedMessage):
            raise InvalidInputError(
                "reject takes a message that this consumer returned", type=type(message).__name__
            )
        check_reason(reason)
        key = PartitionKey(message.queue, message.partition)
        positions = self._consumption.positions
        if positions.gave_up(key):
            raise CommitFailedError(
                "the consumer lost this partition, so the message was not put into the dead "
                "letters: another consumer of the group gets it",
                outcome=Outcome.NOT_APPLIED,
                partitions=[key],
                unknown=[],
                committed=[],
            )
        positions.check([key])
        log = yield from self._consumption.log(*key)
        letters = GroupDeadLetters(log, self._group)
        yield from letters.put.steps([Rejection(message, reason, deliveries=1)])

    @stepwise
    def committed(
        self, partitions: Iterable[Partition] | None
    ) -> Work[Any, dict[PartitionKey, MessageID]]:
        offsets = self._consumption.membership.offsets()
        if offsets is None:
            raise InvalidInputError("a consumer without a group can't commit: give it a group")
        keys = self.assignment() if partitions is None else _as_keys(partitions)
        found = yield offsets.read.asked(keys)
        committed = {
            key: offset.position.next
            for key, offset in found.items()
            if offset.position.next != UNSET.next
        }
        for key in sorted(found):
            if (unreadable := found[key].unreadable) is not None:
                raise unreadable_offset(key, unreadable, committed=committed)
        return committed

    @stepwise
    def lag(self, *partitions: Partition) -> Work[Any, dict[PartitionKey, PartitionLag]]:
        positions: dict[str, dict[int, MessageID]] = {}
        chosen = self._chosen(partitions)
        if not partitions:
            chosen -= self._consumption.positions.unreadable
        for key in chosen:
            at = yield from self._consumption.resolve(key)
            positions.setdefault(key.queue, {})[key.partition] = at.next
        lags: dict[PartitionKey, PartitionLag] = {}
        for queue, each in positions.items():
            reader = (yield from self._consumption.log(queue, max(each))).reader
            found = yield Wait(partial(reader.lag, each), partial(reader.in_loop.lag, each))
            lags |= {PartitionKey(queue, number): lag for number, lag in found.items()}
        return lags

    def _to_commit(self, positions: ToCommit) -> Work[Any, dict[PartitionKey, GroupPosition]]:
        if self._group is None:
            raise InvalidInputError("a consumer without a group can't commit: give it a group")
        known = self._consumption.positions
        self._consumption.settle()
        if positions is None:
            return known.moved(known.keys())
        if isinstance(positions, ConsumedMessage):
            key = PartitionKey(positions.queue, positions.partition)
            positions = {key: positions.id.next()}
        if not isinstance(positions, Mapping):
            raise InvalidInputError(
                "commit takes one of this consumer's messages, or a mapping from partitions to "
                "MessageIDs",
                type=type(positions).__name__,
            )
        moves: dict[PartitionKey, GroupPosition] = {}
        for partition, position in positions.items():
            if not isinstance(position, MessageID):
                raise InvalidInputError("a position must be a MessageID", position=position)
            key = _as_key(partition)
            if known.gave_up(key):
                moves[key] = GroupPosition(position)  # Refused when the others are committed.
                continue
            known.check([key])
            moves[key] = yield from known.check_position(key, position)
        return moves

    def _chosen(self, partitions: Iterable[Partition]) -> set[PartitionKey]:
        """These, after a check that it has each of them; or all that it has."""
        self._consumption.settle()
        keys = {_as_key(each) for each in partitions}
        self._consumption.positions.check(keys)
        return keys or self.assignment()


def _as_keys(partitions: Iterable[Partition]) -> set[PartitionKey]:
    return {_as_key(each) for each in listed(partitions, "partitions")}


def _as_key(partition: Partition) -> PartitionKey:
    try:
        queue, number = partition
    except (TypeError, ValueError) as exc:
        raise InvalidInputError(
            "a partition must be a pair of a queue's name and a partition number",
            partition=partition,
        ) from exc
    return PartitionKey(check_queue_name(queue), check_whole(number, 0, 32_766, option="partition"))
