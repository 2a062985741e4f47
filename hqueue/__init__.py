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
    from hqueue.client import Ttl as Ttl
    from hqueue.connecting import connect as connect
    from hqueue.consume.decode import messages_of as messages_of
    from hqueue.consume.fetcher import Fetch as Fetch
    from hqueue.consume.fetcher import Fetcher as Fetcher
    from hqueue.consume.fetcher import Pace as Pace
    from hqueue.consume.fetcher import fetch_once as fetch_once
    from hqueue.consume.scan import Scan as Scan
    from hqueue.consume.scanners import CombinedPartitionScanner as CombinedPartitionScanner
    from hqueue.consume.scanners import PartitionScanner as PartitionScanner
    from hqueue.consume.scanners import QueueScanner as QueueScanner
    from hqueue.consume.scanners import ScannerOptions as ScannerOptions
    from hqueue.consume.skipped_batches import SkippedBatches as SkippedBatches
    from hqueue.consume.topic_scanner import TopicScanner as TopicScanner
    from hqueue.consumer import Consumer as Consumer
    from hqueue.consumer import ParallelConsumer as ParallelConsumer
    from hqueue.consumer_stream import ConsumerStream as ConsumerStream
    from hqueue.errors import BadVersionError as BadVersionError
    from hqueue.errors import BufferFullError as BufferFullError
    from hqueue.errors import CheckpointMovedError as CheckpointMovedError
    from hqueue.errors import ClockSkewError as ClockSkewError
    from hqueue.errors import ClosedError as ClosedError
    from hqueue.errors import CommitFailedError as CommitFailedError
    from hqueue.errors import CorruptLogError as CorruptLogError
    from hqueue.errors import FencedError as FencedError
    from hqueue.errors import GroupActiveError as GroupActiveError
    from hqueue.errors import GroupError as GroupError
    from hqueue.errors import GroupNotFoundError as GroupNotFoundError
    from hqueue.errors import HQueueError as HQueueError
    from hqueue.errors import HubError as HubError
    from hqueue.errors import HubUnavailableError as HubUnavailableError
    from hqueue.errors import IdempotencyKeyError as IdempotencyKeyError
    from hqueue.errors import IdempotencyKeyReusedError as IdempotencyKeyReusedError
    from hqueue.errors import IdempotencyKeyTooOldError as IdempotencyKeyTooOldError
    from hqueue.errors import InvalidInputError as InvalidInputError
    from hqueue.errors import LocalServerError as LocalServerError
    from hqueue.errors import MessageTooLargeError as MessageTooLargeError
    from hqueue.errors import MetadataError as MetadataError
    from hqueue.errors import MetadataReadOnlyError as MetadataReadOnlyError
    from hqueue.errors import NoSubscriptionStateError as NoSubscriptionStateError
    from hqueue.errors import NotAllowedError as NotAllowedError
    from hqueue.errors import NotAQueueError as NotAQueueError
    from hqueue.errors import NoTopicOwnerInfoError as NoTopicOwnerInfoError
    from hqueue.errors import NoTopicPersistenceInfoError as NoTopicPersistenceInfoError
    from hqueue.errors import OffsetOutOfRangeError as OffsetOutOfRangeError
    from hqueue.errors import Outcome as Outcome
    from hqueue.errors import OwnershipError as OwnershipError
    from hqueue.errors import OwnershipLostError as OwnershipLostError
    from hqueue.errors import QueueDisabledError as QueueDisabledError
    from hqueue.errors import QueueEnabledError as QueueEnabledError
    from hqueue.errors import QueueExistsError as QueueExistsError
    from hqueue.errors import QueueNotFoundError as QueueNotFoundError
    from hqueue.errors import QueueStateError as QueueStateError
    from hqueue.errors import RequestRefusedError as RequestRefusedError
    from hqueue.errors import SettingsError as SettingsError
    from hqueue.errors import StoreError as StoreError
    from hqueue.errors import StoreUnavailableError as StoreUnavailableError
    from hqueue.errors import SubscriberConnectedError as SubscriberConnectedError
    from hqueue.errors import SubscriberExistsError as SubscriberExistsError
    from hqueue.errors import SubscriberNotFoundError as SubscriberNotFoundError
    from hqueue.errors import SubscriptionStateError as SubscriptionStateError
    from hqueue.errors import SubscriptionStateExistsError as SubscriptionStateExistsError
    from hqueue.errors import TopicFencedError as TopicFencedError
    from hqueue.errors import UnsupportedFormatError as UnsupportedFormatError
    from hqueue.exactly_once import ExactlyOnceProcessor as ExactlyOnceProcessor
    from hqueue.exactly_once import Process as Process
    from hqueue.format.header import Header as Header
    from hqueue.format.header import TopicEntry as TopicEntry
    from hqueue.group_consumer import Partition as Partition
    from hqueue.group_consumer import ToCommit as ToCommit
    from hqueue.groups.administration import GroupDescription as GroupDescription
    from hqueue.groups.administration import GroupListing as GroupListing
    from hqueue.groups.administration import GroupPartition as GroupPartition
    from hqueue.groups.callbacks import OnPartitions as OnPartitions
    from hqueue.groups.consumer_options import ConsumerOptions as ConsumerOptions
    from hqueue.handle.start import Start as Start
    from hqueue.log import Batch as Batch
    from hqueue.log import PartitionReader as PartitionReader
    from hqueue.log.expiry import PartitionExpiry as PartitionExpiry
    from hqueue.log.lag import PartitionLag as PartitionLag
    from hqueue.log.offsets import PartitionOffsets as PartitionOffsets
    from hqueue.log.ports import Row as Row
    from hqueue.log.skipping import Skips as Skips
    from hqueue.log.table_ports import PartitionLocation as PartitionLocation
    from hqueue.log.topic_lag import TopicLag as TopicLag
    from hqueue.log.verify import Finding as Finding
    from hqueue.log.verify import PartitionVerification as PartitionVerification
    from hqueue.message import ConsumedMessage as ConsumedMessage
    from hqueue.message import Headers as Headers
    from hqueue.message import Message as Message
    from hqueue.message import Messages as Messages
    from hqueue.message import ReceivedMessage as ReceivedMessage
    from hqueue.message_id import MessageID as MessageID
    from hqueue.message_id import MessageIDs as MessageIDs
    from hqueue.metadata import DeliveryOptions as DeliveryOptions
    from hqueue.metadata import PartitionKey as PartitionKey
    from hqueue.metadata import Presence as Presence
    from hqueue.metadata.managers import SubscriptionPreferences as SubscriptionPreferences
    from hqueue.metadata.managers import TopicACL as TopicACL
    from hqueue.moment import Moment as Moment
    from hqueue.produce.delivery import Delivery as Delivery
    from hqueue.produce.delivery import DeliveryCallback as DeliveryCallback
    from hqueue.produce.producer import Producer as Producer
    from hqueue.produce.producer_options import ProducerOptions as ProducerOptions
    from hqueue.push.administration import SubscriberState as SubscriberState
    from hqueue.push.dead_letters import DeadLetter as DeadLetter
    from hqueue.push.dead_letters import DeadLetters as DeadLetters
    from hqueue.push.listener import Listener as Listener
    from hqueue.push.listener import ListenerAnswer as ListenerAnswer
    from hqueue.push.listener import MessageListener as MessageListener
    from hqueue.push.listener import Status as Status
    from hqueue.push.subscriber import Subscriber as Subscriber
    from hqueue.push.subscriber import SubscriberOptions as SubscriberOptions
    from hqueue.push.subscription import Subscription as Subscription
    from hqueue.queue import Queue as Queue
    from hqueue.runtime.clock import Clock as Clock
    from hqueue.runtime.clock import Deadline as Deadline
    from hqueue.settings.addresses import Address as Address
    from hqueue.settings.addresses import GatewayAddress as GatewayAddress
    from hqueue.settings.attributes import QueueDescription as QueueDescription
    from hqueue.settings.connection import AccessRule as AccessRule
    from hqueue.settings.connection import Credential as Credential
    from hqueue.settings.connection import Settings as Settings
    from hqueue.settings.options import AlterableAttributes as AlterableAttributes
    from hqueue.settings.options import ConnectOptions as ConnectOptions
    from hqueue.settings.options import QueueAttributes as QueueAttributes
    from hqueue.settings.reserved import is_reserved as is_reserved
    from hqueue.topics import HubClient as HubClient
    from hqueue.topics import HubClientSettings as HubClientSettings
    from hqueue.topics import HubOptions as HubOptions
    from hqueue.topics import HubProducer as HubProducer
    from hqueue.topics import HubQueue as HubQueue
    from hqueue.topics import HubScanner as HubScanner
    from hqueue.topics import HubTopic as HubTopic
    from hqueue.topics import IdempotentPublishResult as IdempotentPublishResult
    from hqueue.topics import SubscribeMode as SubscribeMode
    from hqueue.topics import TopicSubscription as TopicSubscription
    from hqueue.topics import connect_hubs as connect_hubs

__version__ = "0.1.0"  # The one place: packaging reads it from here.

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
    "hqueue.consumer": "Consumer ParallelConsumer",
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
    "hqueue.exactly_once": "ExactlyOnceProcessor Process",
    "hqueue.format.header": "Header TopicEntry",
    "hqueue.group_consumer": "Partition ToCommit",
    "hqueue.groups.administration": "GroupDescription GroupListing GroupPartition",
    "hqueue.groups.callbacks": "OnPartitions",
    "hqueue.groups.consumer_options": "ConsumerOptions",
    "hqueue.handle.start": "Start",
    "hqueue.log": "Batch PartitionReader",
    "hqueue.log.verify": "Finding PartitionVerification",
    "hqueue.log.expiry": "PartitionExpiry",
    "hqueue.log.lag": "PartitionLag",
    "hqueue.log.topic_lag": "TopicLag",
    "hqueue.log.offsets": "PartitionOffsets",
    "hqueue.log.ports": "Row",
    "hqueue.log.skipping": "Skips",
    "hqueue.log.table_ports": "PartitionLocation",
    "hqueue.message": "ConsumedMessage Headers Message Messages ReceivedMessage",
    "hqueue.message_id": "MessageID MessageIDs",
    "hqueue.metadata": "DeliveryOptions PartitionKey Presence",
    "hqueue.metadata.managers": "SubscriptionPreferences TopicACL",
    "hqueue.moment": "Moment",
    "hqueue.produce.delivery": "Delivery DeliveryCallback",
    "hqueue.produce.producer_options": "ProducerOptions",
    "hqueue.produce.producer": "Producer",
    "hqueue.push.administration": "SubscriberState",
    "hqueue.push.dead_letters": "DeadLetter DeadLetters",
    "hqueue.push.listener": "Listener ListenerAnswer MessageListener Status",
    "hqueue.push.subscriber": "Subscriber SubscriberOptions",
    "hqueue.push.subscription": "Subscription",
    "hqueue.queue": "Queue",
    "hqueue.runtime.clock": "Clock Deadline",
    "hqueue.settings.addresses": "Address GatewayAddress",
    "hqueue.settings.attributes": "QueueDescription",
    "hqueue.settings.connection": "AccessRule Credential Settings",
    "hqueue.settings.options": "AlterableAttributes ConnectOptions QueueAttributes",
    "hqueue.settings.reserved": "is_reserved",
    "hqueue.topics": (
        "HubClient HubClientSettings HubOptions HubProducer HubQueue HubScanner "
        "HubTopic IdempotentPublishResult SubscribeMode TopicSubscription connect_hubs"
    ),
}
"""Where each public name is defined, for programs; type checkers have it from above. It is imported
when it is first used: a program that publishes to hubs loads nothing of HBase's, nor of
ZooKeeper's.
"""

if not TYPE_CHECKING:
    _WHERE = {name: module for module, names in _MODULES.items() for name in names.split()}
    __all__ = ["__version__"]
    __all__.extend(_WHERE)

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
