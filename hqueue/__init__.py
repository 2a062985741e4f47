"""A durable, ordered, partitioned message queue that lives inside HBase.

import hqueue

client = hqueue.connect()
queue = client.create_queue("events", partitions=8, ttl="1d")
queue.put(hqueue.Message("clicks", b"hello"))
for message in queue.scan():
    print(message.id, message.topic, message.value)
"""

from hqueue.client import Client
from hqueue.connecting import connect
from hqueue.consume.decode import messages_of
from hqueue.consume.fetcher import Fetch, Fetcher, Pace, fetch_once
from hqueue.consume.scanners import CombinedPartitionScanner, PartitionScanner, QueueScanner, Scan
from hqueue.errors import (
    BufferFullError,
    CheckpointMovedError,
    ClockSkewError,
    ClosedError,
    CorruptLogError,
    FencedError,
    HQueueError,
    IdempotencyKeyError,
    IdempotencyKeyReusedError,
    IdempotencyKeyTooOldError,
    InvalidInputError,
    LocalServerError,
    MessageTooLargeError,
    NotAQueueError,
    Outcome,
    QueueDisabledError,
    QueueEnabledError,
    QueueExistsError,
    QueueNotFoundError,
    QueueStateError,
    RequestRefusedError,
    SettingsError,
    StoreError,
    StoreUnavailableError,
    SubscriberConnectedError,
    SubscriberExistsError,
    SubscriberNotFoundError,
    SubscriptionStateError,
    UnsupportedFormatError,
)
from hqueue.format import Header, TopicEntry
from hqueue.log import Batch, PartitionReader
from hqueue.log.store import PartitionLocation
from hqueue.message import Message, MessageID, MessageIDs, Messages
from hqueue.metadata import DeliveryOptions
from hqueue.produce.delivery import Delivery
from hqueue.produce.producer import Producer
from hqueue.push import MessageListener, Status, Subscriber, Subscription
from hqueue.queue import PartitionLag, PartitionOffsets, Queue
from hqueue.settings.addresses import GatewayAddress
from hqueue.settings.attributes import QueueDescription
from hqueue.settings.connection import Settings

__version__ = "0.1.0"  # The one place: packaging reads it from here.

__all__ = [
    "Batch",
    "BufferFullError",
    "CheckpointMovedError",
    "Client",
    "ClockSkewError",
    "ClosedError",
    "CombinedPartitionScanner",
    "CorruptLogError",
    "Delivery",
    "DeliveryOptions",
    "FencedError",
    "Fetch",
    "Fetcher",
    "GatewayAddress",
    "HQueueError",
    "Header",
    "IdempotencyKeyError",
    "IdempotencyKeyReusedError",
    "IdempotencyKeyTooOldError",
    "InvalidInputError",
    "LocalServerError",
    "Message",
    "MessageID",
    "MessageIDs",
    "MessageListener",
    "MessageTooLargeError",
    "Messages",
    "NotAQueueError",
    "Outcome",
    "Pace",
    "PartitionLag",
    "PartitionLocation",
    "PartitionOffsets",
    "PartitionReader",
    "PartitionScanner",
    "Producer",
    "Queue",
    "QueueDescription",
    "QueueDisabledError",
    "QueueEnabledError",
    "QueueExistsError",
    "QueueNotFoundError",
    "QueueScanner",
    "QueueStateError",
    "RequestRefusedError",
    "Scan",
    "Settings",
    "SettingsError",
    "Status",
    "StoreError",
    "StoreUnavailableError",
    "Subscriber",
    "SubscriberConnectedError",
    "SubscriberExistsError",
    "SubscriberNotFoundError",
    "Subscription",
    "SubscriptionStateError",
    "TopicEntry",
    "UnsupportedFormatError",
    "__version__",
    "connect",
    "fetch_once",
    "messages_of",
]
