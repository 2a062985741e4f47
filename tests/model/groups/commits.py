"""A commit on its way from a consumer to the service, and what the library makes of one that got no
answer, or was refused.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from hqueue.errors import CommitFailedError, Outcome, StoreUnavailableError
from hqueue.groups.offsets import GroupOffsets, Offset, Position
from hqueue.groups.paths import GroupPaths
from hqueue.message_id import MessageID
from hqueue.metadata import PartitionKey
from hqueue.metadata.encoding import encode_offset
from hqueue.metadata.ports import Change, Record, Version
from hqueue.runtime.steps import carry_out

__all__ = ["Commit", "Known", "Looks", "Service"]

PATHS = GroupPaths("/hqueue", "g")


@dataclasses.dataclass(frozen=True)
class Known:
    """What a member knows of an offset that it has taken over."""

    version: int
    claim: int
    """The take-over, by its number."""
    position: int
    """How far the partition is handed out."""

    @property
    def by(self) -> tuple[int, int]:
        """The version and the claim."""
        return self.version, self.claim


@dataclasses.dataclass(frozen=True)
class Commit:
    """What a consumer is to commit, and how far that is."""

    key: PartitionKey
    claim: int
    """The one that its messages were handed out under."""
    position: int
    stage: str = "decided"
    """Then ``sent``, perhaps ``sent again``; ``refused`` or ``unanswered`` until it is looked up
    what that means."""
    version: int = 0
    """With which it was sent."""
    known_by: tuple[int, int] = 0, 0
    """What its member knew the offset by then, as `Known.by`."""

    @property
    def is_under_way(self) -> bool:
        """Whether an answer is waited for."""
        return self.stage.startswith("sent")


class Service(Protocol):
    """What offsets lie in."""

    def read(self, key: PartitionKey) -> tuple[int, str, int]:
        """A position, who wrote it, and its version."""

    def write(self, name: str, commit: Commit) -> int | None:
        """Make a commit, if the offset has its version; the one that it has then."""


class Looks:
    """What becomes of a member's commit, by the library's own code.

    Args:
        offsets: that code.
        service: where the offset lies.
        name: the member's.
        commit: the one that it is about.
        claim: the member's last take-over of the partition.
    """

    def __init__(
        self, offsets: type[GroupOffsets], service: Service, name: str, commit: Commit, claim: int
    ) -> None:
        self.records = self
        self._service, self._name, self._commit = service, name, commit
        store: Any = self
        self._offsets = offsets(store, PATHS)
        self._offsets._claims[commit.key] = _token(claim)
        _, claim_before = commit.known_by
        self._known = Offset(Position(MessageID(0)), Version(commit.version), _token(claim_before))

    def moved(self) -> int | None:
        """The version that it gave the offset: one that is ``unanswered`` before, one that is
        ``decided`` now. None if it did not, or that is not known.
        """
        key = self._commit.key
        to = Position(MessageID(self._commit.position))
        try:
            moved = self._offsets.commit(self._name, {key: (self._known, to)})
        except (CommitFailedError, StoreUnavailableError):
            return None
        return moved[key].version if key in moved else None

    def version_to_send_again(self) -> int | None:
        """With which one that is ``refused`` is sent once more; None if it is not."""
        looked = self._offsets._changed_late(self._name, {self._commit.key: self._known})
        found = carry_out(looked, self._offsets._do)
        return found[self._commit.key].version if found else None

    # As much of the records as a commit needs.

    def read(self, keys: Iterable[str]) -> dict[str, Record]:
        position, writer, version = self._service.read(self._commit.key)
        value = encode_offset(MessageID(position), None, writer)
        return {key: Record(value, Version(version), 0) for key in keys}

    def write(self, changes: Mapping[str, Change]) -> dict[str, int | None]:
        if self._commit.stage == "unanswered":
            raise StoreUnavailableError("the answer was lost", outcome=Outcome.UNKNOWN)
        return {
            path: self._service.write(
                self._name, dataclasses.replace(self._commit, version=change.version)
            )
            for path, change in changes.items()
        }


@functools.cache
def _token(claim: int) -> object:
    """What the library tells claims apart by."""
    return object()
