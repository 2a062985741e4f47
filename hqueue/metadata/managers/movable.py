"""Records that may be moved to another store while they are used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from hqueue.errors import InvalidInputError, MetadataReadOnlyError
from hqueue.metadata.fields import FieldChange, FieldRecord, FieldRecords, Found
from hqueue.metadata.managers.layout import Layout, key_in, subtree_in
from hqueue.metadata.managers.metadata_locations import LocationRecords
from hqueue.metadata.managers.migration_fence import MigrationFence
from hqueue.metadata.managers.migration_state import MigrationState
from hqueue.metadata.outcomes import PartlyDoneError, is_made, partly_done
from hqueue.metadata.ports import ANY, NEW, Version

__all__ = ["MovableRecords"]

VERSIONS_EACH = 2**128
"""A version is that of its store, and the location's number times this: so no version of one
location is one of another. Those of location 0 are the store's own."""


class MovableRecords:
    """`FieldRecords` which lie where the migration state says. Thread-safe.

    Keys are those of one layout, wherever the records lie. Reads are of where they lay a moment
    ago: they are never held up by a move. Changes wait while it is under way, and are made where
    the records lie then: those of a version from before a move find it changed.

    Args:
        fence: holds changes back while metadata is moved.
        locate: gives the records of a migration state's location.
        records: which records of a location.
        layout: whose keys are given, and returned.
    """

    def __init__(
        self,
        fence: MigrationFence,
        locate: Callable[[MigrationState], LocationRecords],
        records: Callable[[LocationRecords], FieldRecords],
        layout: Layout,
    ) -> None:
        self._fence = fence
        self._locate = locate
        self._records = records
        self._layout = layout

    @property
    def partial(self) -> bool:
        """Like `FieldRecords.partial`: of the store where they lie now. A move may change it."""
        return self._records(self._locate(self._fence.state())).partial

    def check_version(self, version: Version) -> None:
        """Like `FieldRecords.check_version`. One of another location is one that has changed."""
        number = max(version, 0) // VERSIONS_EACH
        known = self._fence.known or self._fence.first
        if number > known.number:
            known = self._fence.state(now=True)
        at = self._locate(known)
        if version < 0:
            self._records(at).check_version(version)
        elif number == at.location.number:
            self._records(at).check_version(Version(version % VERSIONS_EACH))
        elif number > known.number:
            raise InvalidInputError(
                "this store never gives a record such a version: give the version of a record "
                "that was read or written",
                version=version,
            )

    def read(self, keys: Iterable[str]) -> dict[str, Found]:
        """Like `FieldRecords.read`."""
        at = self._locate(self._fence.state())
        there = {self._there(at, key): key for key in keys}
        found = self._records(at).read(there)
        return {there[key]: _known_as(at, each) for key, each in found.items()}

    def scan(self, prefix: str, depth: int) -> Iterator[tuple[str, Found]]:
        """Like `FieldRecords.scan`: of where the records lie when it begins."""
        at = self._locate(self._fence.state())
        where = subtree_in(at.layout, prefix, depth, of=self._layout)
        for key, found in self._records(at).scan(*where):
            yield key_in(self._layout, key, of=at.layout), _known_as(at, found)

    def write(self, changes: Mapping[str, FieldChange]) -> dict[str, Version | None]:
        """Like `FieldRecords.write`.

        Raises:
            MetadataReadOnlyError: the move takes longer than is waited; or they were moved
                meanwhile to where no part of a record is changed by itself.
        """

        def write(state: MigrationState) -> _Asked:
            at = self._locate(state)
            records = self._records(at)
            if not records.partial and not all(each.whole for each in changes.values()):
                raise MetadataReadOnlyError(
                    "the metadata was moved to a store that can't change parts of a record: "
                    "write the whole record",
                    store=at.location.store,
                )
            sent = {}
            for key, change in changes.items():
                version = _own(at, change.version)
                if version is not None:
                    own = FieldChange(change.fields, version, change.whole)
                    sent[key] = self._there(at, key), own
            asked = _ask(records.write, sent)
            answers = {key: _exposed(at, asked.answers.get(key)) for key in changes}
            return asked._replace(answers=answers)

        return self._change(write)

    def delete(self, versions: Mapping[str, Version]) -> dict[str, bool]:
        """Like `FieldRecords.delete`. Raises as `write`."""

        def delete(state: MigrationState) -> _Asked:
            at = self._locate(state)
            sent = {}
            for key, version in versions.items():
                own = _own(at, version)
                if own is not None:
                    sent[key] = self._there(at, key), own
            asked = _ask(self._records(at).delete, sent)
            return asked._replace(answers={key: asked.answers.get(key, False) for key in versions})

        return self._change(delete)

    def _there(self, at: LocationRecords, key: str) -> str:
        return key_in(at.layout, key, of=self._layout)

    def _change(self, change: Callable[[MigrationState], _Asked]) -> dict[str, Any]:
        done = self._fence.change(change, lambda asked: any(map(is_made, asked.answers.values())))
        if done.error is not None:
            raise partly_done(done.error, done.answers, done.error.outcome) from done.error
        return done.answers


class _Asked(NamedTuple):
    """What came of several changes."""

    answers: dict[str, Any]
    """Of each: what the call returns for it, or an error."""
    error: PartlyDoneError | None
    """What was raised, if not all came through."""


Input = TypeVar("Input")


def _ask(
    ask: Callable[[dict[str, Input]], Mapping[str, Any]], sent: Mapping[str, tuple[str, Input]]
) -> _Asked:
    """Make changes, each sent under another key than its own."""
    error = None
    answers: Mapping[str, Any] = {}
    try:
        if sent:
            answers = ask(dict(sent.values()))
    except PartlyDoneError as exc:
        answers, error = exc.answers, exc
    return _Asked({key: answers[there] for key, (there, _) in sent.items()}, error)


def _own(at: LocationRecords, version: Version) -> Version | None:
    """A version as the store has it; None if it belongs to another location."""
    if version in (ANY, NEW):
        return version
    number, own = divmod(version, VERSIONS_EACH)
    return Version(own) if number == at.location.number else None


def _exposed(at: LocationRecords, answer: Any) -> Any:
    """What came of a write, with a version as others see it."""
    return (
        Version(at.location.number * VERSIONS_EACH + answer) if isinstance(answer, int) else answer
    )


def _known_as(at: LocationRecords, found: Found) -> Found:
    if not isinstance(found, FieldRecord) or not at.location.number:
        return found
    return found._replace(version=Version(at.location.number * VERSIONS_EACH + found.version))
