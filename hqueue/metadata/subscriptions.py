"""The registrations of subscribers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

from hqueue.errors import (
    HQueueError,
    InvalidInputError,
    SubscriberConnectedError,
    SubscriberNotFoundError,
    UnsupportedFormatError,
)
from hqueue.metadata.directory import Directory
from hqueue.metadata.encoding import decode_address, decode_topics, encode_address, encode_topics
from hqueue.metadata.own_keys import OwnKeys
from hqueue.metadata.paths import ADDRESS, TOPICS, Paths
from hqueue.metadata.ports import (
    VALUE_BYTES_MAX,
    Attempt,
    Group,
    MetadataStore,
    Obstacle,
    Record,
    Watch,
)
from hqueue.metadata.records import Presence, SubscriptionKey
from hqueue.metadata.registration import Registration
from hqueue.metadata.steps import Keys, OnStore, PutEphemerals, Read, Release, Work
from hqueue.runtime.clock import Clock
from hqueue.runtime.stepwise import stepwise
from hqueue.settings.addresses import Address

__all__ = ["PresenceGuard", "Subscriptions"]

PRESENCE_DEPTH = 4


class Subscriptions(OnStore):
    """The subscribers of queues, and those that are connected. Thread-safe."""

    def __init__(self, store: MetadataStore, paths: Paths, clock: Clock) -> None:
        super().__init__(store, clock)
        self._paths = paths
        self._present = Directory(store, paths.queues, PRESENCE_DEPTH, self._decode, "a subscriber")

    @stepwise
    def register(
        self,
        queue: str,
        subscriber: str,
        presence: Presence,
        partitions: Collection[int],
        on_failure: Callable[[HQueueError], None],
    ) -> Work[Registration]:
        """Register a subscriber in some partitions. Their checkpoints must exist.

        A subscriber of this name that is registered at another address may have died a moment ago:
        the call waits until its session must be over. A subscriber registered at the same address
        can't be alive, since the caller listens there; its registration is replaced. All
        registrations of a partition become visible together.

        Args:
            on_failure: called if the registration can't be made again after a session was lost, for
                example because another subscriber of that name has registered.

        Raises:
            SubscriberConnectedError: another subscriber of this name stays connected.
            SubscriberNotFoundError: a checkpoint is missing.
        """
        if not partitions:
            raise InvalidInputError("a subscriber needs at least one partition")
        registration = Registration(
            self._store,
            self._groups(_keys(queue, subscriber, partitions), presence),
            is_own=partial(_is_at, presence.address),
            on_obstacle=partial(_in_the_way, queue, subscriber),
            on_failure=on_failure,
            clock=self._clock,
        )
        yield from registration.begin.steps()
        return registration

    @stepwise
    def appear(
        self, queue: str, subscriber: str, presence: Presence, partitions: Collection[int]
    ) -> Work[HQueueError | None]:
        """Register a subscriber in partitions in which no other may be registered now. The
        registration is not made again after a lost session.

        Returns:
            The error that `register` would raise, if some of it can't be registered; None if all of
            it was.

        Raises:
            InvalidInputError: the topics are too long. It is raised even if no partition is given.
        """
        groups = self._groups(_keys(queue, subscriber, partitions), presence)
        if not groups:
            return None
        attempt: Attempt = yield PutEphemerals(groups, partial(_is_at, presence.address))
        if attempt.obstacle is None:
            return None
        return _in_the_way(queue, subscriber, attempt.obstacle)

    def guard(
        self, queue: str, subscriber: str, presence: Presence, on_change: Callable[[], None]
    ) -> PresenceGuard:
        """Detect partitions in which a subscriber that has appeared is not registered any more.

        Args:
            presence: the registration with which it appeared.
            on_change: as `OwnKeys` takes it.
        """
        own = OwnKeys(self._store, on_change)

        def groups(partitions: Collection[int]) -> Mapping[int, Group]:
            keys = _keys(queue, subscriber, partitions)
            made = self._groups(keys, presence)
            return {key.partition: group for key, group in zip(keys, made, strict=True)}

        return PresenceGuard(own, groups)

    @stepwise
    def withdraw(self, queue: str, subscriber: str, partitions: Collection[int]) -> Work[None]:
        """Remove this session's registrations of a subscriber in some partitions."""
        keys = _keys(queue, subscriber, partitions)
        yield Release(
            [path for key in keys for path in (self._paths.address(key), self._paths.topics(key))]
        )

    @stepwise
    def list(self, queue: str | None = None) -> Work[Mapping[SubscriptionKey, Presence | None]]:
        """Every subscriber in every partition of a queue, or of all queues; None for one that is
        not connected. A record that can't be read is left out and logged.
        """
        above, depth = (self._paths.queues, 3) if queue is None else (self._paths.queue(queue), 2)
        subscribers: Sequence[str] = yield Keys(above, depth)
        found = yield Read([f"{path}/{name}" for path in subscribers for name in (TOPICS, ADDRESS)])
        present = self._present.view(found)
        keys = [key for path in subscribers if (key := self._paths.subscription_key(path))]
        return {key: present.get(key) for key in sorted(keys)}

    def watch(self, listener: Callable[[Mapping[SubscriptionKey, Presence]], None]) -> Watch:
        """Report the connected subscribers of all queues to a listener: the whole view, when it is
        first known and after each change.

        Changes that come together are reported once. The listener is never called twice at
        a time. While the session is suspended the last view stays valid; after that, and after it
        was lost, the view is read again. A record that can't be read is left out and logged. A
        watch costs nothing while nothing changes. Checkpoints are not read.
        """
        return self._present.watch(listener)

    def _groups(self, keys: Iterable[SubscriptionKey], presence: Presence) -> Sequence[Group]:
        """The registrations of a subscriber.

        Raises:
            InvalidInputError: the topics are too long.
        """
        address = encode_address(presence.address)
        topics = encode_topics(presence.topics, presence.delivery)
        if len(topics) > VALUE_BYTES_MAX:
            raise InvalidInputError(
                "the topics' names are too long in total: subscribe to fewer topics",
                topics_bytes=len(topics),
            )
        return [
            {self._paths.topics(key): topics, self._paths.address(key): address} for key in keys
        ]

    def _decode(
        self, path: str, found: Mapping[str, Record]
    ) -> tuple[SubscriptionKey, Presence] | None:
        """A subscriber with an address is present; without a ``topics`` record it wants all
        topics.
        """
        parent, _, name = path.rpartition("/")
        key = self._paths.subscription_key(parent)
        if name != ADDRESS or key is None:
            return None
        address = found[path]
        listening = decode_address(address.value, path)
        wanted = found.get(f"{parent}/{TOPICS}")
        if wanted is None:
            return key, Presence(listening, revision=address.changed)
        topics, delivery = decode_topics(wanted.value, f"{parent}/{TOPICS}")
        revision = max(address.changed, wanted.changed)
        return key, Presence(listening, topics, delivery, revision)


class PresenceGuard(OnStore):
    """Finds registrations of a subscriber that another client removed although their session lives.
    Made by `Subscriptions.guard`. Thread-safe.
    """

    def __init__(
        self, own: OwnKeys, groups: Callable[[Collection[int]], Mapping[int, Group]]
    ) -> None:
        super().__init__(own.store)
        self._own = own
        self._groups = groups

    @stepwise
    def lost(self, partitions: Collection[int]) -> Work[set[int]]:
        """Those of these partitions in which a part of the registration is missing. Records that
        another client overwrote are restored.

        Raises:
            HQueueError: the store can't be read now.
        """
        groups = self._groups(partitions)
        values = {key: value for group in groups.values() for key, value in group.items()}
        missing = yield from self._own.missing(values)
        return {partition for partition, group in groups.items() if not missing.isdisjoint(group)}

    def close(self) -> None:
        """Stop reporting. Never raises."""
        self._own.close()


def _keys(queue: str, subscriber: str, partitions: Collection[int]) -> Sequence[SubscriptionKey]:
    return [SubscriptionKey(queue, partition, subscriber) for partition in sorted(partitions)]


def _in_the_way(queue: str, subscriber: str, obstacle: Obstacle) -> HQueueError:
    if obstacle.value is None:
        return SubscriberNotFoundError(
            "this subscriber has no checkpoint", subscriber=subscriber, path=obstacle.key
        )
    return SubscriberConnectedError(
        "another subscriber of this name is connected: stop it, or choose another name",
        queue=queue,
        subscriber=subscriber,
        path=obstacle.key,
        record=obstacle.value.decode(errors="replace"),
    )


def _is_at(address: Address, value: bytes) -> bool:
    """Whether a subscriber with this record can only be an earlier one of the same address."""
    try:
        return decode_address(value, "") == address
    except UnsupportedFormatError:
        return False
