"""A region server for tests: true answers about one table's regions and rows."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from hqueue.hbase.native.cells import CellReader
from hqueue.hbase.native.protocol import pb
from hqueue.settings.addresses import Address
from tests.support.registries import node
from tests.support.scripted_server import Asked, answer, cell

__all__ = ["RegionServer", "meta_node", "region_row"]

META = b"hbase:meta,,1"
Row = tuple[bytes, Sequence[tuple[bytes, bytes, bytes]]]


def meta_node(address: Address) -> bytes:
    """The ZooKeeper node that names the server of ``hbase:meta``."""
    server = pb.ServerName(host_name=address.host, port=address.port, start_code=1)
    return node(pb.MetaRegionServer(server=server))


def region_row(table: str, start: bytes, end: bytes, server: Address | None, **info: Any) -> Row:
    """A region's row in ``hbase:meta``."""
    name = pb.TableName(namespace=b"default", qualifier=table.encode())
    written = pb.RegionInfo(region_id=1, table_name=name, start_key=start, end_key=end, **info)
    cells = [(b"info", b"regioninfo", b"PBUF" + bytes(written.SerializeToString()))]
    if server is not None:
        cells.append((b"info", b"server", str(server).encode()))
    return table.encode() + b"," + start + b",1.x.", cells


@dataclasses.dataclass
class RegionServer:
    """What is asked of it is answered from what it has; it is the script of a `ScriptedServer`.

    Args:
        table: the table's name.
        state: its state in ``hbase:meta``; None if there is no such table.
        regions: the rows of its regions there.
        rows: the table's rows: cells by row key.
        page: the most rows of an answer to a scan.
        cells: after so many cells an answer to a scan breaks off, also in the middle of a row.
        beats: whether every second answer to a scan comes before there is a row.
    """

    table: str
    state: int | None = 0
    regions: Sequence[Row] = ()
    rows: Mapping[bytes, Sequence[tuple[bytes, bytes, bytes]]] = dataclasses.field(
        default_factory=dict
    )
    page: int = 1_000
    cells: int | None = None
    beats: bool = False

    def __post_init__(self) -> None:
        self.asked: list[Asked] = []
        self._lock = threading.Lock()
        self._scans: dict[int, tuple[int, list[Row], bytes | None]] = {}
        """Of each open scan how often it was gone on with, the rows that are left, and the row
        that it said may have more.
        """

    def __call__(self, asked: Asked) -> list[bytes]:
        self.asked.append(asked)
        method: Any = getattr(self, asked.method.lower())
        message, cells = method(asked.message, asked.cells)
        return [answer(asked, message, cells)]

    def scan(self, message: bytes, _: bytes = b"") -> tuple[Any, bytes]:
        said = pb.ScanRequest.FromString(message)
        if said.HasField("scanner_id"):
            number = said.scanner_id
            calls, left, begun = self._scans.pop(number)
            # A server refuses another one: it counts those that say how many came before.
            assert said.next_call_seq == calls
            calls += 1
        else:
            number, calls, left, begun = len(self.asked), 0, self.found(said), None
        response = pb.ScanResponse(scanner_id=number, more_results=True)
        breaks_off = said.client_handles_partials and said.client_handles_heartbeats
        room = self.cells if breaks_off and self.cells else 2**31
        is_beat = breaks_off and self.beats and calls % 2 == 0
        blocks: list[bytes] = []
        complete = 0
        while left and not is_beat and room and len(blocks) < min(self.page, said.number_of_rows):
            key, cells = left[0]
            if begun not in (None, key):  # Only now it is known that there was no more of it.
                complete, begun = complete + 1, None
            else:
                now, rest = cells[:room], cells[room:]
                left = [*([(key, rest)] if rest else []), *left[1:]]
                room -= len(now)
                begun = None if room else key
                complete += begun is None
                blocks.append(_block((key, now)))
                response.cells_per_result.append(len(now))
                response.partial_flag_per_result.append(begun is not None)
            if complete == said.limit_of_rows:
                response.more_results = False
                break
        more = bool(left) or is_beat or bool(begun and blocks)
        response.more_results_in_region = more
        if response.more_results and more:
            self._scans[number] = calls, left, begun
        return response, b"".join(blocks)

    def found(self, said: Any) -> list[Row]:
        """The rows that a scan asks for."""
        scan = said.scan
        if said.region.value == META:
            state = []
            if self.state is not None:
                value = bytes(pb.TableState(state=self.state).SerializeToString())
                state = [(self.table.encode(), [(b"table", b"state", value)])]
            return [*state, *self.regions]
        infos = [cells[0][2] for name, cells in self.regions if name == said.region.value]
        region = pb.RegionInfo.FromString(b"".join(infos).removeprefix(b"PBUF"))
        rows = [
            (key, cells)
            for key, cells in sorted(self.rows.items(), reverse=scan.reversed)
            if region.start_key <= key and (not region.end_key or key < region.end_key)
        ]
        if scan.reversed:
            return [row for row in rows if scan.stop_row < row[0] <= scan.start_row]
        return [row for row in rows if scan.start_row <= row[0] < scan.stop_row]

    def get(self, message: bytes, _: bytes = b"") -> tuple[Any, bytes]:
        key = pb.GetRequest.FromString(message).get.row
        cells = self.rows.get(key, [])
        result = pb.Result(associated_cell_count=len(cells))
        return pb.GetResponse(result=result), _block((key, cells))

    def multi(self, message: bytes, _: bytes = b"") -> tuple[Any, bytes]:
        response, block = pb.MultiResponse(), b""
        for region in pb.MultiRequest.FromString(message).regionAction:
            result = response.regionActionResult.add()
            for action in region.action:
                cells = self.rows.get(action.get.row, [])
                one = result.resultOrException.add(index=action.index)
                one.result.associated_cell_count = len(cells)
                block += _block((action.get.row, cells))
        return response, block

    def mutate(self, message: bytes, cells: bytes) -> tuple[Any, bytes]:
        """A put, perhaps on condition that a cell is absent; others are answered alone."""
        said = pb.MutateRequest.FromString(message)
        mutation, condition = said.mutation, said.condition
        if mutation.mutate_type != pb.MutationProto.PUT:
            return pb.MutateResponse(processed=True), b""
        with self._lock:
            there = self.rows.get(mutation.row, ())
            column = condition.family, condition.qualifier
            if condition.row and any(each[:2] == column for each in there):
                return pb.MutateResponse(processed=False), b""
            put = CellReader(memoryview(cells)).take(mutation.associated_cell_count)
            now = [(bytes(each.family), bytes(each.qualifier), bytes(each.value)) for each in put]
            self.rows = {**self.rows, mutation.row: sorted(now)}
        return pb.MutateResponse(processed=True), b""


def _block(row: Row) -> bytes:
    key, cells = row
    return b"".join(cell(key, *each) for each in cells)
