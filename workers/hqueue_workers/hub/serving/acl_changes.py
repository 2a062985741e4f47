"""Changes a topic's ACL at its owner: in the store, and for the calls that follow."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError

from hqueue import HQueueError, Outcome, StoreUnavailableError, TopicACL
from hqueue.errors import BadVersionError, NoTopicPersistenceInfoError
from hqueue.metadata.managers import TopicPersistenceManager
from hqueue_workers.hub.keyed_locks import KeyedLocks
from hqueue_workers.hub.owning.queue_topics import QueueTopics
from hqueue_workers.hub.subscribing.subscription_sessions import SubscriptionSessions
from hqueue_workers.hub.writing.owned_topic import OwnedTopic
from hqueue_workers.node.runtime import Runtime

__all__ = ["ACLChanges"]


class ACLChanges:
    """Changes topics' ACLs, on the event loop.

    ACLs are stored in the record of the topic's ranges, which each new owner writes when it takes
    the topic over. So a hub that is no longer the owner changes nothing, and the next owner has the
    last change.

    Args:
        topics: the queue's topics that this hub owns.
        persistence: the store of ACLs.
        sessions: the sessions of attached subscriptions.
        runtime: the hub's runtime.
        bound_s: the bound on each request.
    """

    def __init__(
        self,
        topics: QueueTopics,
        persistence: TopicPersistenceManager,
        sessions: SubscriptionSessions,
        *,
        runtime: Runtime,
        bound_s: float,
    ) -> None:
        self._topics = topics
        self._persistence = persistence
        self._sessions = sessions
        self._runtime = runtime
        self._bound_s = bound_s
        self._locks = KeyedLocks()

    async def change(self, owned: OwnedTopic, given: Mapping[str, tuple[str, ...]]) -> TopicACL:
        """Change the given lists of a topic's ACL. Returns the whole ACL after the change. It holds
        for every later call, and subscribers that it no longer allows are detached.

        Raises:
            StoreUnavailableError: the ACL was not changed. Or the outcome is unknown: then the
                topic is released, and the next owner reads the stored ACL.
        """
        async with self._locks.of(owned.name):
            if not given:
                return owned.acl
            acl = dataclasses.replace(owned.acl, **given)
            try:
                await self._runtime.coordinate(lambda: self._write(owned, acl))
            except (HQueueError, FutureTimeoutError) as exc:
                if not isinstance(exc, HQueueError) or exc.outcome is not Outcome.NOT_APPLIED:
                    self._topics.abandon(owned.name)
                if isinstance(exc, HQueueError):
                    raise
                raise StoreUnavailableError(
                    "the store of the topic's record did not answer in time",
                    outcome=Outcome.UNKNOWN,
                ) from exc
            owned.acl = acl
            await self._sessions.restrict(owned)
            return acl

    def _write(self, owned: OwnedTopic, acl: TopicACL) -> None:
        found = self._persistence.read_topic_persistence_info(owned.name).result(self._bound_s)
        if found is None or not found.value.ranges or found.value.ranges[-1].epoch != owned.epoch:
            raise owned.changes_hands()
        changed = dataclasses.replace(found.value, acl=acl)
        try:
            self._persistence.write_topic_persistence_info(
                owned.name, changed, found.version
            ).result(self._bound_s)
        except (BadVersionError, NoTopicPersistenceInfoError) as exc:
            raise owned.changes_hands() from exc
