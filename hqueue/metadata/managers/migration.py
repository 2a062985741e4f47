"""Moving a queue's topics' metadata from one store to another while it is used."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

from hqueue.errors import (
    HQueueError,
    MetadataError,
    Outcome,
    SettingsError,
    StoreUnavailableError,
    UnsupportedFormatError,
)
from hqueue.metadata.fields import FieldChange, FieldRecord, Found
from hqueue.metadata.managers.layout import OWNERSHIP, PERSISTENCE, SUBSCRIPTION, key_in
from hqueue.metadata.managers.metadata_locations import LocationRecords, MetadataLocations
from hqueue.metadata.managers.migration_state import (
    HBASE,
    MEMORY,
    ZOOKEEPER,
    MetadataLocation,
    MigrationState,
    MigrationStateRecord,
    Phase,
)
from hqueue.metadata.ports import ANY, NEW
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock, Deadline

__all__ = ["MetadataMigration", "OnProgress", "ignore_progress"]

TOGETHER = 256
PAUSE_MS = 20
MOVED = (PERSISTENCE, SUBSCRIPTION)

OnProgress = Callable[[str, int], None]


def ignore_progress(step: str, records: int) -> None:
    """Does nothing."""


class MetadataMigration:
    """Moves a queue's topics' metadata from one store to another. Made by
    `Client.metadata_migration`.

    Hubs keep running meanwhile. Reads are answered all the time. Changes are made while all records
    are copied. They wait while the records are compared and changed ones are copied again; a change
    that waits for longer than an operation may take raises `MetadataReadOnlyError`. A move loses
    nothing, whatever process dies at whatever point: the store in force changes in one step, after
    all records were compared. Owners are not moved: hubs acquire their topics again.

    Args:
        record: the record of the migration state.
        locations: the locations of records.
        clock: measures the wait for writers.
        check: called before anything is moved. It raises if there is no such queue.
    """

    def __init__(
        self,
        record: MigrationStateRecord,
        locations: MetadataLocations,
        clock: Clock = SYSTEM_CLOCK,
        *,
        check: Callable[[], object] = lambda: None,
    ) -> None:
        self._check = check
        self._record = record
        self._locations = locations
        self._clock = clock

    def state(self) -> MigrationState:
        """The location that is in force now, and the progress of a move."""
        return self._record.read()[0]

    def move(
        self,
        to: str,
        *,
        drain_ms: float = 60_000,
        on_progress: OnProgress = ignore_progress,
    ) -> int:
        """Move the metadata to another store. Returns how many records were moved, 0 if it is there
        already.

        A move that was interrupted begins its copy again, in another location. If another process
        is moving the metadata, this call takes the move over, and that process's call fails. If the
        call raises an error, the metadata stays in force where it was, and writers continue there.
        If the process dies, writers continue when the move is repeated or abandoned.

        Args:
            to: ``zookeeper`` or ``hbase``.
            drain_ms: how long to wait for writers until each has finished its changes under way, or
                its session has ended.
            on_progress: called with the present phase (``copying``, ``draining``, ``comparing``)
                and a number of records: 0 when the phase begins, then the size of each batch.

        Raises:
            SettingsError: there is no such store, or metadata can't be moved to it.
            QueueNotFoundError: there is no such queue. Nothing was written.
            InvalidInputError: the metadata is being moved to another store. Abandon that move
                first.
            UnsupportedFormatError: a record can't be read. ``hqueue metadata verify`` names all.
            BadVersionError: another process has taken the move over, or abandoned it.
            StoreUnavailableError: a store or a writer did not answer in time.
            MetadataError: another process writes to the copy, which no hub does.
        """
        if to not in (ZOOKEEPER, HBASE):
            raise SettingsError(
                "topics' metadata can be moved only to 'zookeeper' or 'hbase'", store=to
            )
        self._check()
        state, version = self._record.read()
        if state.phase is Phase.STABLE and state.location.store == to:
            return 0
        if state.location.store == MEMORY:
            raise SettingsError("topics' metadata in the memory of hubs can't be moved", target=to)
        begun = state.begun(to)
        source = self._locations.open(state.location)
        state, version = begun, self._record.change(begun, version)
        try:
            assert begun.copy is not None
            target = self._locations.open(begun.copy)
            on_progress("copying", 0)
            for number in _copy(source, target):
                on_progress("copying", number)
            state = state.draining()
            version = self._record.change(state, version)
            on_progress("draining", 0)
            self._drain(state, drain_ms)
            state = state.drained()
            version = self._record.change(state, version)
            on_progress("comparing", 0)
            moved = 0
            for number in _amend(source, target):
                moved += number
                on_progress("comparing", number)
            self._record.change(state.switched(), version)
        except BaseException:
            # How far it came is read: the answer to its last change may be what is missing. If it
            # is done there is no copy, and if somebody else has taken it over it is another one.
            with contextlib.suppress(HQueueError):
                found, version = self._record.read()
                if found.copy == begun.copy:
                    self._record.change(found.abandoned(), version)
            raise
        return moved

    def abandon(self) -> bool:
        """Abandon a move: the metadata stays in force where it is. Returns whether a move was under
        way.

        Raises:
            BadVersionError: another process continues the move at the same time.
        """
        state, version = self._record.read()
        if state.phase is Phase.STABLE:
            return False
        self._record.change(state.abandoned(), version)
        return True

    def clear(self, *, on_progress: OnProgress = ignore_progress) -> int:
        """Delete the records that moves and interrupted copies left in locations that are not in
        force. Returns how many.

        Raises:
            BadVersionError: another process begins a move at the same time. The deleted records are
                not in force, and never will be.
        """
        number = 0
        while (found := self._record.read())[0].old_copies:
            state, version = found
            for deleted in self._clear(state.old_copies[0]):
                number += deleted
                on_progress("clearing", deleted)
            self._record.change(state.cleared(state.old_copies[0]), version)
        return number

    def _drain(self, state: MigrationState, drain_ms: float) -> None:
        """Wait until each writer that is present has acknowledged this state."""
        deadline = Deadline(self._clock, drain_ms)
        while behind := sorted(
            name for name, number in self._record.writers().items() if number < state.number
        ):
            if deadline.expired:
                raise StoreUnavailableError(
                    "hubs and other writers did not finish their changes in time: try again, or "
                    "end those that don't answer",
                    outcome=Outcome.NOT_APPLIED,
                    writers=behind,
                )
            self._clock.sleep_ms(PAUSE_MS)

    def _clear(self, location: MetadataLocation) -> Iterator[int]:
        records = self._locations.open(location)
        for kind in (OWNERSHIP, *MOVED):
            keys = (key for key, _ in records.records.scan(*records.layout.subtree(kind)))
            store = records.owners if kind == OWNERSHIP else records.records
            while batch := [*itertools.islice(keys, TOGETHER)]:
                yield sum(store.delete(dict.fromkeys(batch, ANY)).values())


Batch = dict[str, FieldRecord]


def _batches(source: LocationRecords) -> Iterator[Batch]:
    """The records that are moved, some hundred at a time.

    Raises:
        UnsupportedFormatError: one can't be read.
    """

    def readable() -> Iterator[tuple[str, FieldRecord]]:
        for kind in MOVED:
            for key, found in source.records.scan(*source.layout.subtree(kind)):
                if not isinstance(found, FieldRecord):
                    raise found
                if source.layout.subject(key) is None or _members(found) is None:
                    raise UnsupportedFormatError(
                        "this node or row is not a record of hqueue", path=key
                    )
                yield key, found

    records = readable()
    while batch := dict(itertools.islice(records, TOGETHER)):
        yield batch


def _copy(source: LocationRecords, target: LocationRecords) -> Iterator[int]:
    """Copy all to where nothing is; how many at a time."""
    for batch in _batches(source):
        changes = {
            key_in(target.layout, key, of=source.layout): FieldChange(each.fields, NEW)
            for key, each in batch.items()
        }
        _write(target, changes)
        yield len(batch)


def _amend(source: LocationRecords, target: LocationRecords) -> Iterator[int]:
    """Compare all with the copy, and copy what has changed since; how many records there are, so
    many at a time.
    """
    number = 0
    for batch in _batches(source):
        keys = {key_in(target.layout, key, of=source.layout): key for key in batch}
        there = target.records.read(keys)
        _write(
            target,
            {
                key: FieldChange(batch[own].fields, ANY if key in there else NEW)
                for key, own in keys.items()
                if not _is_same(there.get(key), batch[own])
            },
        )
        number += len(batch)
        yield len(batch)
    if sum(map(len, _batches(target))) != number:
        for batch in _batches(target):
            keys = {key_in(source.layout, key, of=target.layout): key for key in batch}
            gone = keys.keys() - source.records.read(keys).keys()
            target.records.delete({keys[key]: ANY for key in gone})


def _write(target: LocationRecords, changes: dict[str, FieldChange]) -> None:
    written = target.records.write(changes) if changes else {}
    if None in written.values():
        raise MetadataError(
            "another program writes to the copy of topics' metadata: run one move at a time",
            outcome=Outcome.NOT_APPLIED,
            location=target.location,
        )


def _is_same(found: Found | None, record: FieldRecord) -> bool:
    return isinstance(found, FieldRecord) and _members(found) == _members(record)


def _members(record: FieldRecord) -> dict[str, Any] | None:
    """What a record's fields say; None if one is not JSON."""
    try:
        return {name: json.loads(value) for name, value in record.fields.items()}
    except (ValueError, RecursionError):
        return None
