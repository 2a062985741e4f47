"""A worker's calls over real sockets: to subscribers that answer, are silent, go away or babble."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import cast

import pytest

from hqueue import ReceivedMessage, Status
from hqueue.metadata import Address
from hqueue.push.answers import Answer
from hqueue.push.worker_call import WorkerCall
from hqueue.rpc.messages import RefusedCallError
from hqueue_workers.delivery.call_turns import CallTurns
from hqueue_workers.delivery.connection_pool import (
    RECEIVED_BYTES_MAX,
    ConnectionPool,
    LostCallError,
    NoAnswerError,
)
from hqueue_workers.delivery.wire import METHOD, Call, Reply

Converse = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

CALL_BYTES = 3 * 1024 * 1024
HEAD_BYTES = 8 + len(METHOD) + 4


def call(size: int = 10) -> Call:
    return Call(0, 1, (bytes(size),), ((0,),))


async def read_call(reader: asyncio.StreamReader, size: int = 10) -> int:
    """Read a call whose messages have so many bytes; its number."""
    head = await reader.readexactly(HEAD_BYTES)
    await reader.readexactly(3 + 1 + 4 + size + 1)
    return int(struct.unpack(">i", head[-4:])[0])


async def take_call(reader: asyncio.StreamReader, call: WorkerCall) -> None:
    """Read a call, which is answered by `call`."""
    head = await reader.readexactly(HEAD_BYTES + 8)
    assert call.end(head) is None
    await reader.readexactly(11)


def reply(seqid: int, status: int = 0) -> bytes:
    head = struct.pack(">Ii", 0x80010002, len(METHOD)) + METHOD + struct.pack(">i", seqid)
    return head + struct.pack(">bhi", 8, 0, status) + b"\0"


@contextlib.asynccontextmanager
async def subscriber(
    converse: Converse, may_send: Callable[[], bool] = lambda: True
) -> AsyncIterator[ConnectionPool]:
    """A channel to a subscriber that converses so; and its connections, counted."""
    talks: set[asyncio.Task[None]] = set()

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        talks.add(task)
        with contextlib.suppress(OSError, EOFError):
            await converse(reader, writer)
        writer.close()

    server = await asyncio.start_server(accepted, "127.0.0.1", 0)
    pool = ConnectionPool(Address(*server.sockets[0].getsockname()[:2]), may_send, 1)
    try:
        yield pool
    finally:
        pool.close()
        server.close()
        for talk in talks:
            talk.cancel()
        await asyncio.gather(*talks, return_exceptions=True)


async def made(pool: ConnectionPool, timeout_s: float = 10, size: int = 10) -> Reply:
    async with pool.connection() as connection:
        return await connection.call(call(size), timeout_s)


def test_calls_follow_each_other_on_one_connection() -> None:
    connections = 0

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        for status in (0, 1, 2, 0):
            answer = reply(await read_call(reader), status)
            writer.write(answer[:7])  # It may come in pieces.
            await writer.drain()
            writer.write(answer[7:])

    async def scene() -> None:
        async with subscriber(converse) as pool:
            assert [await made(pool) for _ in range(4)] == [
                Reply(status) for status in (0, 1, 2, 0)
            ]

    asyncio.run(scene())
    assert connections == 1


def test_a_refusal_is_no_answer_and_says_why() -> None:
    def refuse(messages: Sequence[ReceivedMessage]) -> Answer:
        raise RefusedCallError("another member's")

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        refused = WorkerCall(refuse, 100)
        await take_call(reader, refused)
        writer.write(refused.answer())
        await writer.drain()

    async def scene() -> None:
        async with subscriber(converse) as pool:
            for _ in range(2):
                with pytest.raises(NoAnswerError, match="another member's"):
                    await made(pool)

    asyncio.run(scene())


def test_what_a_listener_raised_comes_with_the_status() -> None:
    def consume(messages: Sequence[ReceivedMessage]) -> Answer:
        return Answer(Status.RETRY, "ValueError: böse\nnext")

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answered = WorkerCall(consume, 100)
        await take_call(reader, answered)
        for byte in answered.answer():
            writer.write(bytes([byte]))
            await writer.drain()

    async def scene() -> None:
        async with subscriber(converse) as pool:
            assert await made(pool) == Reply(1, "ValueError: böse next")

    asyncio.run(scene())


def test_a_large_call_goes_through_a_subscriber_that_reads_slowly() -> None:
    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(await read_call(reader, CALL_BYTES)))

    async def scene() -> None:
        async with subscriber(converse) as pool:
            assert await made(pool, size=CALL_BYTES) == Reply(0)

    asyncio.run(scene())


def test_a_subscriber_that_closed_the_connection_meanwhile_is_called_on_another() -> None:
    async def scene() -> None:
        closed = asyncio.Event()

        async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(reply(await read_call(reader)))
            await writer.drain()
            closed.set()

        async with subscriber(converse) as pool:
            for _ in range(3):
                closed.clear()
                async with pool.connection() as connection:
                    assert await connection.call(call(), 10) == Reply(0)
                await closed.wait()
                while connection.is_open:
                    await asyncio.sleep(0)

    asyncio.run(scene())


@pytest.mark.parametrize("spoken", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", reply(-1)])
def test_a_subscriber_that_goes_or_babbles_gives_no_answer_and_the_next_call_is_a_new_one(
    spoken: bytes,
) -> None:
    async def scene() -> None:
        answers = iter([spoken, None])

        async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            seqid = await read_call(reader)
            said = next(answers)
            writer.write(reply(seqid, 2) if said is None else said)

        async with subscriber(converse) as pool:
            with pytest.raises(NoAnswerError):
                await made(pool)
            assert await made(pool) == Reply(2)

    asyncio.run(scene())


def test_one_who_speaks_without_end_while_it_reads_nothing_fills_no_memory() -> None:
    async def scene() -> None:
        async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            cast(asyncio.ReadTransport, writer.transport).pause_reading()
            while True:
                writer.write(bytes(64 * 1024))
                await writer.drain()

        async with subscriber(converse) as pool, pool.connection() as connection:
            with pytest.raises(NoAnswerError, match="does not end"):
                await connection.call(call(CALL_BYTES * 10), 10)
            assert connection.received_bytes <= RECEIVED_BYTES_MAX

    asyncio.run(scene())


def test_one_who_speaks_without_being_called_is_hung_up_on() -> None:
    async def scene() -> None:
        async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(reply(await read_call(reader)) + b"and more")
            await reader.read()

        async with subscriber(converse) as pool:
            async with pool.connection() as connection:
                assert await connection.call(call(), 10) == Reply(0)
            while connection.is_open:
                await asyncio.sleep(0)

    asyncio.run(scene())


def test_silence_is_waited_for_as_long_as_was_said() -> None:
    async def scene() -> None:
        async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()

        loop = asyncio.get_running_loop()
        async with subscriber(converse) as pool:
            began_s = loop.time()
            with pytest.raises(NoAnswerError, match=r"no answer in 0\.2 s"):
                await made(pool, timeout_s=0.2)
            assert 0.2 <= loop.time() - began_s < 60

    asyncio.run(scene())


def test_a_call_that_may_be_sent_no_more_is_cut_off() -> None:
    async def scene() -> None:
        got = 0

        async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal got
            while piece := await reader.read(64 * 1024):
                got += len(piece)

        asked = iter([True, True])
        async with subscriber(converse, lambda: next(asked, False)) as pool:
            async with pool.connection() as connection:
                with pytest.raises(NoAnswerError, match="not confirmed"):
                    await connection.call(call(CALL_BYTES), 10)
            assert got < CALL_BYTES

    asyncio.run(scene())


async def lost_by(pool: ConnectionPool, timeout_s: float = 10) -> NoAnswerError:
    """Why a call had no answer."""
    with pytest.raises(NoAnswerError) as raised:
        await made(pool, timeout_s)
    return raised.value


def test_a_call_that_the_process_got_is_lost_and_any_other_is_not() -> None:
    async def scene() -> None:
        said = iter([b"", b"babble without a head"])

        async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_call(reader)
            writer.write(next(said))

        async with subscriber(converse) as pool:
            lost = await lost_by(pool)
            assert isinstance(lost, LostCallError)
            assert not lost.timed_out
            assert not isinstance(await lost_by(pool), LostCallError), "it has answered"
        assert not isinstance(await lost_by(pool), LostCallError), "it is down"

    asyncio.run(scene())


@pytest.mark.parametrize("ends_by", ["the late answer", "the end of the process"])
def test_nothing_is_lost_while_an_earlier_call_may_hang(ends_by: str) -> None:
    async def scene() -> None:
        calls, hung = [], asyncio.Event()

        async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            seqid = await read_call(reader)
            calls.append(seqid)
            if len(calls) == 1:
                await hung.wait()
                if ends_by == "the late answer":
                    writer.write(reply(seqid, 1))
                    await writer.drain()
                    await reader.read()
            else:
                await reader.read()

        async with subscriber(converse) as pool:
            for is_first in (True, False, False):
                lost = await lost_by(pool, 0.1)
                assert isinstance(lost, LostCallError) == is_first
            hung.set()
            while pool.is_hanging:
                await asyncio.sleep(0)
            lost = await lost_by(pool, 0.1)
            assert isinstance(lost, LostCallError)
            assert lost.timed_out
        assert not pool.is_hanging

    asyncio.run(scene())


def test_a_call_alone_waits_for_others_and_others_wait_for_it() -> None:
    async def scene() -> None:
        turns, order = CallTurns(), list[str]()
        gates = {name: asyncio.Event() for name in "abcd"}

        async def take(name: str, *, alone: bool) -> None:
            async with turns.turn(alone=alone):
                order.append(name)
                await gates[name].wait()

        tasks = {}
        for name, alone in (("a", False), ("b", False), ("c", True), ("d", False)):
            tasks[name] = asyncio.create_task(take(name, alone=alone))
            await asyncio.sleep(0)
        assert order == ["a", "b"]
        gates["a"].set()
        await tasks["a"]
        assert order == ["a", "b"]
        gates["b"].set()
        await tasks["b"]
        await asyncio.sleep(0)
        assert order == ["a", "b", "c"]
        tasks["c"].cancel()
        await asyncio.wait({tasks["c"]})
        gates["d"].set()
        await tasks["d"]
        assert order == ["a", "b", "c", "d"]
        waiting = asyncio.create_task(take("a", alone=True))
        await waiting
        gates["b"].clear()
        held = asyncio.create_task(take("b", alone=False))
        await asyncio.sleep(0)
        left = asyncio.create_task(take("a", alone=True))
        behind = asyncio.create_task(take("c", alone=False))
        await asyncio.sleep(0)
        left.cancel()  # Those behind one that leaves need not wait for it.
        gates["c"].set()
        await behind
        gates["b"].set()
        await held

    asyncio.run(scene())
