"""What a metadata store must do: two primitives, and the session that they live by.

*Versioned records* are what HBase has as well; *ephemeral registrations* are records that are
there for as long as the session that made them. A key is a path, ``/`` and segments parted by
``/``, each of which could be a file's name. Records lie below others: what has records below it is
created before them, if it is a record itself. A value has at most `VALUE_BYTES_MAX`: who
writes it sees to that.

Each method that asks the store is bounded by the operation's bound of its settings and repeats
what is safe to repeat. Many keys cost few round trips. Each raises

- `StoreUnavailableError` when the store gave no usable answer within the bound;
- `RequestRefusedError` when it will not do it (access rights, for example);
- `ClosedError` after `MetadataStore.close`.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NewType, Protocol, TypeAlias

__all__ = [
    "ANY",
    "NEW",
    "VALUE_BYTES_MAX",
    "Attempt",
    "Change",
    "ChangeableRecords",
    "Ephemerals",
    "Group",
    "Guard",
    "GuardedWrite",
    "MetadataStore",
    "Obstacle",
    "Record",
    "Records",
    "Request",
    "SessionState",
    "Version",
    "Watch",
]

VALUE_BYTES_MAX = 512 * 1024
"""The largest value, so that every store can take it with what surrounds it."""

Version = NewType("Version", int)
"""Which of a record's values is meant: another after each write. Opaque."""

ANY = Version(-1)
"""Whichever there is."""

NEW = Version(-2)
"""None: the record is created."""

Group: TypeAlias = Mapping[str, bytes]
"""Registrations beside each other, in the order in which they become visible, if not at once. The
last one says whether the group is there, and whose it is."""


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """A record as it is."""

    value: bytes
    version: Version
    changed: int
    """Greater with each change of anything, also when a key was deleted and created again."""


class Change(NamedTuple):
    """What a record becomes, if it is of this version."""

    value: bytes
    version: Version


class Guard(NamedTuple):
    """Another record, which must have this version at the moment of a change: else nothing is
    changed. With the creation of a registration it is written, too, and has the next version then.
    """

    key: str
    version: Version


class GuardedWrite(NamedTuple):
    """What a record becomes, if nothing is registered at another key."""

    key: str
    value: bytes
    absent: str


class Obstacle(NamedTuple):
    """What stands in the way of registrations, or of guarded writes."""

    key: str
    value: bytes | None
    """What is registered there; None where a record that is needed is missing: this one, or the
    one above it."""


class Attempt(NamedTuple):
    """What came of an attempt to register."""

    session_id: int | None
    """By which session it was made; see `MetadataStore.session_id`."""
    obstacle: Obstacle | None
    """What is not this session's yet."""


class SessionState(enum.Enum):
    """The state of the connection to the metadata store."""

    CONNECTED = "connected"

    SUSPENDED = "suspended"
    """The connection is cut. Registrations still exist for a while, as far as is known. Owners of
    claims pause, and drop nothing.
    """

    LOST = "lost"
    """The session is over: its registrations are gone, and others may have its claims already.
    Registrations are made again with the next session; claims are not.
    """


class Request(Protocol):
    """A call of one of the methods of a store: see `hqueue.metadata.steps`."""

    def do(self, store: Any) -> object:
        """Make it, of this store."""


class Watch(Protocol):
    """A listener that is called with changes until it is closed."""

    def close(self) -> None:
        """Stop calling the listener. A call under way may still end. Never raises."""


class ChangeableRecords(Protocol):
    """Versioned records that are there, to be read and changed. Thread-safe."""

    def keys(self, prefix: str, depth: int) -> Sequence[str]:
        """The keys so many segments below a prefix that are records, or have records below."""

    def list(self, prefix: str, depth: int) -> Mapping[str, Record]:
        """The records so many segments below a prefix."""

    def read(self, keys: Iterable[str]) -> Mapping[str, Record]:
        """Those of these records that exist."""

    def write(
        self, changes: Mapping[str, Change], guards: Mapping[str, Guard] | None = None
    ) -> Mapping[str, Version | None]:
        """Change records, each on its own, if it is of the version that is known, and its guard,
        if it has one, of its version.

        When an answer is lost it is looked up: a record with the version after the one that was
        known, and with the very value, was written by this call. Where several may write the same
        value, and it matters who did, the value names its writer. Where others changed the record
        since, so that nothing can be known, it is `Outcome.UNKNOWN`.

        Returns:
            The version that each has now; None for one that was not of the known version, or
            didn't exist, and was left as it is.

        Raises:
            StoreUnavailableError: with an outcome; some may have been written.
        """

    def remove(
        self, versions: Mapping[str, Version], guards: Mapping[str, Guard] | None = None
    ) -> Mapping[str, bool | None]:
        """Delete records, each if it is of the version that is known, and its guard, if it has one,
        of its version.

        Returns:
            Whether this call did; None for one that has something below it, and stays.

        Raises:
            StoreUnavailableError: with an outcome; some may have been deleted. Which deletion it
                was can't be looked up where an answer was lost.
        """

    def delete(self, versions: Mapping[str, Version], *, levels_above: int = 0) -> Collection[str]:
        """Delete records, each if it is of this version and has nothing below it.

        Args:
            levels_above: so many levels above them hold no records, but only lead there: a store
                that has them as nodes deletes those that lead nowhere any more.

        Returns:
            Those that stay. What isn't there counts as deleted.
        """


class Records(ChangeableRecords, Protocol):
    """Versioned records. What is registered is read as a record, too. Thread-safe."""

    def create(self, values: Mapping[str, bytes]) -> Mapping[str, Record]:
        """Create records where there are none; returns what is there now for each key."""


class Ephemerals(Protocol):
    """Ephemeral registrations: there until they are released, or the session ends. Thread-safe."""

    def put(
        self, groups: Sequence[Group], *, is_own: Callable[[bytes], bool], parents: bool = False
    ) -> Attempt:
        """Register groups once, each as a whole: what is this session's already gets these values.

        A group that is another session's is replaced if `is_own` says of its last value that its
        holder can't be alive; else it stays.

        Args:
            parents: whether what is missing above a key is created; if not, it is an obstacle.
        """

    def claim(self, values: Mapping[str, bytes]) -> Collection[str]:
        """Register keys that no session has. Returns those that this session has now, earlier ones
        included. Missing keys above them are created.
        """

    def create(
        self, values: Mapping[str, bytes], guards: Mapping[str, Guard] | None = None
    ) -> Mapping[str, Version | None]:
        """Register keys that nobody has, not even this session. What is missing above them is
        created. An answer that is lost is looked up: each value names its writer. A guard is
        written together with its registration: of two registrations with one guard, one is made.

        Returns:
            The version of each; None for those that somebody had, and those whose guard has
            another version.
        """

    def release(self, keys: Iterable[str], *, wait: bool = True) -> None:
        """Remove those of these keys that are this session's, in this order.

        Args:
            wait: whether to wait for a connection, and to try again.
        """

    def own(self, keys: Iterable[str], on_change: Callable[[str], None]) -> Mapping[str, Record]:
        """Those of these keys that this session has registered now, as they are.

        Of each of them the next change is reported, once, by whatever hand it comes: another client
        may remove a registration, replace it, or write over it. A change that comes while the
        session is not connected is not reported; ask again when it is.

        Args:
            keys: what this session registered.
            on_change: called with the key, by a thread that must not be held up: it takes notice
                and returns.
        """

    def write_where_absent(self, writes: Sequence[GuardedWrite]) -> Obstacle | None:
        """Change records whose guards are absent: each only then, and all or none of as many as
        the store changes at once. That is at least 250 with values of up to 50 bytes and keys of
        a root of up to 200 bytes and three of the longest names below it.

        Returns:
            What stood in the way: then nothing was changed.

        Raises:
            StoreUnavailableError: with an outcome. Also where something stands in the way, and
                some were changed before, or may have been.
        """


class MetadataStore(Protocol):
    """A session with a store of records and registrations. Thread-safe.

    In a forked child it begins a new session: registrations stay the parent's, and the parent's
    watches report nothing in the child.
    """

    @property
    def records(self) -> Records: ...

    @property
    def ephemerals(self) -> Ephemerals: ...

    @property
    def state(self) -> SessionState:
        """The session's state as far as it is known here."""

    @property
    def session_id(self) -> int | None:
        """The session's ID, which changes each time that a session begins. None while not
        connected.
        """

    @property
    def session_timeout_ms(self) -> int:
        """How long the store keeps a session without a sign of life."""

    def watch(
        self, prefix: str, depth: int, on_change: Callable[[Mapping[str, Record]], None]
    ) -> Watch:
        """Report the records that lie `depth` segments below a prefix: all of them, when they are
        first known and after each change.

        Changes that come together are reported once. One thread calls the listener, never twice at
        a time. While the session is suspended the last view stays valid; after that, and after it
        was lost, the records are read again. A watch costs nothing while nothing changes. Changes
        above the depth may go unnoticed.
        """

    def on_state(
        self, on_change: Callable[[SessionState], None], on_close: Callable[[], None] | None = None
    ) -> Watch:
        """Report every change of the session's state, in order, beginning with the present state.

        The thread that calls the callback must not be blocked: the callback notes the state and
        returns. A session is LOST when the store says so, or when the connection stays cut for
        longer than the store would keep the session: its registrations can't be relied on then.

        Args:
            on_change: called with the state.
            on_close: called when the session is closed for good.
        """

    async def answer(self, request: Request) -> Any:
        """Make a request for an event loop, which it does not hold up: its answer, or its error.
        Where the caller is cancelled, it is not known what comes of the request.
        """

    def confirm(self) -> float:
        """Confirm with the store that the session is alive. Returns until when that is certain.

        Takes one round trip, and does not wait for a connection. Until the returned time, on the
        clock `hqueue.runtime.clock.SYSTEM_CLOCK.monotonic_ms`, no other session can have the
        registrations of this one. A worker with a claim checks that clock before each act, since a
        process that stood still learns of a lost session only after it continues.

        Raises:
            StoreUnavailableError: there is no connection now, or no answer came.
        """

    def close(self) -> None:
        """End the session: its registrations disappear at once. Never raises."""
