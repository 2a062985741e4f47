"""Tables of queues: create, describe, alter, truncate, delete. Through Thrift2."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Literal

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
    SMALL_BLOCK_BYTES,
    describe,
    describe_all,
    text,
)
from hqueue.hbase.thrift.connection import Service
from hqueue.hbase.thrift.gateways import Gateways
from hqueue.hbase.thrift.idl import hbase2
from hqueue.hbase.thrift.translation import reads_answer
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock, Deadline
from hqueue.settings.attributes import ATTRIBUTES, QueueDescription
from hqueue.settings.limits import TRUNCATE_PAUSE_MS, TTL_SECONDS_MAX

__all__ = ["Tables"]


class Tables:
    """Administration of queues. Thread-safe.

    Each operation is repeated until it is done or ``operation_timeout_ms`` is over; one that had
    been done by a try whose answer was lost counts as done.
    """

    def __init__(self, gateways: Gateways, clock: Clock = SYSTEM_CLOCK) -> None:
        self._gateways = gateways
        self._clock = clock

    @reads_answer
    def create(
        self,
        name: str,
        partitions: int,
        ttl_seconds: int | None,
        attributes: Mapping[str, int | str],
    ) -> None:
        """Create a presharded table that is never split."""
        table_attributes = {**FIXED_ATTRIBUTES, PARTITIONS: str(partitions).encode()}
        families = [
            hbase2.TColumnFamilyDescriptor(name=MESSAGE, maxVersions=1),
            hbase2.TColumnFamilyDescriptor(name=LOG, maxVersions=1),
        ]
        descriptor = hbase2.TTableDescriptor(
            tableName=_table_name(name), columns=families, attributes=table_attributes
        )
        _set_ttl(descriptor, ttl_seconds)
        _set_attributes(descriptor, attributes)
        per_region = int(attributes.get("partitions_per_region", 1))
        self._create(name, descriptor, rowkey.split_keys(partitions, per_region))

    @reads_answer
    def ensure_records(self, name: str) -> None:
        """Let there be a table of records of this name. Of several calls at once one creates it.

        Raises:
            SettingsError: there is another table of that name. It is left alone.
            UnsupportedFormatError: it is of a format that this release doesn't know.
        """
        families = [
            hbase2.TColumnFamilyDescriptor(
                name=family,
                maxVersions=1,
                blockSize=SMALL_BLOCK_BYTES,
                dataBlockEncoding=hbase2.TDataBlockEncoding.FAST_DIFF,
            )
            for family in (RECORD, HISTORY)
        ]
        descriptor = hbase2.TTableDescriptor(
            tableName=_table_name(name), columns=families, attributes={RECORDS: RECORDS_FORMAT}
        )

        try:
            said = self._records_format(name)
        except QueueNotFoundError:
            with contextlib.suppress(QueueExistsError):  # Another was first.
                self._create(name, descriptor, [])
            said = self._records_format(name)
        if said is None:
            raise SettingsError("metadata_table names a table of another kind", metadata_table=name)
        if said != RECORDS_FORMAT:
            raise UnsupportedFormatError(
                "the table of topics' metadata has a format that this release does not know",
                table=name,
                format=text(said),
            )

    @reads_answer
    def has_records(self, name: str) -> bool:
        """Whether there is a table of records of this name."""
        try:
            return self._records_format(name) is not None
        except QueueNotFoundError:
            return False

    def _records_format(self, name: str) -> bytes | None:
        """The format of a table of records; None for another table.

        Raises:
            QueueNotFoundError: there is no such table.
        """
        found = self._deadline().run(
            lambda: self._call("getTableDescriptor", name, _table_name(name))
        )
        return (found.attributes or {}).get(RECORDS)

    def _create(self, name: str, descriptor: Any, splits: Sequence[bytes]) -> None:
        """Create a table once, with an ID by which a try whose answer was lost is known again.

        Raises:
            QueueExistsError: there is one of that name.
        """
        token = secrets.token_hex(8).encode()
        descriptor.attributes[ID] = token
        lost = False

        def create() -> None:
            nonlocal lost
            try:
                self._call("createTable", name, descriptor, splits)
            except StoreUnavailableError:
                lost = True
                raise
            except QueueExistsError:
                if not lost:
                    raise
                there = self._call("getTableDescriptor", name, _table_name(name))
                if (there.attributes or {}).get(ID) != token:
                    raise

        self._deadline().run(create)

    @reads_answer
    def describe(self, name: str) -> QueueDescription:
        """What HBase says of a queue now."""
        return self._deadline().run(
            lambda: _description(
                self._descriptor(name), self._call("isTableEnabled", name, _table_name(name))
            )
        )

    @reads_answer
    def list(self) -> list[QueueDescription]:
        """Every queue, by name; tables that are none are left out."""
        found = self._deadline().run(
            lambda: self._call("getTableDescriptorsByPattern", "", ".*", False)
        )
        marked = [each for each in found if FORMAT in (each.attributes or {})]
        return describe_all(marked, lambda each: _description(each, None))

    @reads_answer
    def alter(
        self,
        name: str,
        *,
        ttl_seconds: int | Literal["keep"] | None = "keep",
        attributes: Mapping[str, int | str],
    ) -> None:
        """Change the TTL (unless ``"keep"``) and attributes; the others stay."""

        def modify() -> None:
            descriptor = self._descriptor(name)
            if ttl_seconds != "keep":
                _set_ttl(descriptor, ttl_seconds)
            _set_attributes(descriptor, attributes)
            self._call("modifyTable", name, descriptor)

        self._deadline().run(modify)

    def enable(self, name: str) -> None:
        """Enable a queue; one that is enabled stays so."""
        self._change(name, "enableTable", QueueEnabledError)

    def disable(self, name: str) -> None:
        """Disable a queue; one that is disabled stays so."""
        self._change(name, "disableTable", QueueDisabledError)

    def delete(self, name: str) -> None:
        """Delete a disabled queue with its messages."""
        self._change(name, "deleteTable", QueueNotFoundError, only_if_lost=True)

    def truncate(self, name: str) -> None:
        """Delete all messages and keep the presharding. It is enabled afterwards.

        The table stays disabled for longer than any writer trusts what it knows of the log.
        """
        self.disable(name)
        self._clock.sleep_ms(TRUNCATE_PAUSE_MS)
        self._change(name, "truncateTable", QueueEnabledError, True, only_if_lost=True)

    @reads_answer
    def _change(
        self,
        name: str,
        method: str,
        done: type[HQueueError],
        *arguments: Any,
        only_if_lost: bool = False,
    ) -> None:
        """Call a method after which a repetition answers `done`."""
        lost = False

        def change() -> None:
            nonlocal lost
            if not lost:
                self._descriptor(name)
            try:
                self._call(method, name, _table_name(name), *arguments)
            except StoreUnavailableError as exc:
                lost = lost or exc.outcome is Outcome.UNKNOWN
                raise
            except done:
                if only_if_lost and not lost:
                    raise

        self._deadline().run(change)

    def _descriptor(self, name: str) -> Any:
        descriptor = self._call("getTableDescriptor", name, _table_name(name))
        if FORMAT not in (descriptor.attributes or {}):
            raise NotAQueueError("this table was not created as a queue", queue=name)
        return descriptor

    def _call(self, method: str, table: str, *arguments: Any) -> Any:
        return self._gateways.call(
            Service.THRIFT2,
            method,
            table,
            *arguments,
            timeout_ms=self._gateways.settings.operation_timeout_ms,
        )

    def _deadline(self) -> Deadline:
        return Deadline(self._clock, self._gateways.settings.operation_timeout_ms)


def _table_name(name: str) -> Any:
    namespace, _, qualifier = name.rpartition(":")
    return hbase2.TTableName(
        ns=namespace.encode() if namespace else b"default", qualifier=qualifier.encode()
    )


def _name_of(table: Any) -> str:
    namespace = (table.ns or b"default").decode()
    qualifier: str = table.qualifier.decode()
    return qualifier if namespace == "default" else f"{namespace}:{qualifier}"


def _set_ttl(descriptor: Any, ttl_seconds: int | None) -> None:
    seconds = TTL_SECONDS_MAX if ttl_seconds is None else ttl_seconds
    for family in descriptor.columns:
        if family.name == MESSAGE:
            family.timeToLive = seconds
            family.attributes = {**(family.attributes or {}), b"TTL": str(seconds).encode()}


def _set_attributes(descriptor: Any, attributes: Mapping[str, int | str]) -> None:
    for name, value in attributes.items():
        if name == "compression":
            for family in descriptor.columns:
                family.compressionType = getattr(hbase2.TCompressionAlgorithm, str(value))
                family.attributes = {
                    **(family.attributes or {}),
                    b"COMPRESSION": str(value).encode(),
                }
        else:
            descriptor.attributes[ATTRIBUTES[name].table_key.encode()] = str(value).encode()


def _description(descriptor: Any, enabled: bool | None) -> QueueDescription:
    families = {family.name: family for family in descriptor.columns}
    message = families.get(MESSAGE)
    return describe(
        _name_of(descriptor.tableName),
        descriptor.attributes,
        None if message is None else message.attributes or {},
        None if message is None else message.timeToLive,
        enabled,
    )
