"""Connections that are kept: how many, for how long, whose they are, and what becomes of them."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from hqueue.rpc.pool import (
    AllInUseError,
    AsyncConnectionPool,
    ConnectionPool,
    KeptConnections,
    NoOlderConnectionError,
    NotConnectedError,
)
from tests.support.doubles import SteppedClock

WAIT_S = 30


class Opened:
    """A connection that does nothing."""

    def __init__(self) -> None:
        self.closed = False
        self.usable = True

    def close(self) -> None:
        self.closed = True


class DeclaredError(Exception):
    """An error that is an answer."""


def pool_of(**given: Any) -> tuple[ConnectionPool[Opened], list[Opened]]:
    opened: list[Opened] = []

    def open_one(open_ms: float) -> Opened:
        assert open_ms == 5
        opened.append(Opened())
        return opened[-1]

    return ConnectionPool(open_one, **given), opened


def call(pool: ConnectionPool[Opened], request: Callable[[Opened], Any], **given: Any) -> Any:
    return pool.call(request, (DeclaredError,), open_ms=5, **given)


def raising(error: BaseException) -> Callable[[Opened], Any]:
    def request(connection: Opened) -> Any:
        raise error

    return request


def test_an_answered_call_leaves_its_connection_for_the_next_one() -> None:
    pool, opened = pool_of()
    assert call(pool, lambda connection: 7) == 7
    with pytest.raises(DeclaredError):
        call(pool, raising(DeclaredError()))
    assert call(pool, lambda connection: connection) is opened[0]
    assert (len(opened), pool.opened, opened[0].closed) == (1, 1, False)


@pytest.mark.parametrize("error", [OSError(), ValueError(), KeyboardInterrupt()])
def test_a_call_without_an_answer_closes_its_connection(error: BaseException) -> None:
    pool, opened = pool_of(in_use_max=1)
    with pytest.raises(type(error)):
        call(pool, raising(error))
    assert opened[0].closed
    assert call(pool, lambda connection: connection) is opened[1], "its place is free again"


def test_calls_beyond_the_bound_wait_for_their_turn_and_no_longer_than_they_may() -> None:
    pool, opened = pool_of(in_use_max=1)
    held, may_end = threading.Event(), threading.Event()

    def hold(connection: Opened) -> None:
        held.set()
        assert may_end.wait(WAIT_S)

    with ThreadPoolExecutor(2) as threads:
        holding = threads.submit(call, pool, hold)
        assert held.wait(WAIT_S)
        with pytest.raises(AllInUseError):
            call(pool, lambda connection: None, wait_ms=20)
        waiting = threads.submit(call, pool, lambda connection: connection)
        may_end.set()
        assert waiting.result(WAIT_S) is opened[0]
        holding.result(WAIT_S)
    assert len(opened) == 1


def test_a_connection_that_is_not_opened_is_no_call_and_holds_no_place() -> None:
    def refuse(open_ms: float) -> Opened:
        raise ConnectionRefusedError("nobody listens")

    pool = ConnectionPool(refuse, in_use_max=1)
    for _ in range(2):
        with pytest.raises(NotConnectedError) as caught:
            pool.call(lambda connection: None, (), open_ms=5, wait_ms=20)
        assert isinstance(caught.value.__cause__, ConnectionRefusedError)


def test_only_a_connection_that_was_opened_before_leads_to_the_same_process() -> None:
    pool, opened = pool_of()

    def open_second(first: Opened) -> None:
        assert call(pool, lambda connection: connection, below=None) is not first

    call(pool, open_second)
    assert len(opened) == 2
    assert call(pool, lambda connection: connection, below=1) is opened[0]
    with pytest.raises(AllInUseError):
        call(pool, lambda first: call(pool, lambda other: None, below=1, wait_ms=20), below=1)
    pool.drop()
    with pytest.raises(NoOlderConnectionError):
        call(pool, lambda connection: None, below=1)


def test_what_idled_for_too_long_is_closed_instead_of_used() -> None:
    clock = SteppedClock()
    pool, opened = pool_of(idle_ms=100, clock=clock)
    call(pool, lambda connection: None)
    clock.now_ms += 100
    call(pool, lambda connection: None)
    assert len(opened) == 1
    clock.now_ms += 101
    assert call(pool, lambda connection: connection) is opened[1]
    assert opened[0].closed


def test_what_can_be_used_no_more_is_closed_instead_of_used() -> None:
    pool, opened = pool_of(usable=lambda connection: connection.usable)
    call(pool, lambda connection: None)
    opened[0].usable = False
    assert call(pool, lambda connection: connection) is opened[1]
    assert opened[0].closed


def test_no_more_are_kept_than_may_be() -> None:
    pool, opened = pool_of(kept_max=1)
    call(pool, lambda outer: call(pool, lambda inner: None))
    assert sorted(each.closed for each in opened) == [False, True]


def test_when_it_is_closed_a_connection_in_use_is_closed_as_its_call_ends() -> None:
    pool, opened = pool_of()
    call(pool, lambda connection: pool.close())
    assert opened[0].closed
    call(pool, lambda connection: None)
    assert opened[1].closed


def test_a_forked_child_uses_and_closes_none_of_its_parents() -> None:
    pool, opened = pool_of(in_use_max=1)

    def fork(connection: Opened) -> int:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                mine = call(pool, lambda own: own, wait_ms=20)
                pool.close()
                code = 0 if mine is not connection and not connection.closed else 2
            finally:
                os._exit(code)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert call(pool, fork) == 0
    assert call(pool, lambda connection: connection) is opened[0]


def test_kept_connections_need_no_threads() -> None:
    kept: KeptConnections[Opened] = KeptConnections(kept_max=1)
    assert kept.take() is None
    first, second = Opened(), Opened()
    kept.keep(first)
    kept.keep(second)
    assert second.closed
    assert kept.take() == (first, 0)
    kept.close()
    kept.keep(first)
    assert first.closed


def test_coroutines_wait_for_a_connection_in_turn_within_a_bound_and_may_be_cancelled() -> None:
    async def run() -> list[str]:
        pool: AsyncConnectionPool[Opened] = AsyncConnectionPool(Opened, 1)
        order: list[str] = []
        release = asyncio.Event()

        async def use(name: str) -> None:
            async with pool.connection(60):
                order.append(name)
                await release.wait()

        async def hold() -> None:
            async with pool.connection(0.01):
                pass

        holding, *waiting = [asyncio.ensure_future(use(name)) for name in "abcd"]
        await asyncio.sleep(0)
        with pytest.raises(AllInUseError):
            await hold()
        waiting[0].cancel()
        release.set()
        await holding
        waiting[1].cancel()  # It has got the connection just now, and has not gone on.
        await asyncio.wait(waiting)
        await use("e")
        return order

    assert asyncio.run(run()) == ["a", "d", "e"]
