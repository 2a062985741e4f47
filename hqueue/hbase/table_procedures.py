"""Tables of queues and of records: what is done with them, by whatever way to HBase."""

from __future__ import annotations

import abc
import contextlib
import enum
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Literal, TypeVar

from hqueue.errors import (
    HQueueError,
    NotAQueueError,
    Outcome,
    QueueDisabledError,
    QueueEnabledError,
    QueueExistsError,
    QueueNotFoundError,
    SettingsError,
    StoreUnavailableError,
    UnsupportedFormatError,
)
from hqueue.format import rowkey
from hqueue.hbase.record_cells import HISTORY, RECORD
from hqueue.hbase.schema import LOG, MESSAGE
from hqueue.hbase.table_attributes import (
    FIXED_ATTRIBUTES,
    FORMAT,
    ID,
    PARTITIONS,
    RECORDS,
    RECORDS_FORMAT,
    describe_all,
    text,
)
from hqueue.runtime.clock import Clock, Deadline
from hqueue.runtime.steps import Pause
from hqueue.runtime.steps import Work as AnyWork
from hqueue.runtime.stepwise import OnPorts, stepwise
from hqueue.settings.attributes import QueueDescription
from hqueue.settings.limits import TRUNCATE_PAUSE_MS

__all__ = ["Change", "Step", "TableProcedures"]

Table = TypeVar("Table")
Result = TypeVar("Result")

Work = AnyWork[Any, Result]
"""Makes requests as a way to HBase makes them: see `TableProcedures`."""

Step = Callable[[Deadline], Work[None]]
"""Something that HBase does with a table: one try, which may be made again."""


class Change(enum.Enum):
    """What HBase does with a whole table."""

    ENABLE = enum.auto()
    DISABLE = enum.auto()
    DELETE = enum.auto()
    TRUNCATE = enum.auto()


class TableProcedures(OnPorts, abc.ABC, Generic[Table]):
    """Administration of queues: the store's `TablePort`, and the table of records. Thread-safe.
    Carried out in the caller's thread, or in an event loop.

    Each operation is repeated until it is done or ``operation_timeout_ms`` is over; one that had
    been done by a try whose answer was lost counts as done. A way to HBase says how its requests
    are made, and how it describes a table.

    Args:
        port, loop_port: what is asked, as `OnPorts` takes them.
        clock: where time comes from.
        bound_ms: the bound on an operation.
    """

    TRIES_ARE_KNOWN: ClassVar[bool]
    """Whether HBase knows a try that is made again for the one whose answer was lost."""

    def __init__(self, port: Any, loop_port: Any, clock: Clock, bound_ms: float) -> None:
        super().__init__(port, loop_port, clock)
        self._bound_ms = bound_ms

    @stepwise
    def create(
        self,
        name: str,
        partitions: int,
        ttl_seconds: int | None,
        attributes: Mapping[str, int | str],
    ) -> Work[None]:
        """Create a presharded table that is never split."""
        fixed = {**FIXED_ATTRIBUTES, PARTITIONS: str(partitions).encode()}
        per_region = int(attributes.get("partitions_per_region", 1))

        def make(marked: Mapping[bytes, bytes]) -> Table:
            table = self._new(name, {**fixed, **marked}, (MESSAGE, LOG), small=False)
            self._set_ttl(table, ttl_seconds)
            self._set_attributes(table, attributes)
            return table

        yield from self._create(name, make, rowkey.split_keys(partitions, per_region))

    @stepwise
    def ensure_records(self, name: str) -> Work[None]:
        """Let there be a table of records of this name. Of several calls at once one creates it.

        Raises:
            SettingsError: there is another table of that name. It is left alone.
            UnsupportedFormatError: it is of a format that this release doesn't know.
        """

        def make(marked: Mapping[bytes, bytes]) -> Table:
            attributes = {RECORDS: RECORDS_FORMAT, **marked}
            return self._new(name, attributes, (RECORD, HISTORY), small=True)

        try:
            said = yield from self._records_format(name)
        except QueueNotFoundError:
            with contextlib.suppress(QueueExistsError):  # Another was first.
                yield from self._create(name, make, [])
            said = yield from self._records_format(name)
        if said is None:
            raise SettingsError(
                "metadata_table names a table that was not created for topics' metadata: choose "
                "another name",
                metadata_table=name,
            )
        if said != RECORDS_FORMAT:
            raise UnsupportedFormatError(
                "the table of topics' metadata has a format that this release does not know",
                table=name,
                format=text(said),
            )

    @stepwise
    def has_records(self, name: str) -> Work[bool]:
        """Whether there is a table of records of this name."""
        try:
            return (yield from self._records_format(name)) is not None
        except QueueNotFoundError:
            return False

    @stepwise
    def describe(self, name: str) -> Work[QueueDescription]:
        """What HBase says of a queue now."""

        def ask(deadline: Deadline) -> Work[QueueDescription]:
            table = yield from self._queue(name, deadline)
            enabled = yield from self._is_enabled(name, deadline)
            return self._description(table, enabled)

        return self._run(ask)

    @stepwise
    def list(self) -> Work[list[QueueDescription]]:
        """Every queue, by name; tables that are not queues are left out."""

        def ask(deadline: Deadline) -> Work[list[QueueDescription]]:
            found = yield from self._all(deadline)
            marked = [each for each in found if FORMAT in self._attributes_of(each)]
            return describe_all(marked, lambda each: self._description(each, None))

        return self._run(ask)

    @stepwise
    def alter(
        self,
        name: str,
        *,
        ttl_seconds: int | Literal["keep"] | None = "keep",
        attributes: Mapping[str, int | str],
    ) -> Work[None]:
        """Change the TTL (unless ``"keep"``) and attributes; the others stay."""
        begun: Step | None = None

        def modify(deadline: Deadline) -> Work[None]:
            nonlocal begun
            # A try whose answer was lost is asked for again: another one would wait for it.
            step = begun or (yield from self._altered(name, ttl_seconds, attributes, deadline))
            begun = None
            try:
                yield from step(deadline)
            except StoreUnavailableError as exc:
                if self.TRIES_ARE_KNOWN and exc.outcome is Outcome.UNKNOWN:
                    begun = step
                raise

        return self._run(modify)

    def _altered(
        self,
        name: str,
        ttl_seconds: int | Literal["keep"] | None,
        attributes: Mapping[str, int | str],
        deadline: Deadline,
    ) -> Work[Step]:
        """Changes a queue from what it is now."""
        table = yield from self._queue(name, deadline)
        if ttl_seconds != "keep":
            self._set_ttl(table, ttl_seconds)
        self._set_attributes(table, attributes)
        return self._modification(name, table)

    @stepwise
    def enable(self, name: str) -> Work[None]:
        """Enable a queue; one that is enabled stays so."""
        return self._change(name, Change.ENABLE, QueueEnabledError)

    @stepwise
    def disable(self, name: str) -> Work[None]:
        """Disable a queue; one that is disabled stays so."""
        return self._change(name, Change.DISABLE, QueueDisabledError)

    @stepwise
    def delete(self, name: str) -> Work[None]:
        """Delete a disabled queue with its messages."""
        return self._change(name, Change.DELETE, QueueNotFoundError, only_if_lost=True)

    @stepwise
    def truncate(self, name: str) -> Work[None]:
        """Delete all messages and keep the presharding. It is enabled afterwards.

        The table stays disabled for longer than any writer trusts what it knows of the log.
        """
        yield from self.disable.steps(name)
        yield Pause(TRUNCATE_PAUSE_MS)
        # Where a lost try is known again, a table that is enabled was enabled by another.
        done = () if self.TRIES_ARE_KNOWN else QueueEnabledError
        yield from self._change(name, Change.TRUNCATE, done, only_if_lost=True)

    def _create(
        self, name: str, make: Callable[[Mapping[bytes, bytes]], Table], splits: Sequence[bytes]
    ) -> Work[None]:
        """Create a table once, with an ID by which a try whose answer was lost is known again.

        Raises:
            QueueExistsError: there is one of that name.
        """
        token = secrets.token_hex(8).encode()
        creation = self._creation(name, make({ID: token}), splits)
        lost = False

        def create(deadline: Deadline) -> Work[None]:
            nonlocal lost
            try:
                yield from creation(deadline)
            except StoreUnavailableError:
                lost = True
                raise
            except QueueExistsError:
                if not lost:
                    raise
                there = yield from self._get(name, deadline)
                if self._attributes_of(there).get(ID) != token:
                    raise

        return self._run(create)

    def _change(
        self,
        name: str,
        change: Change,
        done: type[HQueueError] | tuple[()],
        *,
        only_if_lost: bool = False,
    ) -> Work[None]:
        """Change a table; a repetition is answered `done`."""
        step = self._change_of(name, change)
        lost = False

        def run(deadline: Deadline) -> Work[None]:
            nonlocal lost
            if not lost and change is not Change.TRUNCATE:  # It was disabled: that has looked.
                yield from self._queue(name, deadline)
            try:
                yield from step(deadline)
            except StoreUnavailableError as exc:
                lost = lost or exc.outcome is Outcome.UNKNOWN
                raise
            except done:
                if only_if_lost and not lost:
                    raise

        return self._run(run)

    def _records_format(self, name: str) -> Work[bytes | None]:
        """The format of a table of records; None for another table.

        Raises:
            QueueNotFoundError: there is no such table.
        """

        def ask(deadline: Deadline) -> Work[bytes | None]:
            table = yield from self._get(name, deadline)
            return self._attributes_of(table).get(RECORDS)

        return self._run(ask)

    def _queue(self, name: str, deadline: Deadline) -> Work[Table]:
        table = yield from self._get(name, deadline)
        if FORMAT not in self._attributes_of(table):
            raise NotAQueueError("this table was not created as a queue", queue=name)
        return table

    def _deadline(self) -> Deadline:
        return Deadline(self._clock, self._bound_ms)

    # What a way to HBase says.

    @abc.abstractmethod
    def _run(self, operation: Callable[[Deadline], Work[Result]]) -> Work[Result]:
        """Carry an operation out within its bound; a malformed answer counts as none."""

    @abc.abstractmethod
    def _new(
        self,
        name: str,
        attributes: Mapping[bytes, bytes],
        families: Sequence[bytes],
        *,
        small: bool,
    ) -> Table:
        """A table to be created, with families of one version; for small rows if `small`."""

    @abc.abstractmethod
    def _set_ttl(self, table: Table, ttl_seconds: int | None) -> None:
        """Let bodies be kept for this long; None for ever."""

    @abc.abstractmethod
    def _set_attributes(self, table: Table, attributes: Mapping[str, int | str]) -> None:
        """Set a queue's attributes; the others stay."""

    @abc.abstractmethod
    def _attributes_of(self, table: Table) -> Mapping[bytes, bytes]:
        """The attributes of a table."""

    @abc.abstractmethod
    def _description(self, table: Table, enabled: bool | None) -> QueueDescription:
        """The queue that a table is."""

    @abc.abstractmethod
    def _get(self, name: str, deadline: Deadline) -> Work[Table]:
        """A table as HBase describes it. Raises `QueueNotFoundError` if it is not there."""

    @abc.abstractmethod
    def _all(self, deadline: Deadline) -> Work[Sequence[Table]]:
        """All tables."""

    @abc.abstractmethod
    def _is_enabled(self, name: str, deadline: Deadline) -> Work[bool]:
        """Whether a table is enabled."""

    @abc.abstractmethod
    def _creation(self, name: str, table: Table, splits: Sequence[bytes]) -> Step:
        """Creates a table."""

    @abc.abstractmethod
    def _modification(self, name: str, table: Table) -> Step:
        """Gives a table the attributes that it has here."""

    @abc.abstractmethod
    def _change_of(self, name: str, change: Change) -> Step:
        """Changes a table as a whole."""
