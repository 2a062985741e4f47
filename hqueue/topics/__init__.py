"""The client of hubs: publishes to topics with owners, with no HBase and no ZooKeeper in reach."""

from hqueue.topics.client import HubClient
from hqueue.topics.settings import HubClientSettings, HubOptions

__all__ = ["HubClient", "HubClientSettings", "HubOptions"]
