"""HQueue for asyncio: the classes of `hqueue`, with calls that are awaited.

async def main():
    async with hqueue.aio.connect() as client:
        queue = await client.queue("events")
        await queue.put(hqueue.Message("clicks", b"hello"))
        async with queue.scan() as messages:
            async for message in messages:
                print(message.id, message.topic, message.value)

Messages, IDs, errors, options and guarantees are those of `hqueue`: the same code decides which
requests go to HBase. Several event loops may use one client and its queues; a consumer, a producer,
a scanner or a subscriber belongs to one loop.
"""

from hqueue.aio.available_hubs import HubRegistration, Hubs
from hqueue.aio.client import Client, connect
from hqueue.aio.consumer import Consumer
from hqueue.aio.dead_letters import DeadLetters
from hqueue.aio.delivery import Delivery
from hqueue.aio.exactly_once import ExactlyOnceProcessor
from hqueue.aio.hub_client import HubClient, connect_hubs
from hqueue.aio.hub_producer import HubProducer
from hqueue.aio.hub_queue import HubQueue, HubScanner
from hqueue.aio.hub_topic import HubTopic
from hqueue.aio.producer import Producer
from hqueue.aio.queue import Queue
from hqueue.aio.scanner import Scanner
from hqueue.aio.share_consumer import ShareConsumer
from hqueue.aio.skipped_batches import SkippedBatches
from hqueue.aio.subscriber import Subscriber
from hqueue.aio.topic_managers import (
    OwnerElection,
    SubscriptionDataManager,
    TopicOwnershipManager,
    TopicPersistenceManager,
)
from hqueue.aio.topic_metadata import MetadataMigration, TopicMetadata
from hqueue.aio.topic_scanner import TopicScanner
from hqueue.aio.topic_subscription import TopicSubscription

__all__ = [
    "Client",
    "Consumer",
    "DeadLetters",
    "Delivery",
    "ExactlyOnceProcessor",
    "HubClient",
    "HubProducer",
    "HubQueue",
    "HubRegistration",
    "HubScanner",
    "HubTopic",
    "Hubs",
    "MetadataMigration",
    "OwnerElection",
    "Producer",
    "Queue",
    "Scanner",
    "ShareConsumer",
    "SkippedBatches",
    "Subscriber",
    "SubscriptionDataManager",
    "TopicMetadata",
    "TopicOwnershipManager",
    "TopicPersistenceManager",
    "TopicScanner",
    "TopicSubscription",
    "connect",
    "connect_hubs",
]
