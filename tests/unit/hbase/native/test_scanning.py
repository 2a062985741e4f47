"""Scans whose answers break off: in the middle of a row, or before there is one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hqueue import Settings
from hqueue.hbase.native.cells import Cell
from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.regions import Region
from hqueue.hbase.native.scanning import Range, Scanning
from hqueue.hbase.native.servers import Servers
from tests.support.region_server import RegionServer, region_row
from tests.support.scripted_server import ScriptedServer, answer, cell

Found = list[tuple[bytes, list[bytes]]]
Begin = Callable[..., "AskedScan"]
ROWS = {
    b"%02d" % number: [(b"m", b"%d" % column, b"%d" % number) for column in range(1 + number % 4)]
    for number in range(12)
}
ALL = Range(b"00", b"99")


class AskedScan:
    """A scan that is read in the caller's thread."""

    def __init__(self, servers: Servers, region: Region, rows: Range, **options: Any) -> None:
        self._servers = servers
        self._scan = Scanning("q", region, rows, [], **options)

    def read(self, limit: int) -> list[list[Cell]]:
        return self._servers.carry_out(self._scan.read(limit))


@pytest.fixture
def begin() -> Iterator[Begin]:
    """A scan of a region with this script."""
    with contextlib.ExitStack() as stack:

        def run(script: Any, rows: Range = ALL, **options: Any) -> AskedScan:
            server = stack.enter_context(contextlib.closing(ScriptedServer(script)))
            servers = stack.enter_context(contextlib.closing(Servers(Settings())))
            name, cells = region_row("q", b"", b"", server.address)
            if isinstance(script, RegionServer):
                script.regions = [(name, cells)]
            return AskedScan(servers, Region(name, b"", b"", server.address), rows, **options)

        yield run


def found(scan: AskedScan, limit: int) -> Found:
    return [(cells[0].row, [each.qualifier for each in cells]) for cells in scan.read(limit)]


@pytest.mark.parametrize("beats", [False, True])
@pytest.mark.parametrize("page", [2, 1_000])
@pytest.mark.parametrize("cells", [1, 2, 3, 5, 100])
@pytest.mark.parametrize("is_reversed", [False, True])
def test_rows_that_come_in_parts_are_put_together(
    begin: Begin, is_reversed: bool, cells: int, page: int, beats: bool
) -> None:
    expected = [(row, [name for _, name, _ in ROWS[row]]) for row in sorted(ROWS)]
    rows = ALL
    if is_reversed:
        expected.reverse()
        rows = Range(b"99", b"", True)
    for limit in (1, 2, 3, 11, 12, 13):
        served = RegionServer("q", rows=ROWS, page=page, cells=cells, beats=beats)
        scan = begin(served, rows)
        assert found(scan, limit) == expected[:limit]
        if limit > 10 and (beats or cells < 10):
            assert len(served.asked) > 1, "an answer did not break off"
        if not is_reversed:
            assert found(scan, 100) == expected[limit:]


def result(rows: list[tuple[bytes, bool]], **said: Any) -> tuple[Any, bytes]:
    """An answer with a cell of each of these rows, and whether there may be more of it."""
    response = pb.ScanResponse(
        scanner_id=1,
        cells_per_result=[1] * len(rows),
        partial_flag_per_result=[is_partial for _, is_partial in rows],
        **said,
    )
    return response, b"".join(cell(row, b"m", b"c", b"value") for row, _ in rows)


MORE = {"more_results": True, "more_results_in_region": True}
SENSELESS: dict[str, tuple[str, list[tuple[Any, bytes]]]] = {
    "a part of an earlier row": (
        "not in order",
        [result([(b"01", True)], **MORE), result([(b"02", False), (b"01", False)], **MORE)],
    ),
    "more of a row that was whole": (
        "not in order",
        [result([(b"01", False)], **MORE), result([(b"01", False)], **MORE)],
    ),
    "the answer has more rows than the request": (
        "more rows",
        [
            result([(b"01", True)], **MORE),
            result([(b"02", False), (b"03", False), (b"04", False)], **MORE),
        ],
    ),
    "an end before the last row": (
        "fewer rows",
        [result([(b"01", False)], more_results=False, more_results_in_region=True)],
    ),
    "more flags than rows": (
        "not those of the request",
        [(pb.ScanResponse(scanner_id=1, partial_flag_per_result=[True], **MORE), b"")],
    ),
    "a row without an end": ("does not end", [result([(b"01", True)], **MORE)] * 100),
}


@pytest.mark.parametrize("kind", SENSELESS)
def test_parts_that_make_no_sense_are_no_answer(begin: Begin, kind: str) -> None:
    match, answers = SENSELESS[kind]
    said = iter(answers)
    scan = begin(lambda asked: [answer(asked, *next(said))], row_bytes_max=1_000)
    with pytest.raises(ValueError, match=match):
        scan.read(3)
