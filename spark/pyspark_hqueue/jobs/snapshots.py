"""Whether a round is in an Iceberg table, by the table's snapshots."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from hqueue.settings.numbers import whole_number

__all__ = ["Snapshot", "Snapshots", "round_tag", "tagged_round"]


def round_tag(stream: str, number: int) -> str:
    """The tag that identifies the snapshot of a round."""
    return f"hqueue-{stream}-{number}"


def tagged_round(stream: str, tag: str | None) -> int | None:
    """The number of the stream's round that a tag identifies; None if it identifies none."""
    before = round_tag(stream, 0).removesuffix("0")
    return whole_number(tag.removeprefix(before)) if tag and tag.startswith(before) else None


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """A snapshot of a table.

    Args:
        id: the table's number of it.
        parent: the snapshot before it; None if it is the first.
        tag: the `round_tag`, if a round wrote it; another text, or None, if not.
        messages: the rows that it added.
        bytes: the size of the files that it added.
        file_count: how many files it added.
    """

    id: int
    parent: int | None
    tag: str | None
    messages: int = 0
    bytes: int = 0
    file_count: int = 0


class Snapshots:
    """The snapshots of a table that have not expired.

    Args:
        snapshots: all, those that are not published among them.
        current: the ID of the one that readers see; None if the table has no rows yet.
    """

    def __init__(self, snapshots: Sequence[Snapshot], current: int | None) -> None:
        self._by_id = {snapshot.id: snapshot for snapshot in snapshots}
        self._current = current

    def published(self, stream: str, number: int) -> bool | None:
        """Whether readers see a round of a stream; None if the snapshots that say it have expired.

        A stream's rounds come one after the other, so the newest that is found decides.
        """
        at = self._current
        while at is not None:
            snapshot = self._by_id.get(at)
            if snapshot is None:
                return None
            if (last := tagged_round(stream, snapshot.tag)) is not None:
                return last >= number
            at = snapshot.parent
        return False

    @property
    def tags(self) -> list[str | None]:
        """The tags of all snapshots, also of those that wait to be published."""
        return [each.tag for each in self._by_id.values()]

    def find(self, tag: str) -> Snapshot | None:
        """The newest snapshot of a round that readers see, or else any that is there."""
        at = self._current
        while at is not None and (snapshot := self._by_id.get(at)) is not None:
            if snapshot.tag == tag:
                return snapshot
            at = snapshot.parent
        return next((each for each in self._by_id.values() if each.tag == tag), None)
