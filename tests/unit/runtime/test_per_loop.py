"""What each event loop has of its own, until it is closed."""

from __future__ import annotations

import asyncio
import contextlib
import os

from hqueue.runtime.per_loop import PerLoop
from tests.support.looped import LoopThread
from tests.support.waiting import wait_for


class Item:
    def __init__(self) -> None:
        self.events: list[str] = []


def made() -> PerLoop[Item]:
    return PerLoop(
        Item, lambda item: item.events.append("closed"), lambda item: item.events.append("left")
    )


async def here(of: PerLoop[Item]) -> Item:
    assert of.here() is of.here()
    return of.here()


def test_each_loop_has_its_own_until_it_is_closed() -> None:
    of = made()
    first = asyncio.run(here(of))
    second = asyncio.run(here(of))
    assert first is not second
    assert (first.events, second.events) == (["left"], [])
    assert list(of.items.values()) == [second]


def test_what_another_thread_s_loop_has_is_closed_there() -> None:
    of = made()
    with contextlib.closing(LoopThread()) as thread:
        there = thread.run(here(of))
        stopped = asyncio.new_event_loop()
        idle = stopped.run_until_complete(here(of))

        async def close() -> Item:
            mine = of.here()
            of.close()
            return mine

        mine = asyncio.run(close())
        wait_for(lambda: there.events == ["closed"], "its own loop closed it")
        stopped.close()
    assert mine.events == ["closed"]
    assert idle.events == ["closed", "left"]


def test_a_forked_child_has_none() -> None:
    of = made()
    asyncio.run(here(of))
    child = os.fork()
    if child == 0:
        os._exit(len(of.items))
    assert os.waitpid(child, 0)[1] == 0
    assert len(of.items) == 1
