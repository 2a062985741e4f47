"""Administration of subscribers: listing, adding, seeking and deleting."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

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
from hqueue.position import LATEST, Start, as_message_id, check_start
from hqueue.push.members import connected_members, delete_members
from hqueue.push.subscription import Subscription
from hqueue.runtime.logs import Log
from hqueue.settings.kinds import listed
from hqueue.settings.limits import PARTITIONS_MAX
from hqueue.settings.numbers import check_whole

__all__ = [
    "SubscriberState",
    "add_subscriber",
    "create_checkpoints",
    "delete_subscriber",
    "list_subscribers",
    "seek_subscriber",
]

logger = Log(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class SubscriberState:
    """A subscriber in one partition, as it is now."""

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


def list_subscribers(log: QueueLog, coordination: Coordination) -> list[SubscriberState]:
    """Every subscriber in every partition that it has a checkpoint in, by name and partition."""
    present = coordination.subscriptions.list(log.name)
    checkpoints, unreadable = coordination.checkpoints.inspect(present)
    states = []
    known = checkpoints.keys() | unreadable.keys()
    for key in sorted(known, key=lambda key: (key.subscriber, key.partition)):
        at = checkpoints[key].next if key in checkpoints else None
        lag = None if at is None else _lag(log, key.partition, at)
        states.append(
            SubscriberState(
                key.subscriber, key.partition, present[key], at, lag, unreadable.get(key)
            )
        )
    return states


def _lag(log: QueueLog, partition: int, at: MessageID) -> int | None:
    if partition >= log.partitions:
        return None  # The queue was made again with fewer.
    try:
        return log.reader.lag({partition: at})[partition].messages
    except QueueStateError:
        return None


def add_subscriber(
    log: QueueLog,
    coordination: Coordination,
    name: str,
    start: Start,
    partitions: Collection[int] | None,
) -> None:
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
    if any(key.subscriber == name for key in coordination.subscriptions.list(log.name)):
        raise SubscriberExistsError(
            "a subscriber of this name exists already", queue=log.name, subscriber=name
        )
    coordination.checkpoints.create(_ids(log, keys))


def delete_subscriber(queue_name: str, coordination: Coordination, name: str) -> None:
    """Delete a subscriber that is not connected, with its checkpoints. The queue may be gone.

    Raises:
        SubscriberNotFoundError: no subscriber has this name.
        SubscriberConnectedError: it is connected.
    """
    keys = _keys_of(queue_name, coordination, name, None)
    present = coordination.subscriptions.list(queue_name)
    if any(present.get(key) for key in keys):
        raise _connected(queue_name, name)
    _check_no_members(queue_name, coordination, name)
    coordination.checkpoints.delete(keys)
    delete_members(coordination, queue_name, name)


def seek_subscriber(
    log: QueueLog,
    coordination: Coordination,
    name: str,
    start: Start,
    partitions: Collection[int] | None,
) -> dict[int, MessageID]:
    """Set the checkpoints of a subscriber that is not connected; returns them by partition.

    Raises:
        SubscriberNotFoundError: no subscriber has this name, or not in one of the partitions.
        SubscriberConnectedError: it is connected. Nothing was changed.
    """
    start = check_start(start)
    keys = _keys_of(log.name, coordination, name, partitions)
    ids = _ids(log, dict.fromkeys(keys, start))
    _check_no_members(log.name, coordination, name)
    coordination.checkpoints.seek(ids)
    return {key.partition: at for key, at in ids.items()}


def create_checkpoints(
    log: QueueLog,
    coordination: Coordination,
    starts: Mapping[SubscriptionKey, Start],
    *,
    reset: bool,
) -> None:
    """Create the checkpoints that don't exist; with `reset` also set those that do. One that can't
    be read is set by `reset` alone; without it that partition is not delivered.

    Raises:
        SubscriberConnectedError: with `reset`, that the subscriber is connected.
    """
    found, unreadable = coordination.checkpoints.inspect(starts)
    existing = found.keys() | unreadable.keys()
    for key in sorted(unreadable):
        if not reset:
            logger.error(
                "a partition is not delivered, because its checkpoint can't be read; seek the "
                "subscriber to a position: %s",
                unreadable[key],
            )
    ids = _ids(log, {k: start for k, start in starts.items() if reset or k not in existing})
    coordination.checkpoints.create({k: at for k, at in ids.items() if k not in existing})
    moved = {k: at for k, at in ids.items() if k in existing}
    if moved:
        for name in {key.subscriber for key in moved}:
            _check_no_members(log.name, coordination, name)
        coordination.checkpoints.seek(moved)


def _ids(
    log: QueueLog, starts: Mapping[SubscriptionKey, Start]
) -> dict[SubscriptionKey, MessageID]:
    """Where each start lies now. Nothing is asked of HBase but for the latest."""
    latest = [key.partition for key, start in starts.items() if start == LATEST]
    offsets = {each.partition: each.end for each in log.reader.offsets(latest)} if latest else {}
    return {
        key: offsets[key.partition]
        if start == LATEST
        else MessageID(0)
        if isinstance(start, str)
        else as_message_id(start)
        for key, start in starts.items()
    }


def _check_no_members(queue_name: str, coordination: Coordination, name: str) -> None:
    """See that none of those that share partitions is there: for a moment of a hand-over nobody is
    present in a partition.

    Raises:
        SubscriberConnectedError: one is.
    """
    if connected_members(coordination, queue_name, name):
        raise _connected(queue_name, name)


def _connected(queue_name: str, name: str) -> SubscriberConnectedError:
    return SubscriberConnectedError(
        "the subscriber is connected; stop it first", queue=queue_name, subscriber=name
    )


def _keys_of(
    queue_name: str,
    coordination: Coordination,
    name: str,
    partitions: Collection[int] | None,
) -> list[SubscriptionKey]:
    """A subscriber's keys: all it has, or those of some partitions, which it must have."""
    keys = [key for key in coordination.subscriptions.list(queue_name) if key.subscriber == name]
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
