"""Work that asks servers, in an event loop: the region map, scans, and who names servers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from typing import Any

import pytest

from hqueue import ClosedError, Outcome, Settings, StoreUnavailableError
from hqueue.errors import QueueDisabledError
from hqueue.hbase.native.async_servers import AsyncServers
from hqueue.hbase.native.masters_registry import MastersRegistry
from hqueue.hbase.native.regions import Meta, RegionMap
from hqueue.hbase.native.scanning import Range, Scanning
from hqueue.hbase.native.zookeeper_registry import ZooKeeperRegistry
from tests.support.region_server import RegionServer, meta_node, region_row
from tests.support.registries import Named, NamingMaster, reading
from tests.support.scripted_server import Asked, ScriptedServer

ROWS = {b"%02d" % number: [(b"m", b"c", b"%d" % number)] for number in range(20)}


class Cluster:
    """A region server, and what knows of it in a loop."""

    def __init__(self, served: RegionServer, server: ScriptedServer) -> None:
        self.served = served
        self.server = server
        self.asked_nodes = 0
        self.servers = AsyncServers(Settings())
        self.map = RegionMap(
            Meta(ZooKeeperRegistry(reading(self._read_node), "/hbase")), "q", 15_000
        )

    def _read_node(self, path: str) -> bytes:
        self.asked_nodes += 1
        return meta_node(self.server.address)


@contextlib.asynccontextmanager
async def cluster(
    answer: Callable[[RegionServer], Callable[[Asked], Iterable[bytes]]] = lambda served: served,
) -> AsyncIterator[Cluster]:
    served = RegionServer("q", rows=ROWS, page=3)
    with contextlib.closing(ScriptedServer(answer(served))) as server:
        served.regions = [
            region_row("q", b"", b"10", server.address),
            region_row("q", b"10", b"", server.address),
        ]
        there = Cluster(served, server)
        try:
            yield there
        finally:
            there.servers.close()
            await asyncio.sleep(0)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test that runs in a loop of its own."""

    def test_in_loop() -> None:
        asyncio.run(asyncio.wait_for(test(), 60))

    test_in_loop.__name__ = test.__name__
    return test_in_loop


@run
async def test_many_that_need_the_region_map_ask_for_it_once() -> None:
    async with cluster() as there:
        found = await asyncio.gather(
            *(there.servers.carry_out(there.map.regions()) for _ in range(50))
        )
        assert len(set(map(id, found))) == 1
        assert [region.start for region in found[0].regions] == [b"", b"10"]
        assert there.asked_nodes == 1
        assert [asked.method for asked in there.served.asked] == ["Scan"]
        there.map.doubt(found[0])
        assert await there.servers.carry_out(there.map.regions()) is not found[0]


@run
async def test_one_that_reads_the_region_map_may_be_cancelled_after_any_step() -> None:
    for steps in range(15):
        async with cluster() as there:
            tasks = [
                asyncio.create_task(there.servers.carry_out(there.map.regions())) for _ in range(4)
            ]
            for _ in range(steps):
                await asyncio.sleep(0)
            tasks[0].cancel()
            first, *others = await asyncio.gather(*tasks, return_exceptions=True)
            assert len(set(map(id, others))) == 1
            assert not isinstance(others[0], BaseException)
            assert isinstance(first, asyncio.CancelledError) or first is others[0]
            assert there.map.asking == 0


@run
async def test_all_that_wait_for_the_region_map_share_its_failure() -> None:
    async with cluster() as there:
        there.served.state = 1  # Disabled.
        errors = await asyncio.gather(
            *(there.servers.carry_out(there.map.regions()) for _ in range(20)),
            return_exceptions=True,
        )
        assert {type(each) for each in errors} == {QueueDisabledError}
        assert len(there.served.asked) == 1
        there.served.state = 0
        assert await there.servers.carry_out(there.map.regions())


@run
async def test_a_scan_goes_on_over_its_pages() -> None:
    async with cluster() as there:
        known = await there.servers.carry_out(there.map.regions())
        scan = Scanning("q", known.of(b"10"), Range(b"12", b"19"), [])
        found = await there.servers.carry_out(scan.read(5))
        found += await there.servers.carry_out(scan.read(5))
        assert [cells[0].row for cells in found] == [b"%02d" % number for number in range(12, 19)]


@run
async def test_a_server_that_does_not_answer_is_an_error_that_is_not_applied() -> None:
    def breaks(served: RegionServer) -> Callable[[Asked], Iterable[bytes]]:
        def script(asked: Asked) -> Iterable[bytes]:
            raise ConnectionError("the connection is closed")

        return script

    async with cluster(breaks) as there:
        for asked_nodes in (1, 2):
            with pytest.raises(StoreUnavailableError) as caught:
                await there.servers.carry_out(there.map.regions())
            assert caught.value.outcome is Outcome.NOT_APPLIED
            assert there.asked_nodes == asked_nodes, "what was named is doubted"
        there.servers.close()
        with pytest.raises(ClosedError):
            await there.servers.carry_out(there.map.regions())


@run
async def test_masters_name_servers_in_a_loop_too() -> None:
    async with cluster() as there:
        address = there.server.address
        named = Named("0f3e-id", address, address)
        with contextlib.closing(ScriptedServer(NamingMaster(named))) as master:
            registry = MastersRegistry(Settings(), [master.address])
            carry_out = there.servers.carry_out
            assert await carry_out(registry.cluster_id()) == named.cluster_id
            assert await carry_out(registry.meta()) == address
            assert await carry_out(registry.master()) == address
