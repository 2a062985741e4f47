"""What a hub asks and changes on its way through the flow: the records of topics and owners."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Mapping

from hqueue import Address, StoreUnavailableError
from hqueue.errors import BadVersionError, NoTopicOwnerInfoError
from hqueue.metadata.managers import HubInfo, TopicMetadata, TopicPersistenceInfo, Verdict
from hqueue.metadata.ports import NEW
from hqueue_workers.hub.flow import Known

__all__ = ["Choose", "TopicRecords"]

Choose = Callable[[Mapping[Address, float], random.Random], Address]
"""Chooses a hub, given the loads of those that are available."""

logger = logging.getLogger(__name__)


class TopicRecords:
    """The records of a queue's topics, as a hub sees them. Thread-safe.

    Args:
        queue: the queue.
        me: this hub.
        metadata: of the queue's topics.
        bound_s: of each thing that is asked.
        rng: decides between hubs.
        choose: chooses one for a topic without an owner.
    """

    def __init__(
        self,
        queue: str,
        me: HubInfo,
        metadata: TopicMetadata,
        *,
        bound_s: float,
        rng: random.Random,
        choose: Choose,
    ) -> None:
        self._queue = queue
        self._me = me
        self._metadata = metadata
        self._bound_s = bound_s
        self._random = rng
        self._choose = choose
        self._lock = threading.Lock()

    def look(self, topic: str) -> Known:
        """Read what is known of a topic."""
        info = self._metadata.persistence.read_topic_persistence_info(topic)
        owner = self._metadata.ownership.read_owner_info(topic).result(self._bound_s)
        exists = info.result(self._bound_s) is not None
        if owner is None or owner.value.address == self._me.address:
            return Known(exists, None if owner is None else self._me.address)
        # A record that stays when its hub is gone counts no more then; one that goes with it is
        # not judged by others: it can't be replaced before.
        available = self._metadata.store == "zookeeper" or self._metadata.hubs.is_available(
            owner.value
        )
        return Known(exists, owner.value.address if available else None)

    def create(self, topic: str) -> None:
        """Create a topic; that another was quicker is as good."""
        try:
            self._metadata.persistence.write_topic_persistence_info(
                topic, TopicPersistenceInfo(), NEW
            ).result(self._bound_s)
        except BadVersionError:
            return
        logger.debug("created topic %r of %s", topic, self._queue)

    def choose(self) -> Address:
        """The hub that a topic without an owner goes to."""
        hubs = self._metadata.hubs.list()
        if not hubs:
            raise StoreUnavailableError("no hub is available", queue=self._queue)
        with self._lock:
            return self._choose({at: each.load for at, each in hubs.items()}, self._random)

    def acquire(self, topic: str) -> Verdict:
        """Try to become a topic's owner."""
        election = self._metadata.election
        verdict = election.acquire(topic, self._me).result(self._bound_s)
        if verdict.won or verdict.owner.address != self._me.address:
            return verdict
        # Of a process that listened here before, and is no more: its record is still there.
        try:
            self._metadata.ownership.delete_owner_info(topic, verdict.version).result(self._bound_s)
        except (BadVersionError, NoTopicOwnerInfoError):
            logger.debug("the record of an earlier process went by itself")
        return election.acquire(topic, self._me).result(self._bound_s)
