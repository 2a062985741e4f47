"""Tables of queues: create, describe, alter, truncate, delete. Through the master."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

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
from hqueue.hbase.native.master import Master, Procedure
from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.table_schema import (
    attributes_of,
    description,
    family,
    name_of,
    set_attributes,
    set_ttl,
    table_name,
    table_schema,
)
from hqueue.hbase.native.translation import reads_answer
from hqueue.hbase.record_cells import HISTORY, RECORD
from hqueue.hbase.schema import LOG, MESSAGE
from hqueue.hbase.table_attributes import (
    FIXED_ATTRIBUTES,
    FORMAT,
    ID,
    PARTITIONS,
    RECORDS,
    RECORDS_FORMAT,
    SMALL_BLOCK_BYTES,
    describe_all,
    text,
)
from hqueue.runtime.clock import Deadline
from hqueue.settings.attributes import QueueDescription
from hqueue.settings.limits import TRUNCATE_PAUSE_MS

__all__ = ["Tables"]

Result = TypeVar("Result")

_ONE_VERSION = {b"VERSIONS": b"1"}


class Tables:
    """Administration of queues: the store's `TablePort`. Thread-safe.

    Each operation is repeated until it is done or ``operation_timeout_ms`` is over; one that had
    been done by a try whose answer was lost counts as done.

    Args:
        master: the master.
    """

    def __init__(self, master: Master) -> None:
        self._master = master
        self._clock = master.clock

    def create(
        self,
        name: str,
        partitions: int,
        ttl_seconds: int | None,
        attributes: Mapping[str, int | str],
    ) -> None:
        """Create a presharded table that is never split."""
        schema = table_schema(
            name,
            {**FIXED_ATTRIBUTES, PARTITIONS: str(partitions).encode()},
            [family(MESSAGE, _ONE_VERSION), family(LOG, _ONE_VERSION)],
        )
        set_ttl(schema, ttl_seconds)
        set_attributes(schema, attributes)
        per_region = int(attributes.get("partitions_per_region", 1))
        self._create(name, schema, rowkey.split_keys(partitions, per_region))

    def ensure_records(self, name: str) -> None:
        """Let there be a table of records of this name. Of several calls at once one creates it.

        Raises:
            SettingsError: there is another table of that name. It is left alone.
            UnsupportedFormatError: it is of a format that this release doesn't know.
        """
        small = {
            **_ONE_VERSION,
            b"BLOCKSIZE": str(SMALL_BLOCK_BYTES).encode(),
            b"DATA_BLOCK_ENCODING": b"FAST_DIFF",
        }
        try:
            said = self._records_format(name)
        except QueueNotFoundError:
            families = [family(RECORD, small), family(HISTORY, small)]
            with contextlib.suppress(QueueExistsError):  # Another was first.
                self._create(name, table_schema(name, {RECORDS: RECORDS_FORMAT}, families), [])
            said = self._records_format(name)
        if said is None:
            raise SettingsError("metadata_table names a table of another kind", metadata_table=name)
        if said != RECORDS_FORMAT:
            raise UnsupportedFormatError(
                "the table of topics' metadata has a format that this release does not know",
                table=name,
                format=text(said),
            )

    def has_records(self, name: str) -> bool:
        """Whether there is a table of records of this name."""
        try:
            return self._records_format(name) is not None
        except QueueNotFoundError:
            return False

    def describe(self, name: str) -> QueueDescription:
        """What HBase says of a queue now."""
        deadline = self._deadline()

        def ask() -> QueueDescription:
            schema = self._queue(name, deadline)
            state = self._ask(
                "GetTableState", pb.GetTableStateRequest, pb.GetTableStateResponse, name, deadline
            )
            return description(schema, state.table_state.state == pb.TableState.ENABLED)

        return self._run(deadline, ask)

    def list(self) -> list[QueueDescription]:
        """Every queue, by name; tables that are none are left out."""
        deadline = self._deadline()

        def ask() -> list[QueueDescription]:
            found = self._schemas(pb.GetTableDescriptorsRequest(), "", deadline)
            marked = [each for each in found if FORMAT in attributes_of(each)]
            return describe_all(marked, lambda each: description(each, None))

        return self._run(deadline, ask)

    def alter(
        self,
        name: str,
        *,
        ttl_seconds: int | Literal["keep"] | None = "keep",
        attributes: Mapping[str, int | str],
    ) -> None:
        """Change the TTL (unless ``"keep"``) and attributes; the others stay."""
        deadline = self._deadline()

        def modify() -> None:
            schema = self._queue(name, deadline)
            if ttl_seconds != "keep":
                set_ttl(schema, ttl_seconds)
            set_attributes(schema, attributes)
            request = pb.ModifyTableRequest(table_name=table_name(name), table_schema=schema)
            Procedure(self._master, "ModifyTable", request, name).run(deadline)

        self._run(deadline, modify)

    def enable(self, name: str) -> None:
        """Enable a queue; one that is enabled stays so."""
        request = pb.EnableTableRequest(table_name=table_name(name))
        self._change(name, "EnableTable", request, QueueEnabledError)

    def disable(self, name: str) -> None:
        """Disable a queue; one that is disabled stays so."""
        request = pb.DisableTableRequest(table_name=table_name(name))
        self._change(name, "DisableTable", request, QueueDisabledError)

    def delete(self, name: str) -> None:
        """Delete a disabled queue with its messages."""
        request = pb.DeleteTableRequest(table_name=table_name(name))
        self._change(name, "DeleteTable", request, QueueNotFoundError, only_if_lost=True)

    def truncate(self, name: str) -> None:
        """Delete all messages and keep the presharding. It is enabled afterwards.

        The table stays disabled for longer than any writer trusts what it knows of the log.
        """
        self.disable(name)
        self._clock.sleep_ms(TRUNCATE_PAUSE_MS)
        request = pb.TruncateTableRequest(tableName=table_name(name), preserveSplits=True)
        truncation = Procedure(self._master, "truncateTable", request, name)
        deadline = self._deadline()
        # If it is enabled, another did that: a try whose answer was lost is known by its number.
        self._run(deadline, lambda: truncation.run(deadline))

    def _create(self, name: str, schema: Any, splits: Sequence[bytes]) -> None:
        """Create a table once, with an ID by which a try whose answer was lost is known again.

        Raises:
            QueueExistsError: there is one of that name.
        """
        token = secrets.token_hex(8).encode()
        schema.attributes.add(first=ID, second=token)
        request = pb.CreateTableRequest(table_schema=schema, split_keys=splits)
        creation = Procedure(self._master, "CreateTable", request, name)
        deadline = self._deadline()
        lost = False

        def create() -> None:
            nonlocal lost
            try:
                creation.run(deadline)
            except StoreUnavailableError:
                lost = True
                raise
            except QueueExistsError:
                if not lost or attributes_of(self._schema(name, deadline)).get(ID) != token:
                    raise

        self._run(deadline, create)

    def _change(
        self,
        name: str,
        method: str,
        request: Any,
        done: type[HQueueError],
        *,
        only_if_lost: bool = False,
    ) -> None:
        """Let the master change a table; a repetition is answered `done`."""
        change = Procedure(self._master, method, request, name)
        deadline = self._deadline()
        lost = False

        def run() -> None:
            nonlocal lost
            if not lost:
                self._queue(name, deadline)
            try:
                change.run(deadline)
            except StoreUnavailableError as exc:
                lost = lost or exc.outcome is Outcome.UNKNOWN
                raise
            except done:
                if only_if_lost and not lost:
                    raise

        self._run(deadline, run)

    def _records_format(self, name: str) -> bytes | None:
        """The format of a table of records; None for another table.

        Raises:
            QueueNotFoundError: there is no such table.
        """
        deadline = self._deadline()
        return self._run(deadline, lambda: attributes_of(self._schema(name, deadline)).get(RECORDS))

    def _queue(self, name: str, deadline: Deadline) -> Any:
        schema = self._schema(name, deadline)
        if FORMAT not in attributes_of(schema):
            raise NotAQueueError("this table was not created as a queue", queue=name)
        return schema

    def _schema(self, name: str, deadline: Deadline) -> Any:
        request = pb.GetTableDescriptorsRequest(table_names=[table_name(name)])
        found = self._schemas(request, name, deadline)
        if not found:
            raise QueueNotFoundError("there is no such queue", queue=name)
        if len(found) > 1 or name_of(found[0]) != name:
            raise StoreUnavailableError("the master speaks of another table", queue=name)
        return found[0]

    def _schemas(self, request: Any, name: str, deadline: Deadline) -> Any:
        kind = pb.GetTableDescriptorsResponse
        answer = self._master.ask("GetTableDescriptors", request, kind, name, deadline)
        return list(answer.table_schema)

    def _ask(self, method: str, request: Any, kind: Any, name: str, deadline: Deadline) -> Any:
        message = request(table_name=table_name(name))
        return self._master.ask(method, message, kind, name, deadline)

    def _deadline(self) -> Deadline:
        return Deadline(self._clock, self._master.servers.settings.operation_timeout_ms)

    @staticmethod
    def _run(deadline: Deadline, operation: Callable[[], Result]) -> Result:
        return deadline.run(reads_answer(operation))
