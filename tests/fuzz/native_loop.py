"""Answers of HBase's own RPC to asyncio's transport: damaged ones, to callers some of whom are
cancelled, and beside the blocking transport, which must take each as the same thing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from hqueue import Settings
from hqueue.errors import HQueueError, StoreUnavailableError
from hqueue.format import rowkey
from hqueue.hbase.native.async_servers import AsyncServers
from hqueue.hbase.native.exchanges import Request
from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.servers import Servers
from hqueue.hbase.native.wire import Answer

from .damage import Damage, damages
from .native import TRY_S_MAX, spoiling
from .target import Target

__all__ = ["TARGETS"]

TOGETHER = 4
REQUEST_MS = 400
SETTINGS = Settings(connect_timeout_ms=1_000)


def _get(slot: int) -> Request:
    served = spoiling()
    region = pb.RegionSpecifier(type=pb.RegionSpecifier.REGION_NAME, value=b"q,,1.x.")
    get = pb.GetRequest(region=region, get=pb.Get(row=rowkey.encode(0, slot)))
    return Request(served.server.address, b"Get", get.SerializeToString())


def _meaning(taken: Answer | BaseException) -> object:
    """What a caller learns."""
    if isinstance(taken, HQueueError):
        return type(taken), taken.outcome
    assert not isinstance(taken, BaseException), taken
    return bytes(taken.message), bytes(taken.cells)


def _blocking(plan: Mapping[int, list[Damage]]) -> object:
    spoiling().begin(plan)
    with contextlib.closing(Servers(SETTINGS)) as servers:
        try:
            return _meaning(servers.ask(_get(3), "q", REQUEST_MS))
        except HQueueError as exc:
            return _meaning(exc)


async def _in_loop(
    plan: Mapping[int, list[Damage]], steps: int
) -> tuple[object, list[object], object]:
    """What one learns who is alone; those beside one who is cancelled; and one who comes later."""
    servers = AsyncServers(SETTINGS)
    try:
        spoiling().begin(plan)
        [alone] = await asyncio.gather(
            servers.ask(_get(3), "q", REQUEST_MS), return_exceptions=True
        )
        spoiling().begin(plan)
        together = [
            asyncio.create_task(servers.ask(_get(slot), "q", REQUEST_MS))
            for slot in range(TOGETHER)
        ]
        for _ in range(steps):
            await asyncio.sleep(0)
        together[0].cancel()
        cancelled, *others = await asyncio.gather(*together, return_exceptions=True)
        if not isinstance(cancelled, asyncio.CancelledError):
            _meaning(cancelled)
        spoiling().begin({})
        for connection in [each.connection for each in servers._connected.here().values()]:
            if connection is not None:
                connection.retire()  # What was damaged may be half a frame.
        later = await servers.ask(_get(3), "q")
        return _meaning(alone), [_meaning(each) for each in others], _meaning(later)
    finally:
        servers.close()
        await asyncio.sleep(0)


def _call(given: tuple[list[Damage], Mapping[int, list[Damage]], int]) -> None:
    """Each call ends in time, as the blocking transport's does; the next one finds it whole."""
    logging.getLogger("hqueue").setLevel(logging.CRITICAL)
    first, more, steps = given
    began_s = time.monotonic()
    there = _blocking({1: first})
    here, _, later = asyncio.run(_in_loop({**more, 1: first}, steps))
    took_s = time.monotonic() - began_s
    assert here == there, f"{here} in a loop, {there} by a thread that blocks"
    assert later == _blocking({})
    assert later[0] is not StoreUnavailableError  # type: ignore[index]
    assert took_s < TRY_S_MAX, f"it took {took_s:.1f} s"


TARGETS: list[Target[Any]] = [
    Target(
        "native-loop",
        st.tuples(
            damages(3),
            st.dictionaries(st.integers(2, TOGETHER), damages(3), max_size=3),
            st.integers(0, 12),
        ),
        _call,
    )
]
