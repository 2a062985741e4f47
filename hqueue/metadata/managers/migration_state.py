"""Where a queue's topics' metadata is in force, and how far its move to another store is.

In ZooKeeper, wherever the metadata itself lies:

    <root>/regions/<queue>/metadata/stage            where it is in force
    <root>/regions/<queue>/metadata/writers/<id>     ephemeral: the state that a writer acknowledged

The first is ``{"version": 1, "number": 3, "phase": "draining", "home": ["zookeeper", 0],
"copy": ["hbase", 2], "left": [["hbase", 1]], "table": "hqueue_metadata", "by": "<hex>"}``. The
first writer creates it, with number 0 and the store that its setting ``metadata_store`` names.
Until the first move, everything that uses the metadata must have that setting: two hubs with two
stores would both own a topic. ``table`` is the table in HBase, once metadata or a copy of it lies
there; it must be the setting ``metadata_table`` of everything that uses the metadata. The second
record is ``{"version": 1, "number": 3}``.

Each copy is made in a location that has never been used, named by the number of the state in which
it was begun. So whatever comes late, of a process that stood still, comes where nothing is in force
any more, or never was.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import secrets
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from hqueue.errors import (
    BadVersionError,
    InvalidInputError,
    SettingsError,
    UnsupportedFormatError,
)
from hqueue.metadata.encoding import decode_fields, encode_fields, text_of
from hqueue.metadata.ports import ANY, NEW, Change, MetadataStore, Record, Version
from hqueue.metadata.steps import Create, Delete, List, OnStore, Read, Work, Write
from hqueue.runtime.stepwise import stepwise
from hqueue.settings.attributes import check_queue_name
from hqueue.settings.numbers import check_whole

__all__ = [
    "HBASE",
    "MEMORY",
    "ZOOKEEPER",
    "MetadataLocation",
    "MigrationState",
    "MigrationStateRecord",
    "Phase",
]

ZOOKEEPER, HBASE, MEMORY = "zookeeper", "hbase", "memory"
"""The stores."""

NUMBER_MAX = 2**53 - 1
BY_BYTES = 6
OLD_COPIES_MAX = 1_000
"""The largest number of uncleared locations that the record names."""


class Phase(enum.Enum):
    """The phase of a move: what writers may do, and how far the copy is."""

    STABLE = "stable"
    """No move is under way. Records are read and written where they are in force."""

    COPYING = "copying"
    """Records are read and written as in `STABLE`, and are copied meanwhile."""

    DRAINING = "draining"
    """Writers finish the changes under way, acknowledge this, and wait."""

    COMPARING = "comparing"
    """Only the copy is written: records that changed since they were copied are copied again."""

    @property
    def is_open(self) -> bool:
        """Whether writers may make changes."""
        return self in (Phase.STABLE, Phase.COPYING)


class MetadataLocation(NamedTuple):
    """The location of all records of a queue's topics: a store, and a number in it."""

    store: str
    number: int
    """The number of the copy. Before the first move it is 0."""


@dataclasses.dataclass(frozen=True, slots=True)
class MigrationState:
    """The location that is in force, and the progress of a move. Each change except one of
    `old_copies` increases the number.
    """

    number: int
    phase: Phase
    location: MetadataLocation
    """The location that is in force."""
    copy: MetadataLocation | None = None
    """The location that a move copies to; None if no move is under way."""
    old_copies: tuple[MetadataLocation, ...] = ()
    """Locations that may have records that are not in force, and never will be, oldest first."""
    table: str | None = None
    """The table of locations in HBase. None if there are none, or an earlier release wrote
    the record."""

    def location_in(self, store: str) -> MetadataLocation:
        """The location in a store: the one in force, if it is there, else the last one there."""
        there = [
            location for location in (*self.old_copies, self.location) if location.store == store
        ]
        return there[-1] if there else MetadataLocation(store, 0)

    def begun(self, to: str) -> MigrationState:
        """The next state when a move begins, or begins again.

        Raises:
            InvalidInputError: the metadata is being moved to another store.
        """
        if self.copy is not None and self.copy.store != to:
            raise InvalidInputError(
                "the queue's topics' metadata is being moved to another store: abandon that move "
                "first",
                target=self.copy.store,
            )
        copy = MetadataLocation(to, self.number + 1)
        return self._next(Phase.COPYING, copy=copy, old_copies=self._with(self.copy))

    def draining(self) -> MigrationState:
        """The next state when the copy is complete: writers must wait."""
        return self._next(Phase.DRAINING)

    def drained(self) -> MigrationState:
        """The next state when no change is under way any more."""
        return self._next(Phase.COMPARING)

    def switched(self) -> MigrationState:
        """The next state when the copy is put in force."""
        assert self.copy is not None
        return self._next(
            Phase.STABLE, location=self.copy, copy=None, old_copies=self._with(self.location)
        )

    def abandoned(self) -> MigrationState:
        """The next state when the move is abandoned: the location in force stays."""
        return self._next(Phase.STABLE, copy=None, old_copies=self._with(self.copy))

    def cleared(self, location: MetadataLocation) -> MigrationState:
        """The state after the records of a location were deleted."""
        return dataclasses.replace(
            self, old_copies=tuple(each for each in self.old_copies if each != location)
        )

    def _next(self, phase: Phase, **changes: Any) -> MigrationState:
        return dataclasses.replace(self, number=self.number + 1, phase=phase, **changes)

    def _with(self, location: MetadataLocation | None) -> tuple[MetadataLocation, ...]:
        return self.old_copies if location is None else (*self.old_copies, location)


class MigrationStateRecord(OnStore):
    """The record of the migration state, and of its writers. Thread-safe.

    Args:
        session: a session with ZooKeeper.
        root: the prefix of all keys.
        queue: the queue.
        store: the store before the first move, by the setting.
        table: the table of HBase's records, by the setting; None if HBase is not used.
        bound: whether the setting must name the store that is in force before the first move; and
            whether it decides that, if nothing does yet.
        on_change: called with `above` and each state that `change` has made.
    """

    def __init__(
        self,
        session: MetadataStore,
        root: str,
        queue: str,
        store: str,
        *,
        table: str | None = None,
        bound: bool = True,
        on_change: Callable[[str, MigrationState], object] | None = None,
    ) -> None:
        super().__init__(session)
        self._on_change = on_change
        self.first = MigrationState(
            0, Phase.STABLE, MetadataLocation(store, 0), table=table if store == HBASE else None
        )
        """The state that is in force if there is no record."""
        self._queue = queue
        self._table = table
        self._bound = bound
        self.above = f"{root}/regions/{check_queue_name(queue)}/metadata"
        """What it lies below, one segment deep."""
        self._key = f"{self.above}/stage"
        self._writers = f"{self.above}/writers"

    @stepwise
    def read(self) -> Work[tuple[MigrationState, Version]]:
        """The state as it is at a moment after the call began, and its record's version.

        Raises:
            UnsupportedFormatError: the record can't be read.
            SettingsError: metadata is in force elsewhere than the settings say.
        """
        state, version = yield from self._read.steps()
        return self._checked(state), version

    @stepwise
    def settle(self) -> Work[tuple[MigrationState, Version]]:
        """Like `read`; but if nothing says yet where metadata is, this says it: where the setting
        does. So of several writers with different settings all but the first are refused.

        What a process had in memory has ended with it: then another store may be named.
        """
        state, version = yield from self._read.steps()
        if self._bound and version == NEW:
            created = yield Create({self._key: encode_migration_state(self.first)})
            state, version = self._decoded(created), created[self._key].version
        elif self._bound and (yield from self._has_ended(state)):
            yield Write({self._key: Change(encode_migration_state(self.first), version)})
            state, version = yield from self._read.steps()
        return self._checked(state), version

    def state(self, found: Mapping[str, Record]) -> MigrationState:
        """That which is among these records. Raises as `read`."""
        return self._checked(self._decoded(found))

    @stepwise
    def change(self, state: MigrationState, version: Version) -> Work[Version]:
        """Make this the state, if its record is of this version; the version that it has then.

        Raises:
            BadVersionError: somebody else has changed it.
            InvalidInputError: too many earlier copies were left without being cleared.
        """
        if len(state.old_copies) > OLD_COPIES_MAX:
            raise InvalidInputError(
                "too many earlier copies of topics' metadata are left: clear them first",
                old_copies=len(state.old_copies),
            )
        locations = filter(None, (state.location, state.copy, *state.old_copies))
        in_hbase = any(location.store == HBASE for location in locations)
        state = dataclasses.replace(state, table=(state.table or self._table) if in_hbase else None)
        written: Mapping[str, Version | None] = yield Write(
            {self._key: Change(encode_migration_state(state), version)}
        )
        if (done := written[self._key]) is None:
            raise BadVersionError(
                "another process changed the migration state since it was read: try again",
                path=self._key,
            )
        if self._on_change is not None:
            self._on_change(self.above, state)
        return done

    def writer(self, name: str) -> str:
        """Where a writer says what it acknowledged."""
        return f"{self._writers}/{name}"

    @stepwise
    def writers(self) -> Work[dict[str, int]]:
        """Which state each writer that is present acknowledged, by name: as it is at a moment after
        the call began; -1 for what can't be read.
        """
        yield from self._catch_up.steps()
        found: Mapping[str, Record] = yield List(self._writers, 1)
        return {key.rpartition("/")[2]: _acknowledged(key, each) for key, each in found.items()}

    def check_table(self, state: MigrationState) -> None:
        """Check that locations in HBase are in the table that the setting names.

        Raises:
            SettingsError: they are in another table.
        """
        if None not in (state.table, self._table) and state.table != self._table:
            raise SettingsError(
                "this queue's topics' metadata is not in the table that metadata_table names: "
                "set metadata_table to the table in force",
                queue=self._queue,
                metadata_table=self._table,
                in_force=state.table,
            )

    @stepwise
    def delete_unused(self) -> Work[None]:
        """Delete what is kept of writers if none is present, and the state if no move was made. A
        record that can't be read stays, and stops nothing.
        """
        with contextlib.suppress(UnsupportedFormatError):
            state, version = yield from self._read.steps()
            if state.number == 0 and version != NEW:
                yield Delete({self._key: version})
        yield Delete({self._writers: ANY}, levels_above=1)

    @stepwise
    def _read(self) -> Work[tuple[MigrationState, Version]]:
        yield from self._catch_up.steps()
        found: Mapping[str, Record] = yield Read([self._key])
        return self._decoded(found), found[self._key].version if found else NEW

    def _decoded(self, found: Mapping[str, Record]) -> MigrationState:
        record = found.get(self._key)
        return decode_migration_state(record.value, self._key) if record else self.first

    def _has_ended(self, state: MigrationState) -> Work[bool]:
        """Whether it was in the memory of processes none of which writes any more."""
        if state.location.store != MEMORY or state.location == self.first.location:
            return False
        return not (yield from self.writers.steps())

    def _checked(self, state: MigrationState) -> MigrationState:
        """Refuse settings that would look for metadata where it is not."""
        setting = self.first.location.store
        if self._bound and state.number == 0 and state.location.store != setting:
            raise SettingsError(
                "this queue's hubs don't keep topics' metadata in the store that metadata_store "
                "names: set metadata_store to the store in force, or move the metadata with "
                "'hqueue metadata migrate'",
                queue=self._queue,
                metadata_store=setting,
                in_force=state.location.store,
            )
        if state.location.store == HBASE or not self._bound:
            self.check_table(state)
        return state

    @stepwise
    def _catch_up(self) -> Work[None]:
        # It changes nothing; but as a change it goes through ZooKeeper's leader, and what this
        # session reads next is as it was then, or later.
        yield Delete({f"{self.above}/none": ANY})


def encode_migration_state(state: MigrationState) -> bytes:
    """The record of a migration state. No two calls return the same bytes."""
    return encode_fields(
        number=state.number,
        phase=state.phase.value,
        home=state.location,
        copy=state.copy,
        left=state.old_copies,
        **({} if state.table is None else {"table": state.table}),
        by=secrets.token_hex(BY_BYTES),
    )


def decode_migration_state(data: bytes, path: str) -> MigrationState:
    """Reads it; `path` is where it lies, for errors."""

    def location(store: object, number: object) -> MetadataLocation:
        return MetadataLocation(text_of(store), check_whole(number, 0, NUMBER_MAX, option="number"))

    return decode_fields(
        data,
        path,
        lambda fields: MigrationState(
            check_whole(fields["number"], 0, NUMBER_MAX, option="number"),
            Phase(fields["phase"]),
            location(*fields["home"]),
            None if fields["copy"] is None else location(*fields["copy"]),
            tuple(location(*each) for each in fields["left"]),
            None if fields.get("table") is None else text_of(fields["table"]),
        ),
    )


def encode_acknowledgement(number: int) -> bytes:
    """What a writer says that acknowledged a state."""
    return encode_fields(number=number)


def _acknowledged(path: str, record: Record) -> int:
    try:
        return decode_fields(
            record.value,
            path,
            lambda fields: check_whole(fields["number"], 0, NUMBER_MAX, option="number"),
        )
    except UnsupportedFormatError:
        return -1
