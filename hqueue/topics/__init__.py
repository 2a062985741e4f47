"""The client of hubs: topics with owners, with no HBase and no ZooKeeper in reach."""

from hqueue.topics.client import HubClient, connect_hubs
from hqueue.topics.once import PublishedOnce
from hqueue.topics.producer import HubProducer
from hqueue.topics.queue import HubQueue
from hqueue.topics.settings import HubClientSettings, HubOptions
from hqueue.topics.subscription import SubscribeMode, TopicSubscription

__all__ = [
    "HubClient",
    "HubClientSettings",
    "HubOptions",
    "HubProducer",
    "HubQueue",
    "PublishedOnce",
    "SubscribeMode",
    "TopicSubscription",
    "connect_hubs",
]
