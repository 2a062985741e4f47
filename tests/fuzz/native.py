"""Answers of HBase's own RPC: a region server, and master, whose answers are damaged, cut off or
late.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import strategies as st

from hqueue import HQueueError, Settings
from hqueue.format import rowkey
from hqueue.hbase.native.native_store import NativeStore
from hqueue.log.table_ports import LogPort
from hqueue.settings.addresses import Address
from tests.support.looped import LoopThread, looped
from tests.support.region_server import RegionServer, region_row
from tests.support.registries import Named, NamingMaster, NamingNodes
from tests.support.scripted_server import Asked, ScriptedServer

from .damage import Damage, damaged, damages
from .fuzz_store import SteppedClock
from .target import Target

__all__ = ["TARGETS"]

REQUEST_MS = 150
TRY_S_MAX = 5.0
WALL_MS = 1_700_000_000_000
NAMING = ("GetClusterId", "GetActiveMaster", "GetMetaRegionLocations")


class SpoilingServer:
    """True answers, until those with these numbers are damaged."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answered = 0
        self._plan: Mapping[int, list[Damage]] = {}
        self._served = RegionServer("q", page=2, cells=3, beats=True)
        self.server = ScriptedServer(self._answer)
        address = self.server.address
        self._served.regions = [
            region_row("q", b"", b"\0\1", address),
            region_row("q", b"\0\1", b"", address),
        ]
        self._served.rows = {
            rowkey.encode(0, slot): [
                (b"log", b"batch", b"header"),
                (b"message", b"t", b"x" * slot * 100),
            ]
            for slot in range(5)
        }
        named = Named("0f3e-id", address, address)
        self.nodes = NamingNodes(named)
        self._naming = NamingMaster(named)

    def begin(self, plan: Mapping[int, list[Damage]]) -> None:
        """Spoil the answers with these numbers from now on."""
        with self._lock:
            self._answered = 0
            self._plan = plan

    def route(self, address: Address, service: str) -> Address:
        """The way to it; a damaged address leads nowhere."""
        if address != self.server.address:
            raise ConnectionRefusedError("nobody is there")
        return address

    def _answer(self, asked: Asked) -> list[bytes]:
        with self._lock:
            self._answered += 1
            done = self._plan.get(self._answered, [])
        self._served.asked.clear()
        self._naming.asked.clear()
        try:
            (frame,) = (self._naming if asked.method in NAMING else self._served)(asked)
        except (KeyError, AssertionError) as exc:  # No scanner, or one that is elsewhere.
            raise ConnectionError("the connection is closed") from exc
        return [damaged(frame, done, frame)]


@functools.cache
def spoiling() -> SpoilingServer:
    """One for as long as the process lives."""
    return SpoilingServer()


@functools.cache
def _thread() -> LoopThread:
    return LoopThread()


def _scan(log: LogPort) -> None:
    stream = log.open(0, 0, 2**62, None)
    try:
        stream.read(2)
        stream.read(4)
    finally:
        stream.close()


CALLS: dict[str, Callable[[NativeStore, LogPort], object]] = {
    "newest": lambda _, log: log.newest(0, 2**62),
    "headers": lambda _, log: log.headers(0, 0, 500),
    "header": lambda _, log: log.header(0, 0),
    "get": lambda _, log: log.get([(0, 0), (0, 3), (1, 0)], None),
    "scan": lambda _, log: _scan(log),
    "put": lambda _, log: log.put_if_absent(0, 5, b"header", {b"t": b"cell"}),
    "delete row": lambda _, log: log.delete_row(0, 0, [b"t"]),
    "record": lambda _, log: log.record("work"),
    "locations": lambda store, _: store.locations.locate("q", 2),
    "cluster id": lambda store, _: store.cluster_id(),
}


def _call(given: tuple[Mapping[int, list[Damage]], str, bool, bool]) -> None:
    """Whatever a server answers, a call ends in time, and with no other error than its own."""
    logging.getLogger("hqueue").setLevel(logging.CRITICAL)
    plan, call, by_masters, in_loop = given
    served = spoiling()
    served.begin(plan)
    settings = Settings(
        hbase="native",
        hbase_masters=(served.server.address,) if by_masters else (),
        connect_timeout_ms=1_000,
        request_timeout_ms=REQUEST_MS,
        operation_timeout_ms=REQUEST_MS,
    )
    store = NativeStore(settings, served.nodes.asked, SteppedClock(WALL_MS), served.route)
    log = looped(store.async_log("q"), _thread()) if in_loop else store.log("q")
    began_s = time.monotonic()
    try:
        CALLS[call](store, log)
    except HQueueError:
        pass
    finally:
        store.close()
    took_s = time.monotonic() - began_s
    assert took_s < TRY_S_MAX, f"it took {took_s:.1f} s"


plans = st.dictionaries(st.integers(1, 4), damages(3), min_size=1, max_size=3)

TARGETS: list[Target[Any]] = [
    Target(
        "native",
        st.tuples(plans, st.sampled_from(list(CALLS)), st.booleans(), st.booleans()),
        _call,
    )
]
