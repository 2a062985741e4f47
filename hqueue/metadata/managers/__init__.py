"""Topics' metadata: who owns a topic, where its messages lie, who subscribed to it.

Each kind has a manager, as in Hedwig. A manager stands on `hqueue.metadata.fields` alone, which is
what a store must do: compare-and-set of records of a few fields. Where records lie is a `Layout`.

The modules below a manager (blobs, generations, the stage, the fence) call their store and wait;
they are not written in steps, for no loop calls them. The threads of a `Pipeline` do: they send
what many callers ask for as one request, and give futures for a loop to await. Threads also do what
is seldom: opening the metadata, registering a hub, moving to another store, and what commands ask.
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
    is_among,
)
from hqueue.metadata.managers.layout import Layout, Rows, Subject, Tree
from hqueue.metadata.managers.listing import Entry, Info
from hqueue.metadata.managers.memory import MemoryFields
from hqueue.metadata.managers.migration import MetadataMigration
from hqueue.metadata.managers.opening import (
    TopicMetadata,
    delete_topic_metadata,
    open_migration,
    open_topic_metadata,
)
from hqueue.metadata.managers.pipeline import Pipeline
from hqueue.metadata.managers.present import PresentRecords
from hqueue.metadata.managers.stage import MetadataLocation, Phase, Stage
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
    "OwnerElection",
    "Phase",
    "Pipeline",
    "PresentRecords",
    "Rows",
    "Stage",
    "Subject",
    "SubscriptionData",
    "SubscriptionDataManager",
    "SubscriptionPreferences",
    "SubscriptionState",
    "TopicACL",
    "TopicMetadata",
    "TopicOwnershipManager",
    "TopicPersistenceInfo",
    "TopicPersistenceManager",
    "Tree",
    "Verdict",
    "Versioned",
    "check_names",
    "compare_metadata",
    "delete_topic_metadata",
    "import_infos",
    "is_among",
    "open_migration",
    "open_topic_metadata",
    "read_document",
    "write_document",
]
