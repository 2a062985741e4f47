"""Consumer groups (seed 004): members that share the partitions of queues among them.

It stands on the complete handle and on `hqueue.metadata`, as push does; the log knows nothing of
groups. `hqueue.consumer` is its public face.
"""

from hqueue.groups.administration import (
    GroupDescription,
    GroupListing,
    GroupPartition,
    delete_group,
    describe_group,
    group_names,
    list_groups,
    reset_group,
)
from hqueue.groups.callbacks import Callbacks, OnPartitions
from hqueue.groups.catalog import Selection
from hqueue.groups.consumption import Consumption
from hqueue.groups.handout import Handout
from hqueue.groups.offsets import UNSET, Position
from hqueue.groups.options import ConsumerOptions, ConsumerSettings
from hqueue.groups.positions import BEGINNING, unreadable_offset
from hqueue.groups.stream import Stream

__all__ = [
    "BEGINNING",
    "UNSET",
    "Callbacks",
    "ConsumerOptions",
    "ConsumerSettings",
    "Consumption",
    "GroupDescription",
    "GroupListing",
    "GroupPartition",
    "Handout",
    "OnPartitions",
    "Position",
    "Selection",
    "Stream",
    "delete_group",
    "describe_group",
    "group_names",
    "list_groups",
    "reset_group",
    "unreadable_offset",
]
