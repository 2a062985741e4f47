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

from hqueue.runtime.loop import BackgroundLoop

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
"""The size of the largest value, which every store can keep."""

Version = NewType("Version", int)
"""The version of a record, which each write changes. It has no other meaning."""

ANY = Version(-1)
"""Matches any version."""

NEW = Version(-2)
"""Stands for no version: the record is created."""

Group: TypeAlias = Mapping[str, bytes]
"""Registrations that belong together, in the order in which they become visible, if not at once.
The last one shows whether the group is registered, and by whom."""


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """A record as it was read."""

    value: bytes
    version: Version
    changed: int
    """Grows with each change in the store, even if a key was deleted and created again."""


class Change(NamedTuple):
    """A new value for a record, if it still has this version."""

    value: bytes
    version: Version


class Guard(NamedTuple):
    """Another record that must have this version at the moment of a change; otherwise nothing is
    changed. Creating a registration also writes the guard, which then has the next version.
    """

    key: str
    version: Version


class GuardedWrite(NamedTuple):
    """A new value for a record, if nothing is registered at another key."""

    key: str
    value: bytes
    absent: str


class Obstacle(NamedTuple):
    """A registration or a missing record that prevents registrations or guarded writes."""

    key: str
    value: bytes | None
    """The value registered at the key; None if a record is missing, at the key or above it."""


class Attempt(NamedTuple):
    """The result of an attempt to register."""

    session_id: int | None
    """The session that made the attempt; see `MetadataStore.session_id`."""
    obstacle: Obstacle | None
    """What prevents the registration; None if it was made."""


class SessionState(enum.Enum):
    """The state of the connection to the metadata store."""

    CONNECTED = "connected"

    SUSPENDED = "suspended"
    """The connection is cut. Registrations still exist for a while, as far as is known. Owners of
    claims pause, and drop nothing.
    """

    LOST = "lost"
    """The session is over: its registrations are gone, and other clients may have its claims
    already. `Registration` makes registrations again with the next session; claims are not made
    again.
    """


class Request(Protocol):
    """A call of one method of a store: see `hqueue.metadata.steps`."""

    def do(self, store: Any) -> object:
        """Make the call."""


class Watch(Protocol):
    """A listener that is called with changes until it is closed."""

    def close(self) -> None:
        """Stop calling the listener. A call under way may still end. Never raises."""


class ChangeableRecords(Protocol):
    """Existing versioned records, to read and change. Thread-safe."""

    def keys(self, prefix: str, depth: int) -> Sequence[str]:
        """Return the keys `depth` segments below a prefix that are records, or have records below
        them.
        """

    def list(self, prefix: str, depth: int) -> Mapping[str, Record]:
        """Return the records `depth` segments below a prefix."""

    def read(self, keys: Iterable[str]) -> Mapping[str, Record]:
        """Return those of these records that exist."""

    def write(
        self, changes: Mapping[str, Change], guards: Mapping[str, Guard] | None = None
    ) -> Mapping[str, Version | None]:
        """Change records. Each is changed on its own, if it has the given version and its guard, if
        any, has its version.

        If an answer is lost, the result is looked up: a record with the next version and with the
        same value was written by this call. If several clients may write the same value and it
        matters which one did, the value names its writer. If other clients changed the record
        since, the outcome is `Outcome.UNKNOWN`.

        Returns:
            The version that each record has now; None for a record that had another version or did
            not exist. It was not changed.

        Raises:
            StoreUnavailableError: with an outcome; some may have been written.
        """

    def remove(
        self, versions: Mapping[str, Version], guards: Mapping[str, Guard] | None = None
    ) -> Mapping[str, bool | None]:
        """Delete records, each if it has the given version and its guard, if any, has its version.

        Returns:
            For each whether this call deleted it; None for a record that stays because it has
            records below it.

        Raises:
            StoreUnavailableError: with an outcome; some may have been deleted. If an answer was
                lost, it can't be looked up which call deleted a record.
        """

    def delete(self, versions: Mapping[str, Version], *, levels_above: int = 0) -> Collection[str]:
        """Delete records, each if it has this version and nothing below it.

        Args:
            levels_above: how many levels above the records hold no records themselves. A store with
                nodes also deletes nodes of these levels that are empty now.

        Returns:
            The keys of the records that stay. Missing records count as deleted.
        """


class Records(ChangeableRecords, Protocol):
    """Versioned records. Registrations can be read as records, too. Thread-safe."""

    def create(self, values: Mapping[str, bytes]) -> Mapping[str, Record]:
        """Create records at keys that have none. Returns the present record of each key."""


class Ephemerals(Protocol):
    """Ephemeral registrations, which last until release or the session's end. Thread-safe."""

    def put(
        self, groups: Sequence[Group], *, is_own: Callable[[bytes], bool], parents: bool = False
    ) -> Attempt:
        """Register groups once, each as a whole. This session's earlier registrations get these
        values.

        A group of another session is replaced if `is_own` returns True for its last value, which
        means that its holder can't be alive; otherwise it stays.

        Args:
            parents: whether to create missing records above a key; otherwise one is an obstacle.
        """

    def claim(self, values: Mapping[str, bytes]) -> Collection[str]:
        """Register keys that no session has. Returns those that this session has now, earlier ones
        included. Missing keys above them are created.
        """

    def create(
        self, values: Mapping[str, bytes], guards: Mapping[str, Guard] | None = None
    ) -> Mapping[str, Version | None]:
        """Register keys that no session has registered, not even this one. Missing keys above them
        are created. A lost answer is looked up: each value names its writer. A guard is written
        together with its registration: of two registrations with one guard, only one is made.

        Returns:
            The version of each registration; None if the key was registered already, or its guard
            has another version.
        """

    def release(self, keys: Iterable[str], *, wait: bool = True) -> None:
        """Remove this session's registrations of these keys, in this order.

        Args:
            wait: whether to wait for a connection, and to try again.
        """

    def own(self, keys: Iterable[str], on_change: Callable[[str], None]) -> Mapping[str, Record]:
        """Return the records of these keys, as far as this session has registered them now.

        The next change of each is reported once, even if another client removes, replaces or
        overwrites the registration. A change while the session is not connected is not reported;
        call again when it is connected.

        Args:
            keys: keys that this session registered.
            on_change: called with the key, by a thread that must not be blocked: it notes the key
                and returns.
        """

    def write_where_absent(self, writes: Sequence[GuardedWrite]) -> Obstacle | None:
        """Change records whose guards are absent. The store changes several records at once, all or
        none: at least 250 with values of up to 50 bytes and with keys of a root of up to 200 bytes
        and three of the longest names below it.

        Returns:
            What prevented the changes, if anything; then nothing was changed.

        Raises:
            StoreUnavailableError: with an outcome. It is also raised if an obstacle is found after
                some records were, or may have been, changed.
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
        """The time for which the store keeps a session without a sign of life."""

    @property
    def loop(self) -> BackgroundLoop:
        """The loop that carries what is done with the session in the background: the process's, or
        the one of the program that the session belongs to. Listeners of `watch` are called as
        `BackgroundLoop.notify` calls them.

        Raises:
            As `hqueue.runtime.alarm.needed_loop`.
        """

    def watch(
        self,
        prefix: str,
        depth: int,
        on_change: Callable[[Mapping[str, Record]], None],
        loop: BackgroundLoop | None = None,
    ) -> Watch:
        """Report the records that lie `depth` segments below a prefix: all of them, when they are
        first known and after each change.

        Changes that come together are reported once. The listener is never called twice at
        a time. While the session is suspended the last view stays valid; after that, and after it
        was lost, the records are read again. A watch costs nothing while nothing changes. Changes
        above the depth may go unnoticed.

        Args:
            prefix, depth: where the records lie.
            on_change: the listener.
            loop: reads what changed, and calls the listener; the session's if None.
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
        """Make a request without blocking the event loop. Returns its answer, or raises its error.
        If the caller is cancelled, the outcome of the request is unknown.
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

    def close_later(self, delay_ms: float) -> None:
        """End the session in a while, in the background, without waiting for that. Never raises."""
