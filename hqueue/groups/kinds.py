"""Groups are of two kinds, and a name belongs to one of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from hqueue.errors import GroupActiveError, Outcome, UnsupportedFormatError
from hqueue.groups.paths import GroupPaths
from hqueue.metadata import MetadataStore
from hqueue.metadata.encoding import member_shares
from hqueue.metadata.ports import Record
from hqueue.metadata.steps import Keys, List, OnStore, Work
from hqueue.runtime.stepwise import stepwise

__all__ = ["CONSUMER", "SHARE", "GroupKind", "GroupKinds", "kinds_among"]

GroupKind = Literal["consumer", "share"]

CONSUMER: GroupKind = "consumer"
"""Of consumers that have the partitions among them: such a group has offsets."""
SHARE: GroupKind = "share"
"""Of share consumers, each of which gets messages of all partitions."""


class GroupKinds(OnStore):
    """Finds out which kind a group is of. Thread-safe.

    Args:
        store: where groups lie.
        paths: the group's.
    """

    def __init__(self, store: MetadataStore, paths: GroupPaths) -> None:
        super().__init__(store)
        self._paths = paths

    @stepwise
    def kind(self) -> Work[GroupKind | None]:
        """The group's kind, by what it has kept, or else by its members; None for one that has
        neither.
        """
        for kind, below in ((SHARE, self._paths.shares), (CONSUMER, self._paths.offsets)):
            if (yield Keys(below, 2)):
                return kind
        kinds = kinds_among((yield List(self._paths.ids, 1)))
        return SHARE if SHARE in kinds else next(iter(kinds), None)

    @stepwise
    def check(self, kind: GroupKind) -> Work[None]:
        """Return if the group is of this kind, or of none yet.

        Who asks after it was registered as a member is safe from another one that does the same: of
        two kinds that begin at once at most one goes on.

        Raises:
            GroupActiveError: it is of the other kind.
        """
        other, below = (CONSUMER, self._paths.offsets)
        if kind == CONSUMER:
            other, below = (SHARE, self._paths.shares)
        members = yield List(self._paths.ids, 1)
        if other not in kinds_among(members) and not (yield Keys(below, 2)):
            return
        raise GroupActiveError(
            "a share group has this name: give the group of consumers another name, or delete the "
            "share group"
            if other == SHARE
            else "a group of consumers has this name, and offsets: give the share group another "
            "name, or delete the other group",
            outcome=Outcome.NOT_APPLIED,
            group=self._paths.group,
        )


def kinds_among(members: Mapping[str, Record]) -> set[GroupKind]:
    """The kinds of group that these records of members belong to."""
    kinds: set[GroupKind] = set()
    for path, record in members.items():
        try:
            kinds.add(SHARE if member_shares(record.value, path) else CONSUMER)
        except UnsupportedFormatError:
            continue  # It is reported where the group is described.
    return kinds
