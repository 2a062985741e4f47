"""The checkpoints of subscribers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from hqueue.errors import (
    CheckpointMovedError,
    InvalidInputError,
    SubscriberConnectedError,
    SubscriberNotFoundError,
    UnsupportedFormatError,
)
from hqueue.message_id import MessageID
from hqueue.metadata.delay_records import DelayRecords
from hqueue.metadata.delays import Delay
from hqueue.metadata.encoding import decode_checkpoint, encode_checkpoint
from hqueue.metadata.paths import Paths
from hqueue.metadata.ports import ANY, Change, GuardedWrite, MetadataStore, Record
from hqueue.metadata.records import Checkpoint, SubscriptionKey
from hqueue.metadata.steps import Create, Delete, Keys, OnStore, Read, Work, Write, WriteWhereAbsent
from hqueue.metadata.unanswered_calls import UnansweredCalls
from hqueue.runtime.stepwise import stepwise

__all__ = ["Checkpoints"]

LEVELS_ABOVE = 2
"""The levels of queues and of partitions. They hold no records themselves."""
DELAY_LEVELS_ABOVE = 3
"""These two, and the level of subscribers."""


class Checkpoints(OnStore):
    """The checkpoints of subscribers. Thread-safe."""

    def __init__(self, store: MetadataStore, paths: Paths) -> None:
        super().__init__(store)
        self._paths = paths

    @stepwise
    def read(self, key: SubscriptionKey) -> Work[Checkpoint | None]:
        """Read a checkpoint; None if it does not exist.

        Raises:
            UnsupportedFormatError: its record can't be read.
        """
        return (yield from self.read_many.steps([key])).get(key)

    @stepwise
    def read_many(
        self, keys: Iterable[SubscriptionKey]
    ) -> Work[Mapping[SubscriptionKey, Checkpoint]]:
        """Those of these checkpoints that exist, in a few round trips.

        Raises:
            UnsupportedFormatError: the record of one can't be read; `inspect` has the others.
        """
        found, unreadable = yield from self.inspect.steps(keys)
        for key in sorted(unreadable):
            raise unreadable[key]
        return found

    @stepwise
    def inspect(
        self, keys: Iterable[SubscriptionKey]
    ) -> Work[
        tuple[
            Mapping[SubscriptionKey, Checkpoint], Mapping[SubscriptionKey, UnsupportedFormatError]
        ]
    ]:
        """Those of these checkpoints that exist, and the errors of those that can't be read. Takes
        a few round trips. `seek` repairs unreadable ones.
        """
        wanted = {self._paths.subscriber(key): key for key in keys}
        return _decoded(wanted, (yield Read(wanted)))

    @stepwise
    def is_connected(self, key: SubscriptionKey) -> Work[bool]:
        """Whether the subscriber is connected, or its session has not ended yet."""
        path = self._paths.address(key)
        return path in (yield Read([path]))

    @stepwise
    def create(
        self, starts: Mapping[SubscriptionKey, MessageID]
    ) -> Work[Mapping[SubscriptionKey, Checkpoint]]:
        """Create checkpoints for keys that have none. Returns the present checkpoint of each key. A
        checkpoint that can't be read is left out.
        """
        wanted = {self._paths.subscriber(key): key for key in starts}
        created = yield Create(
            {path: encode_checkpoint(starts[key]) for path, key in wanted.items()}
        )
        return _decoded(wanted, created)[0]

    @stepwise
    def compare_and_set(
        self,
        key: SubscriptionKey,
        known: Checkpoint,
        next_id: MessageID,
        unanswered: UnansweredCalls | None = None,
        delays: tuple[Delay, ...] = (),
    ) -> Work[Checkpoint]:
        """Move a checkpoint ahead, if it has not changed since it was `known`.

        If the answer is lost, the result is looked up.

        Args:
            key: the subscription.
            known: the checkpoint as it was read.
            next_id: the first ID that is not yet delivered.
            unanswered: the calls from that ID on that got no answer; None if there are none.
            delays: the records of delayed messages before that ID.

        Raises:
            InvalidInputError: the checkpoint would move backwards. Only `seek` may do that.
            CheckpointMovedError: another process changed or deleted it; the caller may not move
                this checkpoint any more.
            StoreUnavailableError: the store was unavailable. The error's outcome says whether the
                change may have been made.
        """
        if next_id < known.next:
            raise InvalidInputError(
                "a checkpoint can't move back here: only a seek may do that",
                subscriber=key.subscriber,
                next=str(next_id),
            )
        path = self._paths.subscriber(key)
        change = Change(encode_checkpoint(next_id, unanswered, delays), known.revision)
        revision = (yield Write({path: change}))[path]
        if revision is None:
            raise CheckpointMovedError(
                "another program changed or deleted the checkpoint", **key._asdict()
            )
        return Checkpoint(next_id, revision, unanswered, delays)

    def delays(self, key: SubscriptionKey) -> DelayRecords:
        """The records in which a subscriber's messages wait for their time."""
        return DelayRecords(self._store, self._paths.subscriber_delays(key))

    @stepwise
    def seek(self, starts: Mapping[SubscriptionKey, MessageID]) -> Work[None]:
        """Set checkpoints of a subscriber that is not connected, backwards or forwards: each only
        if the subscriber is not connected, and all or none of as many as the store changes at once.
        That is at least 250, unless the store's own root has a name of more than 200 bytes. The
        subscriber's delayed messages in these partitions are dropped.

        Raises:
            SubscriberConnectedError: the subscriber is connected. Nothing was changed.
            SubscriberNotFoundError: there is no such checkpoint. Nothing was changed.
            StoreUnavailableError: the store was unavailable. The error's outcome says whether the
                change may have been made.
        """
        dropped = yield from self._delayed(starts)
        obstacle = yield WriteWhereAbsent(
            [
                GuardedWrite(
                    self._paths.subscriber(key), encode_checkpoint(start), self._paths.address(key)
                )
                for key, start in starts.items()
            ]
        )
        if obstacle is None:
            yield from _drop(dropped)
            return
        if obstacle.value is None:
            raise SubscriberNotFoundError(
                "there is no such subscriber", **self._facts(obstacle.key)
            )
        raise self._connected(obstacle.key)

    @stepwise
    def delete(self, keys: Collection[SubscriptionKey]) -> Work[None]:
        """Delete the checkpoints of a subscriber that is not connected, and its records of delayed
        messages there. Missing ones count as deleted.

        Raises:
            SubscriberConnectedError: the subscriber is connected.
        """
        paths = [self._paths.subscriber(key) for key in keys]
        dropped = yield from self._delayed(keys)
        left = yield Delete(dict.fromkeys(paths, ANY), LEVELS_ABOVE)
        for path in paths:
            if path in left:
                raise self._connected(path)
        yield from _drop(dropped)

    def _delayed(self, keys: Collection[SubscriptionKey]) -> Work[list[str]]:
        """The paths of the records of delayed messages of these subscriptions. Records that are
        made later are not among them: they may belong to a checkpoint that is written later.
        """
        wanted = {self._paths.subscriber_delays(key) for key in keys}
        found: list[str] = []
        for queue in sorted({key.queue for key in keys}):
            there: Sequence[str] = yield Keys(self._paths.delays_of(queue), 2)
            for path in wanted.intersection(there):
                found += yield Keys(path, 1)
        return found

    def _connected(self, path: str) -> SubscriberConnectedError:
        return SubscriberConnectedError(
            "the subscriber is connected; stop it first", **self._facts(path)
        )

    def _facts(self, path: str) -> dict[str, Any]:
        """The subscriber that a checkpoint or address belongs to."""
        key = self._paths.subscription_key(path)
        return {} if key is None else key._asdict()


def _drop(delayed: Collection[str]) -> Work[None]:
    if delayed:
        yield Delete(dict.fromkeys(delayed, ANY), DELAY_LEVELS_ABOVE)


def _decoded(
    wanted: Mapping[str, SubscriptionKey], found: Mapping[str, Record]
) -> tuple[dict[SubscriptionKey, Checkpoint], dict[SubscriptionKey, UnsupportedFormatError]]:
    """The checkpoints that could be decoded, and the errors of the others."""
    readable: dict[SubscriptionKey, Checkpoint] = {}
    unreadable: dict[SubscriptionKey, UnsupportedFormatError] = {}
    for path, key in wanted.items():
        record = found.get(path)
        if record is None:
            continue
        try:
            readable[key] = decode_checkpoint(record.value, path, record.version)
        except UnsupportedFormatError as exc:
            unreadable[key] = exc
    return readable, unreadable
