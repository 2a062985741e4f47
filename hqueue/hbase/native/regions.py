"""The region map: which server has which rows of a table, read from ``hbase:meta``."""

from __future__ import annotations

import bisect
import copy
import enum
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from hqueue.errors import (
    ClosedError,
    HQueueError,
    Outcome,
    QueueDisabledError,
    QueueNotFoundError,
    StoreUnavailableError,
)
from hqueue.hbase.native.cells import Cell
from hqueue.hbase.native.exchanges import Asking, no_turn
from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.registry import Registry, checked_address
from hqueue.hbase.native.scanning import Range, Scanning
from hqueue.hbase.native.translation import reads_answer
from hqueue.net.kdc import kdc_error_of
from hqueue.runtime.clock import bounded_ms
from hqueue.runtime.turn import Turn
from hqueue.settings.addresses import Address

__all__ = ["Meta", "Region", "RegionMap", "TableRegions"]

META_TABLE = "hbase:meta"
META_REGION = b"hbase:meta,,1"
PAGE_ROWS = 10_000
REGION_ROWS_MAX = 1_000_000

_MAGIC = b"PBUF"
_COLUMNS = [pb.Column(family=b"info"), pb.Column(family=b"table")]
"""Whole families, as HBase's own client reads them. Asked for single columns, a region server that
had taken ``hbase:meta`` over from a killed one left cells out, for good.
"""


class Region:
    """A region, and the server that has it.

    Args:
        name: its full name, by which servers find it; with the range it never changes.
        start: its first row.
        end: the first row beyond it; empty for none.
        address: the server.
    """

    __slots__ = ("address", "end", "name", "specifier", "start", "written")

    def __init__(self, name: bytes, start: bytes, end: bytes, address: Address) -> None:
        self.name = name
        self.start = start
        self.end = end
        self.address = address
        self.specifier = pb.RegionSpecifier(type=pb.RegionSpecifier.REGION_NAME, value=name)
        self.written: bytes = self.specifier.SerializeToString()

    def holds(self, row: bytes) -> bool:
        """Whether a row lies in its range."""
        return self.start <= row and (not self.end or row < self.end)


class State(enum.Enum):
    """What ``hbase:meta`` says of a table."""

    MISSING = enum.auto()
    ENABLED = enum.auto()
    DISABLED = enum.auto()
    CHANGING = enum.auto()


class TableRegions:
    """All regions of a table, by start key.

    Args:
        table: its name.
        state: its state.
        regions: those that are there. They may not be all: `check` says.
    """

    def __init__(self, table: str, state: State, regions: Sequence[Region]) -> None:
        self.table = table
        self.state = state
        self.regions = sorted(regions, key=lambda region: region.start)
        self._starts = [region.start for region in self.regions]

    def check(self) -> None:
        """Check that the regions cover all rows, each once.

        Raises:
            StoreUnavailableError: they don't.
        """
        expected = b""
        for number, region in enumerate(self.regions):
            if region.start != expected or (number and not expected):
                break
            expected = region.end
        else:
            if self.regions and not expected:
                return
        raise StoreUnavailableError(
            "some regions of the table are missing, or no server serves them now",
            outcome=Outcome.NOT_APPLIED,
            queue=self.table,
        )

    def of(self, row: bytes) -> Region:
        """The region that holds a row. Checked: a scan for a row that its region does not hold
        would be answered as if there were none.
        """
        region = self.regions[bisect.bisect_right(self._starts, row) - 1]
        if not region.holds(row):
            raise StoreUnavailableError(
                "no region of the table contains this row",
                outcome=Outcome.NOT_APPLIED,
                queue=self.table,
            )
        return region

    def between(self, first: bytes, beyond: bytes) -> list[Region]:
        """The regions that hold rows from `first` on and before `beyond`, by their first rows."""
        low = bisect.bisect_right(self._starts, first) - 1
        return self.regions[low : bisect.bisect_left(self._starts, beyond)]


class Meta:
    """Reads ``hbase:meta``. Thread-safe.

    Args:
        registry: where it is.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def read(self, table: str) -> Asking[TableRegions]:
        """What it says of a table now: its state, and its regions that are served somewhere.

        Raises:
            StoreUnavailableError: there was no usable answer. Not applied, whatever it was read
                for.
            ClosedError: the store is closed. Not applied either.
        """
        try:
            address = yield from self._registry.meta()
            try:
                return (yield from self._read(table, address))
            except HQueueError:
                self._registry.doubt_meta(address)
                raise
        except ClosedError as exc:
            exc.outcome = Outcome.NOT_APPLIED
            raise
        except StoreUnavailableError as exc:
            facts: dict[str, Any] = {**exc.facts, "queue": table}
            text = "the locations of the table's regions can't be found"
            raise StoreUnavailableError(
                exc.text if kdc_error_of(exc) else text,
                outcome=Outcome.NOT_APPLIED,
                **facts,
            ) from exc

    @reads_answer
    def _read(self, table: str, address: Address) -> Asking[TableRegions]:
        name = table.encode()
        region = Region(META_REGION, b"", b"", address)
        # A table's state lies at its name, its regions at its name and a comma; those of a table
        # whose name is longer lie beyond the sign after that, for names begin with none before it.
        # Its rows are ordered by their parts, not by their bytes.
        rows = Range(name, name + b"-")
        scan = Scanning(META_TABLE, region, rows, _COLUMNS, by_bytes=False)
        state, regions = State.MISSING, []
        while True:
            page = yield from scan.read(PAGE_ROWS)
            for cells in page:
                values = {cell.qualifier: bytes(cell.value) for cell in cells}
                if cells[0].row == name:
                    state = _state(values.get(b"state"))
                elif (found := _region(cells, values)) is not None:
                    regions.append(found)
            if len(regions) > REGION_ROWS_MAX:
                raise ValueError("a table has more regions than a table can have")
            if len(page) < PAGE_ROWS:
                return TableRegions(table, state, regions)


class RegionMap:
    """One table's region map, kept until it is doubted. Thread-safe.

    Args:
        meta: reads it.
        table: the table's name.
        wait_ms: how long to wait for another that reads it: what a request may take.
    """

    def __init__(self, meta: Meta, table: str, wait_ms: float) -> None:
        self._meta = meta
        self._table = table
        self._wait_ms = wait_ms
        self._known: TableRegions | None = None
        self._failure: HQueueError | None = None
        self._failed_s = float("-inf")
        self._turn = Turn()

    @property
    def asking(self) -> int:
        """How many read it, or wait for another that does, at this moment."""
        return self._turn.length

    def regions(self) -> Asking[TableRegions]:
        """The table's regions, all of them.

        Raises:
            QueueDisabledError: the table is disabled.
            QueueNotFoundError: there is no such table.
            StoreUnavailableError: there was no usable answer, or not all regions are served.
        """
        known = self._known
        if known is not None:
            return known
        # For as long as one request takes: the others need its answer.
        wait_s = bounded_ms(self._wait_ms) / 1e3
        late = partial(no_turn, self._table)
        return (yield from self._turn.take(self._read(time.monotonic()), wait_s, late))

    def _read(self, asked_s: float) -> Asking[TableRegions]:
        """Read them, unless another did so since they were asked for."""
        if self._known is not None:
            return self._known
        if self._failure is not None and self._failed_s >= asked_s:
            raise copy.copy(self._failure) from self._failure
        try:
            found = yield from self._meta.read(self._table)
            self._check_state(found)
            found.check()
        except HQueueError as exc:
            self._failure, self._failed_s = exc, time.monotonic()
            raise
        self._known, self._failure = found, None
        return found

    def doubt(self, doubted: TableRegions) -> None:
        """Ask again before the next use, if this is what is known."""
        if self._known is doubted:
            self._known = None

    def explain(self, error: StoreUnavailableError) -> Asking[HQueueError]:
        """Why a region was not served: what to raise for `error`, by what ``hbase:meta`` says. The
        outcome is that of `error`: others of the same request may have been served.
        """
        try:
            self._check_state((yield from self._meta.read(self._table)))
        except HQueueError as exc:
            exc.outcome = error.outcome
            return exc
        return StoreUnavailableError(error.text, outcome=error.outcome, **error.facts)

    def _check_state(self, found: TableRegions) -> None:
        if found.state is State.DISABLED:
            raise QueueDisabledError("the queue is disabled", queue=self._table)
        if found.state is State.MISSING:
            raise QueueNotFoundError("there is no such queue", queue=self._table)


def _state(value: bytes | None) -> State:
    if value is None:
        return State.MISSING
    state = pb.TableState.FromString(value).state
    if state in (pb.TableState.DISABLED, pb.TableState.DISABLING):
        return State.DISABLED
    return State.ENABLED if state == pb.TableState.ENABLED else State.CHANGING


def _region(cells: Sequence[Cell], values: dict[bytes, bytes]) -> Region | None:
    """A region by its row; None for one that was split, or is served nowhere."""
    if b"regioninfo" not in values:
        return None
    info: Any = pb.RegionInfo.FromString(values[b"regioninfo"].removeprefix(_MAGIC))
    server = values.get(b"server", b"")
    if info.offline or info.split or info.replica_id or not server:
        return None
    host, _, port = server.decode().rpartition(":")
    return Region(cells[0].row, info.start_key, info.end_key, checked_address(host, int(port)))
