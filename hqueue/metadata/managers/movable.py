"""Records that may be moved to another store while they are used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from hqueue.errors import InvalidInputError, MetadataReadOnlyError
from hqueue.metadata.fields import FieldChange, FieldRecord, FieldRecords, Found
from hqueue.metadata.managers.layout import Layout, key_in, subtree_in
from hqueue.metadata.managers.metadata_locations import LocationRecords
from hqueue.metadata.managers.migration_fence import MigrationFence
from hqueue.metadata.managers.migration_state import MigrationState
from hqueue.metadata.outcomes import PartlyDoneError, is_made, partly_done
from hqueue.metadata.ports import ANY, NEW, Version
from hqueue.runtime.steps import Give, Work, taken_in
from hqueue.runtime.stepwise import Stepwise, asked, paged, stepwise

__all__ = ["MovableRecords"]

VERSIONS_EACH = 2**128
"""A version is that of its store, and the location's number times this: so no version of one
location is one of another. Those of location 0 are the store's own."""


class MovableRecords(Stepwise):
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

    @stepwise
    def is_partial(self) -> Work[Any, bool]:
        """Like `FieldRecords.is_partial`: of the store where they lie now. A move may change it."""
        at = yield from self._now()
        return bool((yield asked(self._records(at).is_partial)))

    @stepwise
    def check_version(self, version: Version) -> Work[Any, None]:
        """Like `FieldRecords.check_version`. One of another location is one that has changed."""
        number = max(version, 0) // VERSIONS_EACH
        known = self._fence.known or self._fence.first
        if number > known.number:
            known = yield self._fence.state.asked(now=True)
        at = self._locate(known)
        if version < 0:
            yield asked(self._records(at).check_version, version)
        elif number == at.location.number:
            yield asked(self._records(at).check_version, Version(version % VERSIONS_EACH))
        elif number > known.number:
            raise InvalidInputError(
                "this store never assigns such a version: pass the version of a record "
                "that was read or written",
                version=version,
            )

    @stepwise
    def read(self, keys: Iterable[str]) -> Work[Any, dict[str, Found]]:
        """Like `FieldRecords.read`."""
        at = yield from self._now()
        there = {self._there(at, key): key for key in keys}
        found: Mapping[str, Found] = yield asked(self._records(at).read, there)
        return {there[key]: _known_as(at, each) for key, each in found.items()}

    @paged
    def scan(self, prefix: str, depth: int) -> Work[Any, None]:
        """Like `FieldRecords.scan`: of where the records lie when it begins."""
        at = yield from self._now()
        where = subtree_in(at.layout, prefix, depth, of=self._layout)

        def known(page: Sequence[tuple[str, Found]]) -> Work[Any, None]:
            yield Give(
                [
                    (key_in(self._layout, key, of=at.layout), _known_as(at, found))
                    for key, found in page
                ]
            )

        yield from taken_in(self._records(at).scan.asked(*where), known)

    @stepwise
    def write(self, changes: Mapping[str, FieldChange]) -> Work[Any, dict[str, Version | None]]:
        """Like `FieldRecords.write`.

        Raises:
            MetadataReadOnlyError: the move takes longer than is waited; or they were moved
                meanwhile to where no part of a record is changed alone.
        """

        def write(state: MigrationState) -> Work[Any, _Asked]:
            at = self._locate(state)
            records = self._records(at)
            is_whole = all(each.whole for each in changes.values())
            if not is_whole and not (yield asked(records.is_partial)):
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
            came = yield from _ask(records.write, sent)
            answers = {key: _exposed(at, came.answers.get(key)) for key in changes}
            return came._replace(answers=answers)

        return (yield from self._change(write))

    @stepwise
    def delete(self, versions: Mapping[str, Version]) -> Work[Any, dict[str, bool]]:
        """Like `FieldRecords.delete`. Raises as `write`."""

        def delete(state: MigrationState) -> Work[Any, _Asked]:
            at = self._locate(state)
            sent = {}
            for key, version in versions.items():
                own = _own(at, version)
                if own is not None:
                    sent[key] = self._there(at, key), own
            came = yield from _ask(self._records(at).delete, sent)
            return came._replace(answers={key: came.answers.get(key, False) for key in versions})

        return (yield from self._change(delete))

    def _now(self) -> Work[Any, LocationRecords]:
        return self._locate((yield self._fence.state.asked()))

    def _there(self, at: LocationRecords, key: str) -> str:
        return key_in(at.layout, key, of=self._layout)

    def _change(
        self, change: Callable[[MigrationState], Work[Any, _Asked]]
    ) -> Work[Any, dict[str, Any]]:
        done: _Asked = yield self._fence.change.asked(
            change, lambda came: any(map(is_made, came.answers.values()))
        )
        if done.error is not None:
            raise partly_done(done.error, done.answers, done.error.outcome) from done.error
        return done.answers


class _Asked(NamedTuple):
    """What came of several changes."""

    answers: dict[str, Any]
    """Of each: what the call returns for it, or an error."""
    error: PartlyDoneError | None
    """What was raised, if not all came through."""


def _ask(
    ask: Callable[[dict[str, Any]], object], sent: Mapping[str, tuple[str, Any]]
) -> Work[Any, _Asked]:
    """Make changes, each sent under another key than its own."""
    error = None
    answers: Mapping[str, Any] = {}
    try:
        if sent:
            answers = yield asked(ask, dict(sent.values()))
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
