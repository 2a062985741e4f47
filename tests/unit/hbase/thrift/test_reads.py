"""Scans live in one process of a gateway, and give what was asked for or an error."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from Hbase_thrift import TCell, TRowResult

from hqueue import StoreUnavailableError
from hqueue.format import rowkey
from hqueue.hbase.schema import HEADER_COLUMN
from hqueue.hbase.thrift.connection import Connection, Service
from hqueue.hbase.thrift.gateways import Gateways
from hqueue.hbase.thrift.locations import Locations
from hqueue.hbase.thrift.reads import TableReads
from hqueue.log.ports import Row, RowStream
from tests.support.memory.cluster import MemoryCluster
from tests.support.memory.gateway import GatewayPair

TABLE = "q"
WAIT_S = 30
ROWS = 8


@pytest.fixture
def served() -> Iterator[GatewayPair]:
    cluster = MemoryCluster()
    cluster.create(TABLE, 2, None, {}, "id")
    for slot in range(ROWS):
        cluster.put(TABLE, rowkey.encode(0, slot), {HEADER_COLUMN: b"h"})
    pair = GatewayPair(cluster)
    yield pair
    pair.close()


@pytest.fixture
def gateways(served: GatewayPair) -> Iterator[Gateways]:
    opened = Gateways(served.settings())
    yield opened
    opened.close()


@pytest.fixture
def reads(gateways: Gateways) -> TableReads:
    return TableReads(gateways, TABLE, Locations(gateways, TABLE))


def slots(rows: list[Any]) -> list[int]:
    return [row.slot for row in rows]


def test_a_scan_does_not_go_on_in_another_process_that_numbers_its_scans_alike(
    served: GatewayPair, reads: TableReads
) -> None:
    before = reads.open(0, 0, ROWS, None)
    assert slots(before.read(2)) == [0, 1]
    served.restart()
    with pytest.raises(StoreUnavailableError):
        reads.get([(0, 0)], None)  # Over the connection to what is no more.
    after = reads.open(0, 5, ROWS, None)
    with pytest.raises(StoreUnavailableError):
        before.read(2)
    before.close()
    assert slots(after.read(2)) == [5, 6]


def test_a_scan_goes_on_over_any_connection_that_is_older(
    gateways: Gateways, reads: TableReads
) -> None:
    before = reads.open(0, 0, ROWS, None)
    gateway = gateways.choose(Service.THRIFT1)

    def open_another(first: Connection) -> tuple[RowStream, Future[list[Row]]]:
        gateway.call(lambda second: None)
        after = reads.open(0, 0, ROWS, None)
        return after, pool.submit(before.read, 1)  # It waits for the first connection.

    with ThreadPoolExecutor(1) as pool:
        after, waiting = gateway.call(open_another)
        assert slots(waiting.result(WAIT_S)) == [0]
    for _ in range(2):
        assert slots(gateway.call(lambda held: after.read(1)))
    gateway.avoid()
    gateway.call(lambda connection: None)
    with pytest.raises(StoreUnavailableError):
        before.read(1)  # It might be another process that this connection leads to.


@pytest.mark.parametrize("given", [[2], [6], [4, 3], [3, 3], [3, 4, 5]])
def test_rows_that_were_not_asked_for_are_refused(
    served: GatewayPair, reads: TableReads, given: list[int]
) -> None:
    scan = reads.open(0, 2, 6, None)
    assert slots(scan.read(1)) == [2]
    cells = {HEADER_COLUMN: TCell(value=b"h", timestamp=1)}
    rows = [TRowResult(row=rowkey.encode(0, slot), columns=cells) for slot in given]
    served.answer("scannerGetList", lambda *asked: rows)
    with pytest.raises(StoreUnavailableError):
        scan.read(2)


def test_scans_that_a_hung_gateway_does_not_close_are_left_to_it(
    served: GatewayPair, reads: TableReads
) -> None:
    asked: list[int] = []
    goes_on = threading.Event()

    def hang(_: object, number: int) -> None:
        asked.append(number)
        goes_on.wait(30)

    scans = [reads.open(0, 0, ROWS, None) for _ in range(5)]
    served.answer("scannerClose", hang)
    began = time.monotonic()
    for scan in scans:
        scan.close()
    took_s = time.monotonic() - began
    goes_on.set()
    assert took_s < 5
    assert len(asked) == 1
