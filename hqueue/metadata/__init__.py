"""What push delivery needs of a coordination service: small records, presence, and claims.

Subscribers and workers are written against these ports alone; `hqueue.zookeeper` provides them.
Nothing in them is a path or a session's detail, so that another store with compare-and-set and
leases can stand behind them. How a record looks as bytes is in `hqueue.metadata.encoding`. A
client's session is `Client.coordination`.

Each method is bounded by the operation's bound of its settings and repeats what is safe to
repeat. Each raises

- `StoreUnavailableError` when the service gave no usable answer within the bound;
- `RequestRefusedError` when it will not do it (access rights, for example);
- `UnsupportedFormatError` for a record of a version that this release doesn't know;
- `ClosedError` after `Coordination.close`, and in a forked child.

What exists for as long as its maker lives is called *present*: it disappears by itself when the
maker's session ends, orderly or not, and never because of a connection that was merely cut and
came back in time.
"""

from hqueue.metadata.ports import (
    AppendKeyPort,
    CheckpointPort,
    Coordination,
    OwnerPort,
    Registration,
    SessionState,
    SubscriptionPort,
    Watch,
    WorkerPort,
)
from hqueue.metadata.records import (
    Checkpoint,
    DeliveryOptions,
    PartitionKey,
    Presence,
    SubscriptionKey,
    WorkerRecord,
    check_name,
)
from hqueue.settings.addresses import Address

__all__ = [
    "Address",
    "AppendKeyPort",
    "Checkpoint",
    "CheckpointPort",
    "Coordination",
    "DeliveryOptions",
    "OwnerPort",
    "PartitionKey",
    "Presence",
    "Registration",
    "SessionState",
    "SubscriptionKey",
    "SubscriptionPort",
    "Watch",
    "WorkerPort",
    "WorkerRecord",
    "check_name",
]
