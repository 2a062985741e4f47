"""The records of topics and owners that a hub reads and changes on its way through the flow."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple

from hqueue import Address, StoreUnavailableError
from hqueue.errors import BadVersionError, NoTopicOwnerInfoError, Outcome
from hqueue.metadata.managers import (
    AvailableHub,
    HubInfo,
    TopicMetadata,
    TopicPersistenceInfo,
    Verdict,
    Versioned,
)
from hqueue.metadata.ports import NEW, Version
from hqueue.runtime.logs import Log
from hqueue_workers.hub.owning.flow import Known

__all__ = ["Choose", "Looked", "TopicRecords"]

Choose = Callable[[Mapping[Address, float], random.Random], Address]
"""Chooses a hub, given the loads of those that are available."""

logger = Log(__name__)


class Looked(NamedTuple):
    """What was read of a topic. It is enough to change the topic's records if they are still the
    same.
    """

    known: Known
    info: Versioned[TopicPersistenceInfo] | None
    """Where it lies, if it exists."""
    instead_of: Version | None
    """The version of an owner's record that counts no more; `NEW` where there is none; None where
    there is one that counts, or is this hub's."""


class TopicRecords:
    """The records of a queue's topics, as a hub sees them. Thread-safe.

    Args:
        queue: the queue.
        me: this hub.
        metadata: the metadata of the queue's topics.
        hubs: the available hubs, as last seen.
        bound_s: the bound on each request.
        rng: chooses between hubs at random.
        choose: chooses a hub for a topic without an owner.
    """

    def __init__(
        self,
        queue: str,
        me: HubInfo,
        metadata: TopicMetadata,
        *,
        hubs: Callable[[], Mapping[Address, AvailableHub]],
        bound_s: float,
        rng: random.Random,
        choose: Choose,
    ) -> None:
        self._queue = queue
        self._me = me
        self._metadata = metadata
        self._hubs = hubs
        self._bound_s = bound_s
        self._random = rng
        self._choose = choose
        self._lock = threading.Lock()

    def look(self, topic: str) -> Looked:
        """Read what is known of a topic."""
        asked = self._metadata.persistence.read_topic_persistence_info(topic)
        owner = self._metadata.ownership.read_owner_info(topic).result(self._bound_s)
        info = asked.result(self._bound_s)
        exists = info is not None
        if owner is None:
            return Looked(Known(exists), info, NEW)
        if owner.value.address == self._me.address:
            return Looked(Known(exists, self._me.address), info, None)
        # A record that stays when its hub is gone counts no more then; one that goes with it is
        # not judged by others: it can't be replaced before.
        if self._metadata.store == "zookeeper" or self._is_available(owner.value):
            return Looked(Known(exists, owner.value.address), info, None)
        return Looked(Known(exists), info, owner.version)

    def create(self, topic: str, before: Looked) -> Looked:
        """Create a topic. It is not an error if another hub was faster.

        Args:
            topic: the topic.
            before: what was read when the topic did not exist.
        """
        info = TopicPersistenceInfo()
        try:
            version = self._metadata.persistence.write_topic_persistence_info(
                topic, info, NEW
            ).result(self._bound_s)
        except BadVersionError:
            return self.look(topic)
        logger.debug("created topic %r of %s", topic, self._queue)
        return Looked(Known(True, before.known.owner), Versioned(info, version), before.instead_of)

    def choose(self) -> Address:
        """The hub for a topic without an owner."""
        hubs = self._hubs()
        if not hubs:
            raise StoreUnavailableError(
                "no hub is available", outcome=Outcome.NOT_APPLIED, queue=self._queue
            )
        with self._lock:
            return self._choose({at: each.load for at, each in hubs.items()}, self._random)

    def acquire(self, topic: str, instead_of: Version | None = None) -> Verdict:
        """Try to become a topic's owner, in place of the owner that was read, or of the one that is
        there now.
        """
        election = self._metadata.election
        verdict = election.acquire(topic, self._me, instead_of).result(self._bound_s)
        if verdict.won or verdict.owner.address != self._me.address:
            return verdict
        # Of a process that listened here before, and is no more: its record is still there.
        try:
            self._metadata.ownership.delete_owner_info(topic, verdict.version).result(self._bound_s)
        except (BadVersionError, NoTopicOwnerInfoError):
            logger.debug("the owner record of an earlier process was already deleted")
        return election.acquire(topic, self._me).result(self._bound_s)

    def _is_available(self, hub: HubInfo) -> bool:
        return self._metadata.election.is_available(hub).result(self._bound_s)
