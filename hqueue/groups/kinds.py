"""The two kinds of groups. All consumers of a group are of the same kind."""

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
"""A group whose consumers divide the partitions among themselves, and which has offsets."""
SHARE: GroupKind = "share"
"""A group of share consumers: each gets messages of all partitions."""


class GroupKinds(OnStore):
    """Finds out the kind of a group. Thread-safe.

    Args:
        store: keeps the records of groups.
        paths: the group's paths.
    """

    def __init__(self, store: MetadataStore, paths: GroupPaths) -> None:
        super().__init__(store)
        self._paths = paths

    @stepwise
    def kind(self) -> Work[GroupKind | None]:
        """The group's kind, by its records or else by its members; None if it has neither."""
        for kind, below in ((SHARE, self._paths.shares), (CONSUMER, self._paths.offsets)):
            if (yield Keys(below, 2)):
                return kind
        kinds = kinds_among((yield List(self._paths.ids, 1)))
        return SHARE if SHARE in kinds else next(iter(kinds), None)

    @stepwise
    def check(self, kind: GroupKind) -> Work[None]:
        """Check that the group is of this kind, or of no kind yet.

        A consumer must register as a member before it checks. Then, if consumers of both kinds
        begin at the same time, those of at most one kind pass the check.

        Raises:
            GroupActiveError: the group is of the other kind.
        """
        other, below = (CONSUMER, self._paths.offsets)
        if kind == CONSUMER:
            other, below = (SHARE, self._paths.shares)
        members = yield List(self._paths.ids, 1)
        if other not in kinds_among(members) and not (yield Keys(below, 2)):
            return
        raise GroupActiveError(
            "a share group has this name: give the consumer group another name, or delete the "
            "share group"
            if other == SHARE
            else "a consumer group with offsets has this name: give the share group another name, "
            "or delete the consumer group",
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
            continue  # `describe` reports the record.
    return kinds
