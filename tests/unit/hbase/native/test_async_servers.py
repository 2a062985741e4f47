"""What asyncio's transport promises beyond the blocking one: callers that are cancelled, loops that
end, children of a fork. What both promise is in `test_servers`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from typing import Any

import pytest

from hqueue import ClosedError, Outcome, Settings, StoreUnavailableError
from hqueue.errors import HQueueError
from hqueue.hbase.native.async_connection import AsyncConnection
from hqueue.hbase.native.async_servers import AsyncServers
from hqueue.hbase.native.calls import REQUESTS_MAX
from hqueue.hbase.native.exchanges import Request
from hqueue.hbase.native.opening import Opened, Opener
from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.wire import CLIENT
from hqueue.settings.addresses import Address
from tests.support.looped import LoopThread
from tests.support.scripted_server import Asked, ScriptedServer, answer
from tests.support.waiting import wait_for

LARGE = [b"x" * (64 << 20)]
"""More than the system keeps for a connection."""


def echo(asked: Asked) -> list[bytes]:
    return [answer(asked, pb.NameBytesPair(name="echo", value=asked.message))]


@contextlib.contextmanager
def serving(script: Callable[[Asked], Iterable[bytes]] = echo) -> Iterator[ScriptedServer]:
    with contextlib.closing(ScriptedServer(script)) as server:
        yield server


@contextlib.asynccontextmanager
async def opened(**settings: Any) -> AsyncIterator[AsyncServers]:
    servers = AsyncServers(Settings(**settings))
    try:
        yield servers
    finally:
        servers.close()
        await asyncio.sleep(0)


async def ask(
    servers: AsyncServers, server: ScriptedServer, message: bytes, timeout_ms: float = 30_000
) -> bytes:
    said = await servers.ask(Request(server.address, b"Get", message), "q", timeout_ms)
    return bytes(pb.NameBytesPair.FromString(said.message).value)


def large(server: ScriptedServer) -> Request:
    return Request(server.address, b"Mutate", b"", LARGE, len(LARGE[0]))


def connection_of(servers: AsyncServers) -> AsyncConnection:
    (found,) = servers.connections()
    return found


async def sockets_of(servers: AsyncServers) -> list[Any]:
    """Those of the connections of this loop."""
    transports = [each.transport for each in servers.connections()]
    return [each.get_extra_info("socket") for each in transports if each is not None]


async def until(condition: Callable[[], object]) -> None:
    ends_s = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < ends_s
        await asyncio.sleep(0.005)


def open_sockets() -> set[str]:
    """The sockets of this process, also those of other tests. Each has a number of its own."""
    found = set()
    for each in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # It was closed in between.
            found.add(os.readlink(f"/proc/self/fd/{each}"))
    return {each for each in found if each.startswith("socket:")}


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test that runs in a loop of its own, which has nothing left to do at the end."""

    async def whole() -> None:
        errors: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, error: errors.append(error))
        await asyncio.wait_for(test(), 120)
        await until(lambda: len(asyncio.all_tasks()) == 1)
        assert not errors

    def test_in_loop() -> None:
        asyncio.run(whole())

    test_in_loop.__name__ = test.__name__
    return test_in_loop


@run
async def test_the_late_answer_to_one_that_was_cancelled_is_thrown_away() -> None:
    held: list[Asked] = []

    def script(asked: Asked) -> list[bytes]:
        if asked.message == b"cancelled":
            held.append(asked)
            return []
        late = [answer(each, pb.NameBytesPair(name="echo", value=b"late")) for each in held]
        held.clear()
        return [*late, *echo(asked)]

    with serving(script) as server:
        async with opened() as servers:
            task = asyncio.create_task(ask(servers, server, b"cancelled"))
            await until(lambda: held)
            await cancelled(task)
            assert await ask(servers, server, b"next") == b"next"
            assert connection_of(servers).silent, "nothing is awaited any more"
            assert await ask(servers, server, b"and one") == b"and one"
            assert len(server.services) == 1, "the connection stays"


@run
async def test_one_may_be_cancelled_after_any_step_and_others_have_their_answers() -> None:
    with serving() as server:
        for steps in range(25):
            async with opened() as servers:
                first = asyncio.create_task(ask(servers, server, b"cancelled"))
                others = [
                    asyncio.create_task(ask(servers, server, b"%d" % number)) for number in range(5)
                ]
                for _ in range(steps):
                    await asyncio.sleep(0)
                first.cancel()
                found = await asyncio.gather(*others)
                assert found == [b"%d" % number for number in range(5)]
                with contextlib.suppress(asyncio.CancelledError):
                    assert await first == b"cancelled"
                await until(lambda: connection_of(servers).silent)


@run
async def test_one_that_is_cancelled_while_it_waits_for_room_takes_none() -> None:
    held: list[Asked] = []

    def script(asked: Asked) -> list[bytes]:
        held.append(asked)
        return [each for one in held for each in echo(one)] if asked.message == b"last" else []

    with serving(script) as server:
        async with opened() as servers:
            requests = [Request(server.address, b"Get", b"%d" % n) for n in range(REQUESTS_MAX - 1)]
            many = asyncio.create_task(servers.ask_all(requests, "q"))
            await until(lambda: len(held) == REQUESTS_MAX - 1)
            full = asyncio.create_task(ask(servers, server, b"never answered"))
            await until(lambda: len(held) == REQUESTS_MAX)
            waiting = [asyncio.create_task(ask(servers, server, b"last")) for _ in range(2)]
            await until(lambda: connection_of(servers).waiting == 2)
            await cancelled(waiting[0])
            assert connection_of(servers).waiting == 1
            held.pop()
            full.cancel()  # It counts until it is answered.
            await asyncio.sleep(0.05)
            assert not waiting[1].done()
            assert len(held) == REQUESTS_MAX - 1, "no more is sent than may be"
            server.break_connections()
            answers = await many
            assert {each.outcome for each in answers if isinstance(each, HQueueError)} == {
                Outcome.UNKNOWN
            }
            with pytest.raises(StoreUnavailableError) as caught:
                await waiting[1]
            assert caught.value.outcome is Outcome.NOT_APPLIED, "it was never sent"


@run
async def test_one_that_is_cancelled_while_it_is_sent_is_sent_whole_and_harms_nobody() -> None:
    goes_on = threading.Event()
    came: list[int] = []

    def script(asked: Asked) -> list[bytes]:
        came.append(len(asked.cells))
        if asked.message == b"first":
            goes_on.wait(60)
        return echo(asked)

    with serving(script) as server:
        async with opened() as servers:
            first = asyncio.create_task(ask(servers, server, b"first"))
            await until(lambda: came)
            half = asyncio.create_task(servers.ask(large(server), "q"))
            await until(lambda: connection_of(servers).sends_part)
            next_one = asyncio.create_task(ask(servers, server, b"next"))
            gone = asyncio.create_task(ask(servers, server, b"gone"))
            await asyncio.sleep(0.02)
            await cancelled(half)
            await cancelled(gone)
            goes_on.set()
            assert (await first, await next_one) == (b"first", b"next")
            assert came == [0, len(LARGE[0]), 0], "one that was not begun is not sent"
            await until(lambda: connection_of(servers).silent)
            assert len(server.services) == 1


@run
async def test_what_the_server_does_not_take_in_ends_a_connection_though_nobody_waits() -> None:
    arrived, stopped = threading.Event(), threading.Event()

    def script(asked: Asked) -> list[bytes]:
        arrived.set()
        stopped.wait(60)
        return echo(asked)

    with serving(script) as server:
        try:
            async with opened() as servers:
                first = asyncio.create_task(ask(servers, server, b"first"))
                await until(arrived.is_set)
                half = asyncio.create_task(servers.ask(large(server), "q", 3_000))
                await until(lambda: connection_of(servers).sends_part)
                next_one = asyncio.create_task(ask(servers, server, b"next"))
                await cancelled(half)
                with pytest.raises(StoreUnavailableError) as caught:
                    await next_one
                assert caught.value.outcome is Outcome.NOT_APPLIED
                with pytest.raises(StoreUnavailableError) as caught:
                    await first
                assert caught.value.outcome is Outcome.UNKNOWN
                stopped.set()
                assert await ask(servers, server, b"after") == b"after"
                assert len(server.services) == 2
        finally:
            stopped.set()


@run
async def test_one_that_opens_a_connection_may_be_cancelled_and_another_opens_it() -> None:
    begun = 0

    async def slowly(address: Address, service: str, timeout_s: float) -> Opened:
        nonlocal begun
        begun += 1
        if begun == 1:
            await asyncio.sleep(3_600)
        return await Opener().open_in_loop(address, service, timeout_s)

    with serving() as server:
        servers = AsyncServers(Settings(), slowly)
        first = asyncio.create_task(ask(servers, server, b"first"))
        others = [asyncio.create_task(ask(servers, server, b"%d" % n)) for n in range(3)]
        await until(lambda: begun)
        await cancelled(first)
        assert await asyncio.gather(*others) == [b"0", b"1", b"2"]
        assert begun == 2
        servers.close()


@run
async def test_a_connection_that_is_opened_too_late_or_for_nobody_is_closed() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        address = Address("127.0.0.1", listener.getsockname()[1])
        before = open_sockets()
        filling = []
        for _ in range(4):  # Until the system takes no more for it.
            filling.append(socket.socket())
            filling[-1].setblocking(False)
            with contextlib.suppress(BlockingIOError):
                filling[-1].connect(address)
        await asyncio.sleep(0.05)
        with pytest.raises(TimeoutError):
            await Opener().open_in_loop(address, CLIENT, 0.1)
        task = asyncio.create_task(Opener().open_in_loop(address, CLIENT, 30))
        await asyncio.sleep(0.05)
        await cancelled(task)
        for each in filling:
            each.close()
        await until(lambda: open_sockets() <= before)


@run
async def test_a_name_is_looked_up_by_a_thread_of_which_no_more_than_one_stays() -> None:
    with serving() as server:
        by_name = server.address._replace(host="localhost")
        for each in await asyncio.gather(
            *(Opener().open_in_loop(by_name, CLIENT, 30) for _ in range(8)),
        ):
            each.close()
        names = [each.name for each in threading.enumerate()]
        assert "hqueue-loop-call" in names
        assert not [name for name in names if name.startswith("asyncio")]
        await until(
            lambda: [each.name for each in threading.enumerate()].count("hqueue-loop-call") == 1
        )


def test_a_name_that_no_thread_can_look_up_is_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(*_: object, **named: object) -> None:
        raise HQueueError("the system starts no more threads")

    monkeypatch.setattr("hqueue.runtime.sockets.in_thread", refused)
    with pytest.raises(ConnectionError, match="no more threads"):
        asyncio.run(Opener().open_in_loop(Address("localhost", 1), CLIENT, 30))


@run
async def test_many_share_a_connection_in_one_thread() -> None:
    with serving() as server:
        async with opened() as servers:
            await ask(servers, server, b"first")
            threads = threading.active_count()
            messages = [b"%d" % number * (number % 5_000) for number in range(400)]
            found = await asyncio.gather(*(ask(servers, server, each) for each in messages))
            assert found == messages
            assert threading.active_count() == threads
            assert len(server.services) == 1


class Writes:
    """A transport, and what is handed over to it."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._transport = connection.transport
        self.written: list[int] = []
        connection.connection_made(self)  # type: ignore[arg-type]

    def write(self, data: bytes) -> None:
        self.written.append(len(data))
        assert self._transport is not None
        self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


@run
async def test_small_requests_of_one_turn_go_together_and_one_alone_goes_at_once() -> None:
    with serving() as server:
        async with opened() as servers:
            await ask(servers, server, b"first")
            writes = Writes(connection_of(servers))
            messages = [b"%d" % number for number in range(200)]
            assert await asyncio.gather(*(ask(servers, server, m) for m in messages)) == messages
            assert len(writes.written) == 2
            large = [b"x" * 40_000] * 5
            assert await asyncio.gather(*(ask(servers, server, m) for m in large)) == large
            assert max(writes.written) < 100_000
            writes.written.clear()
            alone = asyncio.create_task(ask(servers, server, b"alone"))
            await asyncio.sleep(0)
            assert len(writes.written) == 1
            assert await alone == b"alone"


class Breaking(Writes):
    """A transport whose connection ends at the third write."""

    def write(self, data: bytes) -> None:
        if len(self.written) == 2:
            assert self._transport is not None
            self._transport.abort()
        super().write(data)


@run
async def test_what_went_together_with_what_failed_is_not_said_to_be_not_applied() -> None:
    with serving(lambda asked: echo(asked) if asked.message == b"first" else []) as server:
        async with opened() as servers:
            await ask(servers, server, b"first")
            Breaking(connection_of(servers))
            messages = [b"alone", *(b"%d" % n * 40_000 for n in range(3))]
            asked = (ask(servers, server, message) for message in messages)
            errors = await asyncio.gather(*asked, return_exceptions=True)
            outcomes = [each.outcome for each in errors if isinstance(each, HQueueError)]
            assert outcomes == [Outcome.UNKNOWN] * 3 + [Outcome.NOT_APPLIED]


async def put_out(servers: AsyncServers, server: ScriptedServer) -> list[asyncio.Task[bytes]]:
    """Requests of one turn: the first is sent, and the others are about to be."""
    tasks = [asyncio.create_task(ask(servers, server, b"%d" % number)) for number in range(4)]
    connection = connection_of(servers)
    while connection.put_out < 3:
        await asyncio.sleep(0)
    return tasks


@run
async def test_what_waits_behind_a_large_request_is_not_sent_for_one_who_is_cancelled() -> None:
    messages: list[bytes] = []
    goes_on = threading.Event()

    def script(asked: Asked) -> list[bytes]:
        messages.append(asked.message)
        if asked.message == b"hold":
            goes_on.wait(30)
        return echo(asked)

    with serving(script) as server:
        async with opened() as servers:
            hold = asyncio.create_task(ask(servers, server, b"hold"))
            await until(lambda: messages)
            small = [asyncio.create_task(ask(servers, server, b"%d" % n)) for n in range(3)]
            behind = asyncio.create_task(servers.ask_all([large(server)], "q"))
            connection = connection_of(servers)
            await until(lambda: connection.sends_part)
            assert connection.put_out == 3
            await cancelled(small[1])
            goes_on.set()
            assert await asyncio.gather(hold, small[0], small[2]) == [b"hold", b"0", b"2"]
            await behind
            assert messages == [b"hold", b"", b"0", b"2"]


@run
async def test_what_was_about_to_be_sent_when_the_connection_ended_is_not_applied() -> None:
    with serving(lambda asked: echo(asked) if asked.message == b"first" else []) as server:
        async with opened() as servers:
            await ask(servers, server, b"first")
            tasks = await put_out(servers, server)
            connection_of(servers).close()
            errors = await asyncio.gather(*tasks, return_exceptions=True)
            outcomes = [each.outcome for each in errors if isinstance(each, HQueueError)]
            assert outcomes == [Outcome.UNKNOWN] + [Outcome.NOT_APPLIED] * 3


@run
async def test_each_is_given_up_at_its_own_time() -> None:
    with serving(lambda asked: []) as server:
        async with opened() as servers:

            async def lasted_s(bound_ms: float) -> float:
                began_s = time.monotonic()
                with pytest.raises(StoreUnavailableError):
                    await ask(servers, server, b"", bound_ms)
                return time.monotonic() - began_s

            bounds_ms = [900.0, 300.0, 600.0]
            lasted = await asyncio.gather(*map(lasted_s, bounds_ms))
            for bound_ms, took_s in zip(bounds_ms, lasted, strict=True):
                assert bound_ms / 1e3 <= took_s
            assert sorted(lasted) == [lasted[1], lasted[2], lasted[0]]


def test_a_loop_that_is_closed_is_followed_by_the_next() -> None:
    servers = AsyncServers(Settings())
    with serving() as server:
        for message in (b"one", b"two"):
            assert asyncio.run(ask(servers, server, message)) == message
        assert len(server.services) == 2
        servers.close()


@run
async def test_loops_at_once_have_connections_of_their_own() -> None:
    with serving() as server:
        async with opened() as servers:
            assert await ask(servers, server, b"here") == b"here"
            there = await asyncio.to_thread(asyncio.run, ask(servers, server, b"there"))
            assert there == b"there"
            connection = connection_of(servers)
            assert await ask(servers, server, b"here") == b"here"
            assert connection_of(servers) is connection
            assert len(server.services) == 2


def test_closed_it_closes_what_it_has_in_every_loop_whether_that_runs_or_not() -> None:
    servers = AsyncServers(Settings())
    held: list[Asked] = []
    with serving(
        lambda asked: echo(asked) if asked.message else held.append(asked) or []
    ) as server:
        running, stopped = LoopThread(), asyncio.new_event_loop()
        assert stopped.run_until_complete(ask(servers, server, b"one")) == b"one"
        under_way = asyncio.run_coroutine_threadsafe(ask(servers, server, b""), running.loop)
        wait_for(lambda: held, "the request")
        sockets = [
            *stopped.run_until_complete(sockets_of(servers)),
            *running.run(sockets_of(servers)),
        ]
        servers.close()
        with pytest.raises(ClosedError) as caught:
            under_way.result(30)
        assert caught.value.outcome is Outcome.UNKNOWN
        for run_there in (stopped.run_until_complete, running.run):
            with pytest.raises(ClosedError) as caught:
                run_there(ask(servers, server, b"two"))
            assert caught.value.outcome is Outcome.NOT_APPLIED
        running.close()
        stopped.close()
        assert [opened.fileno() for opened in sockets] == [-1, -1]


@run
async def test_a_child_asks_by_a_connection_of_its_own_and_the_parents_goes_on() -> None:
    held: list[Asked] = []

    def script(asked: Asked) -> list[bytes]:
        if asked.message == b"under way":
            held.append(asked)
            return []
        late = [frame for each in held for frame in echo(each)] if asked.message == b"go" else []
        return [*late, *echo(asked)]

    with serving(script) as server:
        async with opened() as servers:
            under_way = asyncio.create_task(ask(servers, server, b"under way"))
            await until(lambda: held)
            child = os.fork()
            if child == 0:
                code = 1
                with contextlib.suppress(BaseException):
                    code = int(asyncio.run(ask(servers, server, b"child")) != b"child")
                os._exit(code)
            _, status = await asyncio.to_thread(os.waitpid, child, 0)
            assert os.waitstatus_to_exitcode(status) == 0
            assert await ask(servers, server, b"go") == b"go"
            assert await under_way == b"under way"
            assert len(server.services) == 2
