"""A durable, ordered, partitioned message queue that lives inside HBase.

import hqueue

client = hqueue.connect()
queue = client.create_queue("events", partitions=8, ttl="1d")
queue.put(hqueue.Message("clicks", b"hello"))
for message in queue.scan():
    print(message.id, message.topic, message.value)
"""

from hqueue.attributes import QueueDescription
from hqueue.batch import Header, TopicEntry
from hqueue.client import Client, PartitionLocation, connect
from hqueue.config import GatewayAddress, Settings
from hqueue.coordination import DeliveryOptions
from hqueue.decode import messages_of
from hqueue.delivery import Delivery
from hqueue.errors import (
    BufferFullError,
    CheckpointMovedError,
    ClockSkewError,
    ClosedError,
    CorruptLogError,
    HQueueError,
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
    SupersededError,
    TokenError,
    TokenReusedError,
    TokenTooOldError,
    UnsupportedFormatError,
)
from hqueue.log import Batch, PartitionReader
from hqueue.message import Message, MessageID, MessageIDs, Messages
from hqueue.producer import Producer
from hqueue.queue import PartitionEnds, PartitionLag, Queue
from hqueue.scan import CombinedPartitionScanner, PartitionScanner, QueueScanner, Scan
from hqueue.subscribe import MessageListener, Status, Subscriber, Subscription

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
    "GatewayAddress",
    "HQueueError",
    "Header",
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
    "PartitionEnds",
    "PartitionLag",
    "PartitionLocation",
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
    "SupersededError",
    "TokenError",
    "TokenReusedError",
    "TokenTooOldError",
    "TopicEntry",
    "UnsupportedFormatError",
    "connect",
    "messages_of",
]
