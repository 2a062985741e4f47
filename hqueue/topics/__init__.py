"""The client of hubs: topics with owners, with no HBase and no ZooKeeper in reach."""

from hqueue.topics.client import HubClient, connect_hubs
from hqueue.topics.idempotent import IdempotentPublishResult
from hqueue.topics.producer import HubProducer
from hqueue.topics.queue import HubQueue, HubScanner
from hqueue.topics.settings import HubClientSettings, HubOptions
from hqueue.topics.subscription import SubscribeMode, TopicSubscription
from hqueue.topics.topic import HubTopic

__all__ = [
    "HubClient",
    "HubClientSettings",
    "HubOptions",
    "HubProducer",
    "HubQueue",
    "HubScanner",
    "HubTopic",
    "IdempotentPublishResult",
    "SubscribeMode",
    "TopicSubscription",
    "connect_hubs",
]
