"""Topics' metadata: the owner of each topic, the ranges of its messages, and its subscriptions.

Each kind has a manager, as in Hedwig. A manager needs only `hqueue.metadata.fields` of a store:
compare-and-set of records of a few fields. A `Layout` has the keys of records.

All decisions are written in steps: those below a manager (blobs, generations, the migration state,
the fence), a move, and what a manager makes of a record (see `following`). For threads, a manager's
call returns a future: a `Pipeline`'s threads send the requests of many callers as one, and take the
steps of those that have their answers. `hqueue.aio` carries out the same work in an event loop.
"""

from __future__ import annotations

from hqueue.metadata.managers.election import OwnerElection, Verdict
from hqueue.metadata.managers.exchange import (
    Difference,
    Imported,
    compare_metadata,
    import_infos,
    read_document,
    write_document,
)
from hqueue.metadata.managers.hubs import AvailableHub, HubRegistration, Hubs
from hqueue.metadata.managers.infos import (
    HubInfo,
    LogRange,
    SubscriptionData,
    SubscriptionPreferences,
    SubscriptionState,
    TopicACL,
    TopicPersistenceInfo,
    Versioned,
    check_names,
)
from hqueue.metadata.managers.layout import Layout, Rows, Subject, Tree
from hqueue.metadata.managers.listing import Entry, Info
from hqueue.metadata.managers.memory import MemoryFields
from hqueue.metadata.managers.migration import MetadataMigration
from hqueue.metadata.managers.migration_state import MetadataLocation, MigrationState, Phase
from hqueue.metadata.managers.opening import (
    RangesOf,
    TopicLookup,
    TopicMetadata,
    TopicMetadataDeletion,
    open_migration,
    open_topic_metadata,
)
from hqueue.metadata.managers.own_moves import OwnMoves
from hqueue.metadata.managers.pipeline import Pipeline
from hqueue.metadata.managers.present import PresentRecords
from hqueue.metadata.managers.topics import (
    SubscriptionDataManager,
    TopicOwnershipManager,
    TopicPersistenceManager,
)

__all__ = [
    "AvailableHub",
    "Difference",
    "Entry",
    "HubInfo",
    "HubRegistration",
    "Hubs",
    "Imported",
    "Info",
    "Layout",
    "LogRange",
    "MemoryFields",
    "MetadataLocation",
    "MetadataMigration",
    "MigrationState",
    "OwnMoves",
    "OwnerElection",
    "Phase",
    "Pipeline",
    "PresentRecords",
    "RangesOf",
    "Rows",
    "Subject",
    "SubscriptionData",
    "SubscriptionDataManager",
    "SubscriptionPreferences",
    "SubscriptionState",
    "TopicACL",
    "TopicLookup",
    "TopicMetadata",
    "TopicMetadataDeletion",
    "TopicOwnershipManager",
    "TopicPersistenceInfo",
    "TopicPersistenceManager",
    "Tree",
    "Verdict",
    "Versioned",
    "check_names",
    "compare_metadata",
    "import_infos",
    "open_migration",
    "open_topic_metadata",
    "read_document",
    "write_document",
]
