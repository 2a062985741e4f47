"""Administration of subscribers: listing, adding, seeking and deleting."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from functools import partial

from hqueue.errors import (
    QueueStateError,
    SubscriberConnectedError,
    SubscriberExistsError,
    SubscriberNotFoundError,
    UnsupportedFormatError,
)
from hqueue.handle import QueueLog
from hqueue.message_id import MessageID
from hqueue.metadata import Coordination, Presence, SubscriptionKey
from hqueue.metadata.steps import OnStore, Work
from hqueue.position import LATEST, Start, as_message_id, check_start
from hqueue.push.members import connected_members, delete_members
from hqueue.push.subscription import Subscription
from hqueue.runtime.logs import Log
from hqueue.runtime.steps import Wait
from hqueue.runtime.stepwise import stepwise
from hqueue.settings.kinds import listed
from hqueue.settings.limits import PARTITIONS_MAX
from hqueue.settings.numbers import check_whole

__all__ = ["SubscriberAdministration", "SubscriberState"]

logger = Log(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class SubscriberState:
    """The state of a subscriber in one partition."""

    subscriber: str
    partition: int
    presence: Presence | None
    """The subscriber's registration; None while it is not connected."""
    checkpoint: MessageID | None
    """The first ID that is not yet delivered, according to the last checkpoint that a worker has
    written. None if its record can't be read.
    """
    lag: int | None
    """The number of messages of all topics from the checkpoint to the end of the partition. None if
    the queue or the checkpoint can't be read now.
    """
    unreadable: UnsupportedFormatError | None = None
    """The reason why the checkpoint's record can't be read; None if it can."""


class SubscriberAdministration(OnStore):
    """Administers the subscribers of queues: in the caller's thread, or in an event loop.

    Args:
        coordination: a session with the coordination service.
    """

    def __init__(self, coordination: Coordination) -> None:
        super().__init__(coordination.store)
        self._coordination = coordination

    @stepwise
    def list(self, log: QueueLog) -> Work[list[SubscriberState]]:
        """Every subscriber in every partition that it has a checkpoint in, by name and
        partition.
        """
        present = yield from self._coordination.subscriptions.list.steps(log.name)
        checkpoints, unreadable = yield from self._coordination.checkpoints.inspect.steps(present)
        states = []
        known = checkpoints.keys() | unreadable.keys()
        for key in sorted(known, key=lambda key: (key.subscriber, key.partition)):
            at = checkpoints[key].next if key in checkpoints else None
            lag = None if at is None else (yield from _lag(log, key.partition, at))
            states.append(
                SubscriberState(
                    key.subscriber, key.partition, present[key], at, lag, unreadable.get(key)
                )
            )
        return states

    @stepwise
    def add(
        self, log: QueueLog, name: str, start: Start, partitions: Collection[int] | None
    ) -> Work[None]:
        """Create a subscriber's checkpoints before it connects for the first time.

        Raises:
            SubscriberExistsError: it has one in this queue already.
        """
        starts = Subscription(name, start=start).add_partitions(
            () if partitions is None else partitions
        )
        keys = {
            SubscriptionKey(log.name, partition, name): where
            for partition, where in starts.starts(log.partitions).items()
        }
        known = yield from self._coordination.subscriptions.list.steps(log.name)
        if any(key.subscriber == name for key in known):
            raise SubscriberExistsError(
                "a subscriber of this name exists already", queue=log.name, subscriber=name
            )
        ids = yield from _ids(log, keys)
        yield from self._coordination.checkpoints.create.steps(ids)

    @stepwise
    def delete(self, queue_name: str, name: str) -> Work[None]:
        """Forget a subscriber that is not connected, with its checkpoints. The queue may be gone.

        Raises:
            SubscriberNotFoundError: no subscriber has this name.
            SubscriberConnectedError: it is connected.
        """
        keys = yield from self._keys_of(queue_name, name, None)
        present = yield from self._coordination.subscriptions.list.steps(queue_name)
        if any(present.get(key) for key in keys):
            raise _connected(queue_name, name)
        yield from self._check_no_members(queue_name, name)
        yield from self._coordination.checkpoints.delete.steps(keys)
        yield from delete_members(self._coordination, queue_name, name)

    @stepwise
    def seek(
        self, log: QueueLog, name: str, start: Start, partitions: Collection[int] | None
    ) -> Work[dict[int, MessageID]]:
        """Set the checkpoints of a subscriber that is not connected; returns them by partition.

        Raises:
            SubscriberNotFoundError: no subscriber has this name, or not in one of the partitions.
            SubscriberConnectedError: it is connected. Nothing was changed.
        """
        start = check_start(start)
        keys = yield from self._keys_of(log.name, name, partitions)
        ids = yield from _ids(log, dict.fromkeys(keys, start))
        yield from self._check_no_members(log.name, name)
        yield from self._coordination.checkpoints.seek.steps(ids)
        return {key.partition: at for key, at in ids.items()}

    @stepwise
    def members(self, queue_name: str, name: str) -> Work[Collection[str]]:
        """The keys of the processes that share a subscriber's partitions, as far as they are
        connected, or seem to be.
        """
        return (yield from connected_members(self._coordination, queue_name, name))

    @stepwise
    def create_checkpoints(
        self, log: QueueLog, starts: Mapping[SubscriptionKey, Start], *, reset: bool
    ) -> Work[None]:
        """Create the checkpoints that don't exist; with `reset` also set those that do. One that
        can't be read is set by `reset` alone; without it that partition is not delivered.

        Raises:
            SubscriberConnectedError: with `reset`, that the subscriber is connected.
        """
        checkpoints = self._coordination.checkpoints
        found, unreadable = yield from checkpoints.inspect.steps(starts)
        existing = found.keys() | unreadable.keys()
        for key in sorted(unreadable):
            if not reset:
                logger.error(
                    "a partition is not delivered, because its checkpoint can't be read; seek the "
                    "subscriber to a position: %s",
                    unreadable[key],
                )
        wanted = {k: start for k, start in starts.items() if reset or k not in existing}
        ids = yield from _ids(log, wanted)
        yield from checkpoints.create.steps({k: at for k, at in ids.items() if k not in existing})
        moved = {k: at for k, at in ids.items() if k in existing}
        if moved:
            for name in {key.subscriber for key in moved}:
                yield from self._check_no_members(log.name, name)
            yield from checkpoints.seek.steps(moved)

    def _check_no_members(self, queue_name: str, name: str) -> Work[None]:
        """See that none of those that share partitions is there: for a moment of a hand-over nobody
        is present in a partition.

        Raises:
            SubscriberConnectedError: one is.
        """
        if (yield from connected_members(self._coordination, queue_name, name)):
            raise _connected(queue_name, name)

    def _keys_of(
        self, queue_name: str, name: str, partitions: Collection[int] | None
    ) -> Work[Sequence[SubscriptionKey]]:
        """A subscriber's keys: all it has, or those of some partitions, which it must have."""
        known = yield from self._coordination.subscriptions.list.steps(queue_name)
        keys = [key for key in known if key.subscriber == name]
        if partitions is not None:
            numbers = {
                check_whole(each, 0, PARTITIONS_MAX - 1, option="partition")
                for each in listed(partitions, "partitions")
            }
            chosen = [key for key in keys if key.partition in numbers]
            keys = chosen if len(chosen) == len(numbers) else []
        if not keys:
            raise SubscriberNotFoundError(
                "there is no such subscriber; the queue's name comes first, then the subscriber's",
                queue=queue_name,
                subscriber=name,
            )
        return keys


def _lag(log: QueueLog, partition: int, at: MessageID) -> Work[int | None]:
    if partition >= log.partitions:
        return None  # The queue was made again with fewer.
    positions = {partition: at}
    try:
        lags = yield Wait(
            partial(log.reader.lag, positions), partial(log.loop_reader.lag, positions)
        )
    except QueueStateError:
        return None
    messages: int = lags[partition].messages
    return messages


def _ids(
    log: QueueLog, starts: Mapping[SubscriptionKey, Start]
) -> Work[dict[SubscriptionKey, MessageID]]:
    """Where each start lies now. Nothing is asked of HBase but for the latest."""
    latest = [key.partition for key, start in starts.items() if start == LATEST]
    offsets: dict[int, MessageID] = {}
    if latest:
        found = yield Wait(
            partial(log.reader.offsets, latest), partial(log.loop_reader.offsets, latest)
        )
        offsets = {each.partition: each.end for each in found}
    return {
        key: offsets[key.partition]
        if start == LATEST
        else MessageID(0)
        if isinstance(start, str)
        else as_message_id(start)
        for key, start in starts.items()
    }


def _connected(queue_name: str, name: str) -> SubscriberConnectedError:
    return SubscriberConnectedError(
        "the subscriber is connected; stop it first", queue=queue_name, subscriber=name
    )
