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
    from hqueue.client import Client as Client
    from hqueue.connecting import connect as connect
    from hqueue.consume.scan import Scan as Scan
    from hqueue.consume.scanners import PartitionScanner as PartitionScanner
    from hqueue.consume.scanners import QueueScanner as QueueScanner
    from hqueue.consume.scanners import Scanner as Scanner
    from hqueue.consume.skipped_batches import SkippedBatches as SkippedBatches
    from hqueue.consume.topic_scanner import TopicScanner as TopicScanner
    from hqueue.consumer import Consumer as Consumer
    from hqueue.consumer import ParallelConsumer as ParallelConsumer
    from hqueue.consumer_stream import ConsumerStream as ConsumerStream
    from hqueue.dead_letters.dead_letters import DeadLetters as DeadLetters
    from hqueue.dead_letters.wrapping import DeadLetter as DeadLetter
    from hqueue.errors import BufferFullError as BufferFullError
    from hqueue.errors import ClosedError as ClosedError
    from hqueue.errors import CommitFailedError as CommitFailedError
    from hqueue.errors import CorruptLogError as CorruptLogError
    from hqueue.errors import FencedError as FencedError
    from hqueue.errors import HQueueError as HQueueError
    from hqueue.errors import HubUnavailableError as HubUnavailableError
    from hqueue.errors import IdempotencyKeyReusedError as IdempotencyKeyReusedError
    from hqueue.errors import InvalidInputError as InvalidInputError
    from hqueue.errors import MessageTooLargeError as MessageTooLargeError
    from hqueue.errors import NotAllowedError as NotAllowedError
    from hqueue.errors import OffsetOutOfRangeError as OffsetOutOfRangeError
    from hqueue.errors import Outcome as Outcome
    from hqueue.errors import QueueExistsError as QueueExistsError
    from hqueue.errors import QueueNotFoundError as QueueNotFoundError
    from hqueue.errors import QueueStateError as QueueStateError
    from hqueue.errors import RequestRefusedError as RequestRefusedError
    from hqueue.errors import SettingsError as SettingsError
    from hqueue.errors import StoreUnavailableError as StoreUnavailableError
    from hqueue.exactly_once import ExactlyOnceProcessor as ExactlyOnceProcessor
    from hqueue.groups.descriptions import GroupDescription as GroupDescription
    from hqueue.groups.descriptions import GroupListing as GroupListing
    from hqueue.groups.descriptions import GroupPartition as GroupPartition
    from hqueue.log.expiry import PartitionExpiry as PartitionExpiry
    from hqueue.log.lag import PartitionLag as PartitionLag
    from hqueue.log.offsets import PartitionOffsets as PartitionOffsets
    from hqueue.log.table_ports import PartitionLocation as PartitionLocation
    from hqueue.log.topic_lag import TopicLag as TopicLag
    from hqueue.log.verify import Finding as Finding
    from hqueue.log.verify import PartitionVerification as PartitionVerification
    from hqueue.message import ConsumedMessage as ConsumedMessage
    from hqueue.message import Message as Message
    from hqueue.message import Messages as Messages
    from hqueue.message import ReceivedMessage as ReceivedMessage
    from hqueue.message_id import MessageID as MessageID
    from hqueue.metadata import DeliveryOptions as DeliveryOptions
    from hqueue.metadata import PartitionKey as PartitionKey
    from hqueue.metadata.managers import SubscriptionPreferences as SubscriptionPreferences
    from hqueue.metadata.managers import TopicACL as TopicACL
    from hqueue.position import Position as Position
    from hqueue.produce.delivery import Delivery as Delivery
    from hqueue.produce.producer import Producer as Producer
    from hqueue.push.administration import SubscriberState as SubscriberState
    from hqueue.push.answers import DeliveryAnswer as DeliveryAnswer
    from hqueue.push.answers import Status as Status
    from hqueue.push.listener import Listener as Listener
    from hqueue.push.listener import MessageListener as MessageListener
    from hqueue.push.subscriber import Subscriber as Subscriber
    from hqueue.push.subscription import Subscription as Subscription
    from hqueue.queue import Queue as Queue
    from hqueue.runtime.version import __version__ as __version__
    from hqueue.settings.addresses import Address as Address
    from hqueue.settings.addresses import GatewayAddress as GatewayAddress
    from hqueue.settings.attributes import QueueDescription as QueueDescription
    from hqueue.settings.connection import Settings as Settings
    from hqueue.settings.reserved import is_reserved as is_reserved
    from hqueue.share_consumer import ShareConsumer as ShareConsumer
    from hqueue.topics import HubClient as HubClient
    from hqueue.topics import HubClientSettings as HubClientSettings
    from hqueue.topics import HubProducer as HubProducer
    from hqueue.topics import HubQueue as HubQueue
    from hqueue.topics import HubScanner as HubScanner
    from hqueue.topics import HubTopic as HubTopic
    from hqueue.topics import IdempotentPublishResult as IdempotentPublishResult
    from hqueue.topics import SubscribeMode as SubscribeMode
    from hqueue.topics import TopicSubscription as TopicSubscription
    from hqueue.topics import connect_hubs as connect_hubs

_MODULES = {
    "hqueue.client": "Client",
    "hqueue.connecting": "connect",
    "hqueue.consume.scan": "Scan",
    "hqueue.consume.scanners": "PartitionScanner QueueScanner Scanner",
    "hqueue.consume.skipped_batches": "SkippedBatches",
    "hqueue.consume.topic_scanner": "TopicScanner",
    "hqueue.consumer": "Consumer ParallelConsumer",
    "hqueue.consumer_stream": "ConsumerStream",
    "hqueue.dead_letters.dead_letters": "DeadLetters",
    "hqueue.dead_letters.wrapping": "DeadLetter",
    "hqueue.errors": (
        "BufferFullError ClosedError CommitFailedError CorruptLogError FencedError "
        "HQueueError HubUnavailableError IdempotencyKeyReusedError InvalidInputError "
        "MessageTooLargeError NotAllowedError OffsetOutOfRangeError Outcome QueueExistsError "
        "QueueNotFoundError QueueStateError RequestRefusedError SettingsError "
        "StoreUnavailableError"
    ),
    "hqueue.exactly_once": "ExactlyOnceProcessor",
    "hqueue.groups.descriptions": "GroupDescription GroupListing GroupPartition",
    "hqueue.log.expiry": "PartitionExpiry",
    "hqueue.log.lag": "PartitionLag",
    "hqueue.log.offsets": "PartitionOffsets",
    "hqueue.log.table_ports": "PartitionLocation",
    "hqueue.log.topic_lag": "TopicLag",
    "hqueue.log.verify": "Finding PartitionVerification",
    "hqueue.message": "ConsumedMessage Message Messages ReceivedMessage",
    "hqueue.message_id": "MessageID",
    "hqueue.metadata": "DeliveryOptions PartitionKey",
    "hqueue.metadata.managers": "SubscriptionPreferences TopicACL",
    "hqueue.position": "Position",
    "hqueue.produce.delivery": "Delivery",
    "hqueue.produce.producer": "Producer",
    "hqueue.push.administration": "SubscriberState",
    "hqueue.push.answers": "DeliveryAnswer Status",
    "hqueue.push.listener": "Listener MessageListener",
    "hqueue.push.subscriber": "Subscriber",
    "hqueue.push.subscription": "Subscription",
    "hqueue.queue": "Queue",
    "hqueue.runtime.version": "__version__",
    "hqueue.settings.addresses": "Address GatewayAddress",
    "hqueue.settings.attributes": "QueueDescription",
    "hqueue.settings.connection": "Settings",
    "hqueue.settings.reserved": "is_reserved",
    "hqueue.share_consumer": "ShareConsumer",
    "hqueue.topics": (
        "HubClient HubClientSettings HubProducer HubQueue HubScanner HubTopic "
        "IdempotentPublishResult SubscribeMode TopicSubscription connect_hubs"
    ),
}
"""Where each public name is defined, for programs; type checkers have it from above. It is imported
when it is first used: a program that publishes to hubs loads nothing of HBase's, nor of
ZooKeeper's.
"""

if not TYPE_CHECKING:
    _WHERE = {name: module for module, names in _MODULES.items() for name in names.split()}
    __all__ = list(_WHERE)

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
