"""Types for annotations: options of calls, types of arguments, and parts of results.

def consumer(queue: str, **options: Unpack[hqueue.typing.ConsumerOptions]) -> hqueue.Consumer:
    return hqueue.Consumer(queue, group="billing", **options)
"""

from hqueue.client import Ttl
from hqueue.consume.scanners import CombinedPartitionScanner, ScannerOptions
from hqueue.dead_letters.topics import DeadLetterOwner
from hqueue.exactly_once_steps import Process, ProcessInLoop
from hqueue.groups.callbacks import OnPartitions, OnPartitionsInLoop
from hqueue.groups.calls import Partition, ToCommit
from hqueue.groups.consumer_options import ConsumerOptions
from hqueue.groups.descriptions import SharedMessages
from hqueue.log.table_ports import RegionSize, Snapshot
from hqueue.message import Headers
from hqueue.message_id import MessageIDs
from hqueue.metadata import Presence
from hqueue.net.tokens import DelegationToken
from hqueue.position import Start, Timestamp
from hqueue.produce.delivery import DeliveryCallback
from hqueue.produce.producer_options import ProducerOptions
from hqueue.push.listener import ListenerAnswer
from hqueue.push.subscriber import SubscriberOptions
from hqueue.runtime.iteration import Iteration
from hqueue.settings.keyword_options import AlterableAttributes, ConnectOptions, QueueAttributes
from hqueue.settings.zookeeper_security import AclEntry, Credential
from hqueue.sharing.acquired_message import AcquiredMessage
from hqueue.sharing.share_options import ShareOptions
from hqueue.topics import HubOptions

__all__ = [
    "AclEntry",
    "AcquiredMessage",
    "AlterableAttributes",
    "CombinedPartitionScanner",
    "ConnectOptions",
    "ConsumerOptions",
    "Credential",
    "DeadLetterOwner",
    "DelegationToken",
    "DeliveryCallback",
    "Headers",
    "HubOptions",
    "Iteration",
    "ListenerAnswer",
    "MessageIDs",
    "OnPartitions",
    "OnPartitionsInLoop",
    "Partition",
    "Presence",
    "Process",
    "ProcessInLoop",
    "ProducerOptions",
    "QueueAttributes",
    "RegionSize",
    "ScannerOptions",
    "ShareOptions",
    "SharedMessages",
    "Snapshot",
    "Start",
    "SubscriberOptions",
    "Timestamp",
    "ToCommit",
    "Ttl",
]
