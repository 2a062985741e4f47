"""A queue that a hub serves."""

from __future__ import annotations

import dataclasses

from hqueue.engine import OpenLog
from hqueue.metadata.managers import HubRegistration, TopicMetadata
from hqueue_workers.hub.owning.available import AvailableHubs
from hqueue_workers.hub.owning.partitions import HubPartitions
from hqueue_workers.hub.owning.queue_topics import QueueTopics
from hqueue_workers.hub.owning.shedding import Shedding
from hqueue_workers.hub.serving.managing import Managing
from hqueue_workers.hub.serving.publishing import Publishing
from hqueue_workers.hub.subscribing.lag_meter import SubscriptionLagMeter
from hqueue_workers.hub.subscribing.subscriptions import Subscriptions
from hqueue_workers.node.runtime import Runtime

__all__ = ["HostedQueue"]

CLOSE_S = 1.0


@dataclasses.dataclass
class HostedQueue:
    """The objects with which a hub serves one queue."""

    log: OpenLog
    topics: QueueTopics
    publishing: Publishing
    managing: Managing
    metadata: TopicMetadata
    partitions: HubPartitions
    shedding: Shedding
    subscriptions: Subscriptions
    available: AvailableHubs
    lags: SubscriptionLagMeter
    runtime: Runtime
    registration: HubRegistration | None = None

    def start(self) -> None:
        """Start delivery to subscriptions. For the event loop."""
        self.subscriptions.sessions.start(self.topics)
        self.runtime.start(self.lags.run())

    def close(self) -> None:
        """Close the queue. Messages that wait are appended within `CLOSE_S`. Not for the event
        loop.
        """
        if self.registration is not None:
            self.registration.close()
        self.publishing.close()
        self.topics.committers.close(CLOSE_S)
        self.partitions.close()
        self.available.close()
        self.metadata.close()
