"""A log's port for event loops, natively: callers that are cancelled, deadlines, several loops, and
children of a fork. That it does what every port must is shown by `tests/conformance/test_rows.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any

import pytest

from hqueue import Outcome, Settings, StoreUnavailableError
from hqueue.format import rowkey
from hqueue.hbase.native.native_store import NativeStore
from hqueue.log.ports import Row
from hqueue.log.steps import Newest, PutIfAbsent, ask
from hqueue.log.table_ports import AsyncLogPort
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline, drive_in_loop
from tests.support.looped import LoopThread
from tests.support.region_server import RegionServer, meta_node, region_row
from tests.support.registries import reading
from tests.support.scripted_server import Asked, ScriptedServer

SLOTS = 5
STEPS_MAX = 300


class Cluster:
    """A region server, and a store that finds it."""

    def __init__(self) -> None:
        self.silent: set[str] = set()
        """The methods that are not answered."""
        self._served = RegionServer("q", page=2)
        self._served.rows = {
            rowkey.encode(0, slot): [(b"log", b"batch", b"header"), (b"message", b"t", b"x")]
            for slot in range(SLOTS)
        }
        self.server = ScriptedServer(self._answer)
        self._served.regions = [region_row("q", b"", b"", self.server.address)]
        self.store = NativeStore(Settings(), reading(lambda _: meta_node(self.server.address)))
        self.log = self.store.async_log("q")

    def _answer(self, asked: Asked) -> Iterable[bytes]:
        if asked.method in self.silent:
            self._served.asked.append(asked)
            return []
        return self._served(asked)

    def asked(self, method: str) -> int:
        return sum(each.method == method for each in self._served.asked)

    def under_way(self) -> int:
        """Requests of the running loop whose callers have not left."""
        return sum(each.under_way for each in self.log.servers.connections())

    def close(self) -> None:
        self.store.close()
        self.server.close()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with contextlib.closing(Cluster()) as there:
        yield there


async def read_all(log: AsyncLogPort) -> list[int]:
    stream = await log.open(0, 0, SLOTS, None)
    found: list[Row] = []
    while rows := await stream.read(3):
        found += rows
    await stream.close()
    return [row.slot for row in found]


REQUESTS: dict[str, Callable[[AsyncLogPort], Coroutine[Any, Any, object]]] = {
    "newest": lambda log: log.newest(0, 9),
    "headers": lambda log: log.headers(0, 0, 9),
    "header": lambda log: log.header(0, 1),
    "get": lambda log: log.get([(0, 1), (0, 3)], None),
    "scan": read_all,
    "put_if_absent": lambda log: log.put_if_absent(0, 1, b"other", {b"t": b"y"}),
    "delete_row": lambda log: log.delete_row(0, 9, [b"t"]),
    "record": lambda log: log.record("r"),
    "clock_offset_ms": lambda log: log.clock_offset_ms(),
}


@pytest.mark.parametrize("name", list(REQUESTS))
def test_a_request_may_be_cancelled_after_any_step_and_the_next_is_answered(
    cluster: Cluster, name: str
) -> None:
    request = REQUESTS[name]

    async def cancel_each() -> None:
        log = cluster.store.async_log("q")
        for steps in range(STEPS_MAX):
            task = asyncio.ensure_future(request(log))
            beside = asyncio.ensure_future(log.header(0, 2))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            assert await beside == b"header"
            was_done = not (await asyncio.wait([task]) and task.cancelled())
            assert await read_all(log) == list(range(SLOTS))
            assert cluster.under_way() == 0
            log = cluster.store.async_log("q")  # With a region map that is not read yet.
            if was_done:
                assert steps > 3
                return
        raise AssertionError("it is never done")

    asyncio.run(asyncio.wait_for(cancel_each(), 60))
    assert len(cluster.server.services) == 1


def test_a_put_that_is_cancelled_is_sent_once_at_most(cluster: Cluster) -> None:
    async def cancel() -> None:
        log = cluster.store.async_log("q")
        await log.newest(0, 9)
        cluster.silent.add("Mutate")
        put = asyncio.create_task(log.put_if_absent(0, 7, b"h", {}))
        while not cluster.asked("Mutate"):
            await asyncio.sleep(0.005)
        put.cancel()
        with pytest.raises(asyncio.CancelledError):
            await put
        await read_all(log)

    asyncio.run(asyncio.wait_for(cancel(), 60))
    assert cluster.asked("Mutate") == 1


def test_a_request_takes_no_longer_than_is_left_of_its_operation_and_others_have_their_time(
    cluster: Cluster,
) -> None:
    async def ask_together() -> None:
        log = cluster.store.async_log("q")
        await log.newest(0, 9)
        cluster.silent |= {"Mutate", "Scan"}
        unbounded = asyncio.create_task(log.newest(0, 9))
        began_s = time.monotonic()
        put = ask(PutIfAbsent(0, 7, b"h", {}))
        with pytest.raises(StoreUnavailableError) as caught:
            await drive_in_loop(put, log, Deadline(SYSTEM_CLOCK, 1_200))
        assert caught.value.outcome is Outcome.UNKNOWN
        assert 1.0 <= time.monotonic() - began_s < 10
        assert not unbounded.done()
        unbounded.cancel()
        cluster.silent.clear()
        newest = await drive_in_loop(ask(Newest(0, 9)), log, Deadline(SYSTEM_CLOCK, 1_200))
        assert newest.slot == SLOTS - 1

    asyncio.run(asyncio.wait_for(ask_together(), 60))
    assert cluster.asked("Mutate") == 1


def test_one_port_serves_loops_at_once_and_one_after_the_other_beside_threads(
    cluster: Cluster,
) -> None:
    log, blocking = cluster.store.async_log("q"), cluster.store.log("q")
    with contextlib.closing(LoopThread()) as background:
        for _ in range(3):
            assert asyncio.run(read_all(log)) == list(range(SLOTS))
            assert background.run(read_all(log)) == list(range(SLOTS))
            assert blocking.header(0, 2) == b"header"
    assert len(cluster.server.services) == 3 + 1 + 1


def test_a_child_uses_the_port_in_a_loop_of_its_own_and_the_parents_loop_goes_on(
    cluster: Cluster,
) -> None:
    log = cluster.store.async_log("q")

    async def fork_amid() -> None:
        await read_all(log)
        child = os.fork()
        if child == 0:
            code = 1
            with contextlib.suppress(BaseException):
                asyncio.events._set_running_loop(None)
                code = int(asyncio.run(read_all(log)) != list(range(SLOTS)))
            os._exit(code)
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert await read_all(log) == list(range(SLOTS))

    asyncio.run(asyncio.wait_for(fork_amid(), 60))
    assert len(cluster.server.services) == 2
