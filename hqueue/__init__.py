"""A durable, ordered, partitioned message queue that lives inside HBase.

import hqueue

client = hqueue.connect()
queue = client.create_queue("events", partitions=8, ttl="1d")
queue.put(hqueue.Message("clicks", b"hello"))
for message in queue.scan():
    print(message.id, message.topic, message.value)
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing`'s own would be the first thing that takes time.
if TYPE_CHECKING:
    from hqueue.client import Client, Ttl
    from hqueue.connecting import connect
    from hqueue.consume.decode import messages_of
    from hqueue.consume.fetcher import Fetch, Fetcher, Pace, fetch_once
    from hqueue.consume.scan import Scan
    from hqueue.consume.scanners import (
        CombinedPartitionScanner,
        PartitionScanner,
        QueueScanner,
        ScannerOptions,
    )
    from hqueue.consume.skipped_batches import SkippedBatches
    from hqueue.consume.topic_scanner import TopicScanner
    from hqueue.consumer import Consumer, Partition, ToCommit
    from hqueue.consumer_stream import ConsumerStream
    from hqueue.errors import (
        BadVersionError,
        BufferFullError,
        CheckpointMovedError,
        ClockSkewError,
        ClosedError,
        CommitFailedError,
        CorruptLogError,
        FencedError,
        GroupActiveError,
        GroupError,
        GroupNotFoundError,
        HQueueError,
        HubError,
        HubUnavailableError,
        IdempotencyKeyError,
        IdempotencyKeyReusedError,
        IdempotencyKeyTooOldError,
        InvalidInputError,
        LocalServerError,
        MessageTooLargeError,
        MetadataError,
        MetadataReadOnlyError,
        NoSubscriptionStateError,
        NotAllowedError,
        NotAQueueError,
        NoTopicOwnerInfoError,
        NoTopicPersistenceInfoError,
        OffsetOutOfRangeError,
        Outcome,
        OwnershipError,
        OwnershipLostError,
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
        SubscriptionStateExistsError,
        TopicFencedError,
        UnsupportedFormatError,
    )
    from hqueue.format import Header, TopicEntry
    from hqueue.groups import (
        ConsumerOptions,
        GroupDescription,
        GroupListing,
        GroupPartition,
        OnPartitions,
    )
    from hqueue.log import Batch, PartitionReader
    from hqueue.log.check import Finding, PartitionCheck
    from hqueue.log.expiry import PartitionExpiry
    from hqueue.log.lag import PartitionLag
    from hqueue.log.offsets import PartitionOffsets
    from hqueue.log.ports import Row
    from hqueue.log.skipping import Skips
    from hqueue.log.store import PartitionLocation
    from hqueue.log.topic_lag import TopicLag
    from hqueue.message import ConsumedMessage, Headers, Message, Messages, ReceivedMessage
    from hqueue.message_id import MessageID, MessageIDs
    from hqueue.metadata import DeliveryOptions, PartitionKey, Presence
    from hqueue.metadata.managers import SubscriptionPreferences, TopicAccess
    from hqueue.moment import Moment
    from hqueue.produce.delivery import Delivery, DeliveryCallback
    from hqueue.produce.options import ProducerOptions
    from hqueue.produce.producer import Producer
    from hqueue.push import (
        DeadLetter,
        DeadLetters,
        Listener,
        ListenerAnswer,
        MessageListener,
        Start,
        Status,
        Subscriber,
        SubscriberOptions,
        SubscriberState,
        Subscription,
    )
    from hqueue.queue import Queue
    from hqueue.runtime.clock import Clock, Deadline
    from hqueue.settings.addresses import Address, GatewayAddress
    from hqueue.settings.attributes import QueueDescription
    from hqueue.settings.connection import AccessRule, Credential, Settings
    from hqueue.settings.options import AlterableAttributes, ConnectOptions, QueueAttributes
    from hqueue.settings.reserved import is_reserved
    from hqueue.topics import (
        HubClient,
        HubClientSettings,
        HubOptions,
        HubProducer,
        HubQueue,
        PublishedOnce,
        SubscribeMode,
        TopicSubscription,
    )

__version__ = "0.1.0"  # The one place: packaging reads it from here.

__all__ = [
    "AccessRule",
    "Address",
    "AlterableAttributes",
    "BadVersionError",
    "Batch",
    "BufferFullError",
    "CheckpointMovedError",
    "Client",
    "Clock",
    "ClockSkewError",
    "ClosedError",
    "CombinedPartitionScanner",
    "CommitFailedError",
    "ConnectOptions",
    "ConsumedMessage",
    "Consumer",
    "ConsumerOptions",
    "ConsumerStream",
    "CorruptLogError",
    "Credential",
    "DeadLetter",
    "DeadLetters",
    "Deadline",
    "Delivery",
    "DeliveryCallback",
    "DeliveryOptions",
    "FencedError",
    "Fetch",
    "Fetcher",
    "Finding",
    "GatewayAddress",
    "GroupActiveError",
    "GroupDescription",
    "GroupError",
    "GroupListing",
    "GroupNotFoundError",
    "GroupPartition",
    "HQueueError",
    "Header",
    "Headers",
    "HubClient",
    "HubClientSettings",
    "HubError",
    "HubOptions",
    "HubProducer",
    "HubQueue",
    "HubUnavailableError",
    "IdempotencyKeyError",
    "IdempotencyKeyReusedError",
    "IdempotencyKeyTooOldError",
    "InvalidInputError",
    "Listener",
    "ListenerAnswer",
    "LocalServerError",
    "Message",
    "MessageID",
    "MessageIDs",
    "MessageListener",
    "MessageTooLargeError",
    "Messages",
    "MetadataError",
    "MetadataReadOnlyError",
    "Moment",
    "NoSubscriptionStateError",
    "NoTopicOwnerInfoError",
    "NoTopicPersistenceInfoError",
    "NotAQueueError",
    "NotAllowedError",
    "OffsetOutOfRangeError",
    "OnPartitions",
    "Outcome",
    "OwnershipError",
    "OwnershipLostError",
    "Pace",
    "Partition",
    "PartitionCheck",
    "PartitionExpiry",
    "PartitionKey",
    "PartitionLag",
    "PartitionLocation",
    "PartitionOffsets",
    "PartitionReader",
    "PartitionScanner",
    "Presence",
    "Producer",
    "ProducerOptions",
    "PublishedOnce",
    "Queue",
    "QueueAttributes",
    "QueueDescription",
    "QueueDisabledError",
    "QueueEnabledError",
    "QueueExistsError",
    "QueueNotFoundError",
    "QueueScanner",
    "QueueStateError",
    "ReceivedMessage",
    "RequestRefusedError",
    "Row",
    "Scan",
    "ScannerOptions",
    "Settings",
    "SettingsError",
    "SkippedBatches",
    "Skips",
    "Start",
    "Status",
    "StoreError",
    "StoreUnavailableError",
    "SubscribeMode",
    "Subscriber",
    "SubscriberConnectedError",
    "SubscriberExistsError",
    "SubscriberNotFoundError",
    "SubscriberOptions",
    "SubscriberState",
    "Subscription",
    "SubscriptionPreferences",
    "SubscriptionStateError",
    "SubscriptionStateExistsError",
    "ToCommit",
    "TopicAccess",
    "TopicEntry",
    "TopicFencedError",
    "TopicLag",
    "TopicScanner",
    "TopicSubscription",
    "Ttl",
    "UnsupportedFormatError",
    "__version__",
    "connect",
    "fetch_once",
    "is_reserved",
    "messages_of",
]

_MODULES = {
    "hqueue.client": "Client Ttl",
    "hqueue.connecting": "connect",
    "hqueue.consume.decode": "messages_of",
    "hqueue.consume.fetcher": "Fetch Fetcher Pace fetch_once",
    "hqueue.consume.scan": "Scan",
    "hqueue.consume.scanners": (
        "CombinedPartitionScanner PartitionScanner QueueScanner ScannerOptions"
    ),
    "hqueue.consume.skipped_batches": "SkippedBatches",
    "hqueue.consume.topic_scanner": "TopicScanner",
    "hqueue.consumer": "Consumer Partition ToCommit",
    "hqueue.consumer_stream": "ConsumerStream",
    "hqueue.errors": (
        "BadVersionError BufferFullError CheckpointMovedError ClockSkewError "
        "ClosedError CommitFailedError CorruptLogError FencedError "
        "GroupActiveError GroupError GroupNotFoundError HQueueError HubError "
        "HubUnavailableError IdempotencyKeyError IdempotencyKeyReusedError "
        "IdempotencyKeyTooOldError InvalidInputError LocalServerError "
        "MessageTooLargeError MetadataError MetadataReadOnlyError "
        "NoSubscriptionStateError NoTopicOwnerInfoError "
        "NoTopicPersistenceInfoError NotAQueueError NotAllowedError "
        "OffsetOutOfRangeError Outcome OwnershipError OwnershipLostError "
        "QueueDisabledError QueueEnabledError QueueExistsError "
        "QueueNotFoundError QueueStateError RequestRefusedError SettingsError "
        "StoreError StoreUnavailableError SubscriberConnectedError "
        "SubscriberExistsError SubscriberNotFoundError SubscriptionStateError "
        "SubscriptionStateExistsError TopicFencedError UnsupportedFormatError"
    ),
    "hqueue.format": "Header TopicEntry",
    "hqueue.groups": ("ConsumerOptions GroupDescription GroupListing GroupPartition OnPartitions"),
    "hqueue.log": "Batch PartitionReader",
    "hqueue.log.check": "Finding PartitionCheck",
    "hqueue.log.expiry": "PartitionExpiry",
    "hqueue.log.lag": "PartitionLag",
    "hqueue.log.topic_lag": "TopicLag",
    "hqueue.log.offsets": "PartitionOffsets",
    "hqueue.log.ports": "Row",
    "hqueue.log.skipping": "Skips",
    "hqueue.log.store": "PartitionLocation",
    "hqueue.message": "ConsumedMessage Headers Message Messages ReceivedMessage",
    "hqueue.message_id": "MessageID MessageIDs",
    "hqueue.metadata": "DeliveryOptions PartitionKey Presence",
    "hqueue.metadata.managers": "SubscriptionPreferences TopicAccess",
    "hqueue.moment": "Moment",
    "hqueue.produce.delivery": "Delivery DeliveryCallback",
    "hqueue.produce.options": "ProducerOptions",
    "hqueue.produce.producer": "Producer",
    "hqueue.push": (
        "DeadLetter DeadLetters Listener ListenerAnswer MessageListener Start "
        "Status Subscriber SubscriberOptions SubscriberState Subscription"
    ),
    "hqueue.queue": "Queue",
    "hqueue.runtime.clock": "Clock Deadline",
    "hqueue.settings.addresses": "Address GatewayAddress",
    "hqueue.settings.attributes": "QueueDescription",
    "hqueue.settings.connection": "AccessRule Credential Settings",
    "hqueue.settings.options": "AlterableAttributes ConnectOptions QueueAttributes",
    "hqueue.settings.reserved": "is_reserved",
    "hqueue.topics": (
        "HubClient HubClientSettings HubOptions HubProducer HubQueue "
        "PublishedOnce SubscribeMode TopicSubscription"
    ),
}
"""Where each public name is defined. It is imported when it is first used: a program that
publishes to hubs loads nothing of HBase's, nor of ZooKeeper's.
"""

if not TYPE_CHECKING:
    _WHERE = {name: module for module, names in _MODULES.items() for name in names.split()}

    def __getattr__(name: str) -> object:
        import importlib.util  # noqa: PLC0415  (not for the names that are there already)

        if name in _WHERE:
            found = getattr(importlib.import_module(_WHERE[name]), name)
        elif not name.startswith("_") and importlib.util.find_spec(f"hqueue.{name}"):
            found = importlib.import_module(f"hqueue.{name}")
        else:
            raise AttributeError(f"module 'hqueue' has no attribute {name!r}")
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
