"""What becomes of a member's partitions."""

from __future__ import annotations

import dataclasses
from collections.abc import Set as AbstractSet

from hqueue.groups.offsets import Offset
from hqueue.metadata import PartitionKey

__all__ = ["Changes"]


@dataclasses.dataclass
class Changes:
    """What became of a member's partitions since it was asked last."""

    assigned: dict[PartitionKey, Offset] = dataclasses.field(default_factory=dict)
    """Those that it has now, and where it begins."""
    revoked: set[PartitionKey] = dataclasses.field(default_factory=set)
    """Partitions that it must give up: by `GroupMember.release`, when the messages that it handed
    out of them are done with and committed. Until then nobody else has them. Some may never have
    been reported to it as assigned."""
    lost: set[PartitionKey] = dataclasses.field(default_factory=set)
    """Those that it has not any more: another may have them already."""

    def revoke(self, keys: AbstractSet[PartitionKey]) -> None:
        """It must give these up."""
        self.revoked |= keys
        for key in keys:
            self.assigned.pop(key, None)

    def lose(self, keys: AbstractSet[PartitionKey]) -> None:
        """It has these no more. What it has not heard of it does not lose."""
        untold = keys & self.assigned.keys()
        for key in keys:
            self.assigned.pop(key, None)
        self.revoked -= keys
        self.lost |= keys - untold
