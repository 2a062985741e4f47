"""What is kept beside the log: small records, presence, and claims.

Two primitives carry all of it (`hqueue.metadata.ports`): versioned records, and ephemeral
registrations. A `MetadataStore` has both: `hqueue.zookeeper` is one, the tests have one in memory.
What is made of them here knows no store. `Coordination` is what push delivery needs: who
subscribes to what, how far each subscriber is, which workers there are, and which serves what; and
which HQueue clusters there are, with which queues.
Where each lies is in `hqueue.metadata.paths`, how it looks as bytes in `hqueue.metadata.encoding`.
A client's session is `Client.coordination`.

Each method is bounded, call by call of the primitives, by the operation's bound of its settings
and repeats what is safe to repeat. Each raises

- `StoreUnavailableError` when the store gave no usable answer within the bound;
- `RequestRefusedError` when it will not do it (access rights, for example);
- `UnsupportedFormatError` for a record of a version that this release doesn't know;
- `ClosedError` after `Coordination.close`.

What exists for as long as its maker lives is called *present*: it disappears by itself when the
maker's session ends, orderly or not, and never because of a connection that was merely cut and
came back in time.
"""

from hqueue.metadata.append_key_record import AppendKeyRecord
from hqueue.metadata.brokers import Brokers
from hqueue.metadata.checkpoints import Checkpoints
from hqueue.metadata.coordination import Coordination
from hqueue.metadata.owners import Owners
from hqueue.metadata.ports import MetadataStore, SessionState, Watch
from hqueue.metadata.records import (
    BrokerRecord,
    Checkpoint,
    DeliveryOptions,
    PartitionKey,
    Presence,
    SubscriptionKey,
    WorkerRecord,
    check_name,
)
from hqueue.metadata.registration import Registration
from hqueue.metadata.subscriptions import Subscriptions
from hqueue.metadata.workers import Workers
from hqueue.settings.addresses import Address

__all__ = [
    "Address",
    "AppendKeyRecord",
    "BrokerRecord",
    "Brokers",
    "Checkpoint",
    "Checkpoints",
    "Coordination",
    "DeliveryOptions",
    "MetadataStore",
    "Owners",
    "PartitionKey",
    "Presence",
    "Registration",
    "SessionState",
    "SubscriptionKey",
    "Subscriptions",
    "Watch",
    "WorkerRecord",
    "Workers",
    "check_name",
]
