"""Metadata beside the log: small records, registrations of live processes, and claims.

Two primitives carry all of it (`hqueue.metadata.ports`): versioned records and ephemeral
registrations. A `MetadataStore` has both: `hqueue.zookeeper` is one, and the tests have one in
memory. The code of this package works over any store. `Coordination` has what push delivery needs:
the subscribers, the checkpoint of each, the workers, the partitions that each serves, the HQueue
clusters, and their queues. `hqueue.metadata.paths` has the path of each record, and
`hqueue.metadata.encoding` its bytes. A client's session is `Client.coordination`.

Each call of a primitive takes at most ``operation_timeout_ms``, and repeats requests that are safe
to repeat. Each method raises

- `StoreUnavailableError` when the store gave no usable answer within the bound;
- `RequestRefusedError` when the store refuses the request, for example for lack of access rights;
- `UnsupportedFormatError` for a record of a version that this release doesn't know;
- `ClosedError` after `Coordination.close`.

A registration that exists for as long as the process that made it lives is called *present*. It
disappears by itself when that process's session ends, cleanly or not. A connection that is cut and
comes back in time does not end it.
"""

from hqueue.metadata.append_key_record import AppendKeyRecord
from hqueue.metadata.brokers import Brokers
from hqueue.metadata.checkpoints import Checkpoints
from hqueue.metadata.coordination import Coordinate, Coordination
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
    "Coordinate",
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
