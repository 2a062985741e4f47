"""Who subscribes to what, in ZooKeeper."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping

from hqueue.errors import (
    HQueueError,
    InvalidInputError,
    SubscriberConnectedError,
    SubscriberNotFoundError,
    UnsupportedFormatError,
)
from hqueue.metadata import Presence, SubscriptionKey
from hqueue.metadata.encoding import decode_address, decode_topics, encode_address, encode_topics
from hqueue.metadata.paths import ADDRESS, TOPICS, Paths
from hqueue.metadata.registration import NodeGroup, PersistentEphemeralNodes
from hqueue.zookeeper.session import TRANSACTION_BYTES_MAX, Session
from hqueue.zookeeper.records import Leaf, below, leaves
from hqueue.zookeeper.tree_cache import TreeCache

__all__ = ["Subscriptions"]

logger = logging.getLogger(__name__)

PRESENCE_DEPTH = 4


class Subscriptions:
    """The `SubscriptionPort` on ZooKeeper. Thread-safe."""

    def __init__(self, session: Session, paths: Paths) -> None:
        self._session = session
        self._paths = paths

    def register(
        self,
        queue: str,
        subscriber: str,
        presence: Presence,
        partitions: Collection[int],
        on_failure: Callable[[HQueueError], None],
    ) -> PersistentEphemeralNodes:
        """As `SubscriptionPort.register`. The two nodes of a partition are made together."""
        if not partitions:
            raise InvalidInputError("a subscriber has at least one partition")
        address = encode_address(presence.address)
        topics = encode_topics(presence.topics, presence.delivery)
        if len(topics) > TRANSACTION_BYTES_MAX:
            raise InvalidInputError("the topics are too long", topics_bytes=len(topics))
        keys = [SubscriptionKey(queue, partition, subscriber) for partition in sorted(partitions)]

        def same_address(data: bytes) -> bool:
            try:
                return decode_address(data, "") == presence.address
            except UnsupportedFormatError:
                return False

        return PersistentEphemeralNodes(
            self._session,
            [
                NodeGroup(((self._paths.topics(key), topics), (self._paths.address(key), address)))
                for key in keys
            ],
            is_own=same_address,
            on_conflict=lambda path, data: SubscriberConnectedError(
                "another subscriber of this name is connected",
                queue=queue,
                subscriber=subscriber,
                path=path,
                record=data.decode(errors="replace"),
            ),
            on_missing=lambda path: SubscriberNotFoundError(
                "this subscriber has no checkpoint", subscriber=subscriber, path=path
            ),
            on_failure=on_failure,
        )

    def list(self, queue: str | None = None) -> Mapping[SubscriptionKey, Presence | None]:
        """As `SubscriptionPort.list`: a level of the tree in one go."""
        deadline = self._session.deadline()

        def look() -> dict[SubscriptionKey, Presence | None]:
            if queue is None:
                queues = below(self._session, [self._paths.queues], deadline)
            else:
                queues = [self._paths.queue(queue)]
            partitions = below(self._session, queues, deadline)
            subscribers = below(self._session, partitions, deadline)
            parts = below(self._session, subscribers, deadline)
            presences = self._view(leaves(self._session, parts, deadline))
            keys = [key for path in subscribers if (key := self._paths.subscription_key(path))]
            return {key: presences.get(key) for key in sorted(keys)}

        return deadline.run(look)

    def watch(self, listener: Callable[[Mapping[SubscriptionKey, Presence]], None]) -> TreeCache:
        """As `SubscriptionPort.watch`. Checkpoints lie above the cache's depth."""
        return TreeCache(
            self._session,
            self._paths.queues,
            PRESENCE_DEPTH,
            lambda found: listener(self._view(found)),
        )

    def _view(self, found: Mapping[str, Leaf]) -> dict[SubscriptionKey, Presence]:
        """A subscriber with an address is present; without a ``topics`` node it wants all
        topics.
        """
        view = {}
        for path, leaf in found.items():
            parent, _, name = path.rpartition("/")
            key = self._paths.subscription_key(parent)
            if name != ADDRESS or key is None:
                continue
            wanted = found.get(f"{parent}/{TOPICS}")
            try:
                view[key] = _presence(parent, leaf, wanted)
            except UnsupportedFormatError as exc:
                logger.warning("a subscriber is left out: %s", exc)
        return view


def _presence(path: str, address: Leaf, wanted: Leaf | None) -> Presence:
    listening = decode_address(address.data, f"{path}/{ADDRESS}")
    if wanted is None:
        return Presence(listening, revision=address.changed)
    topics, delivery = decode_topics(wanted.data, f"{path}/{TOPICS}")
    return Presence(listening, topics, delivery, max(address.changed, wanted.changed))
