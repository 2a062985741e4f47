"""Puts of many tasks at the same time, in an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import hqueue
import hqueue.aio
from hqueue import ClosedError, InvalidInputError, Message, Outcome, StoreUnavailableError
from tests.support.backends import MemoryBackend
from tests.support.proxy import Fate

PUTS = 500


pytestmark = pytest.mark.usefixtures("each_loop")


@pytest.fixture
def client() -> Iterator[hqueue.Client]:
    with MemoryBackend().connect() as client:
        client.create_queue("q", partitions=3)
        yield client


async def opened(client: hqueue.Client) -> hqueue.aio.Queue:
    return await hqueue.aio.Client(client).queue("q")


def test_each_learns_the_id_of_its_own_message_and_few_batches_are_written(
    client: hqueue.Client,
) -> None:
    async def run() -> list[hqueue.MessageID]:
        queue = await opened(client)
        messages = [Message("t", b"%d" % number) for number in range(PUTS)]
        # Messages of different partitions may have the same ID.
        return await asyncio.gather(*(queue.put(each, partition=0) for each in messages))

    ids = asyncio.run(run())
    found = sorted((message.id, message.value) for message in client.queue("q").scan())
    assert found == sorted((each, b"%d" % number) for number, each in enumerate(ids))
    assert len(list(client.queue("q").headers(0, 0))) < PUTS // 10


def test_keys_headers_and_partitions_are_those_of_a_put_alone(client: hqueue.Client) -> None:
    async def run() -> None:
        queue = await opened(client)
        given = [
            queue.put(Message("t", b"own key", b"k%d" % number, [("n", b"%d" % number)]))
            for number in range(20)
        ]
        given += [queue.put(Message("t", b"key", b"own"), key="k1") for _ in range(20)]
        given += [queue.put(Message("t", b"partition"), partition=2) for _ in range(20)]
        await asyncio.gather(*given)

    asyncio.run(run())
    queue = client.queue("q")
    found = list(queue.scan())
    assert len(found) == 60
    for message in found:
        if message.value == b"own key":
            assert message.key is not None
            assert message.partition == queue.choose_partition(None, message.key)
            ((name, value),) = message.headers
            assert (name, b"k" + value) == ("n", message.key)
        elif message.value == b"key":
            assert message.key == b"own"
            assert message.partition == queue.choose_partition(None, "k1")
        else:
            assert message.partition == 2


def test_what_is_refused_fails_its_own_put_alone(client: hqueue.Client) -> None:
    async def run() -> list[object]:
        queue = await opened(client)
        given = [queue.put(Message("t" if number % 2 else "hqueue.t", b"")) for number in range(40)]
        given += [queue.put(Message("t", b""), partition=99) for _ in range(5)]
        return await asyncio.gather(*given, return_exceptions=True)

    outcomes = asyncio.run(run())
    refused = [each for each in outcomes if isinstance(each, InvalidInputError)]
    assert len(refused) == 25
    assert len(list(client.queue("q").scan())) == 20


def test_a_batch_that_fails_fails_each_put_of_it() -> None:
    backend = MemoryBackend()
    backend.connect().create_queue("q", partitions=3)
    with backend.lossy() as way, way.connect(operation_timeout_ms=300) as client:

        async def run() -> list[object]:
            queue = await opened(client)
            way.set_fate(lambda _: Fate.LOSE_REQUEST)
            given = [queue.put(Message("t", b"")) for _ in range(20)]
            return await asyncio.gather(*given, return_exceptions=True)

        outcomes = asyncio.run(run())
        assert all(isinstance(each, StoreUnavailableError) for each in outcomes)
        assert {each.outcome for each in outcomes} <= set(Outcome)  # type: ignore[attr-defined]


@pytest.mark.parametrize("turns", range(12))
def test_one_that_is_cancelled_harms_no_other(client: hqueue.Client, turns: int) -> None:
    async def run() -> list[object]:
        queue = await opened(client)
        puts = [
            asyncio.ensure_future(queue.put(Message("t", b"%d" % number))) for number in range(40)
        ]
        for _ in range(turns):
            await asyncio.sleep(0)
        for put in puts[::3]:
            put.cancel()
        return await asyncio.gather(*puts, return_exceptions=True)

    outcomes = asyncio.run(run())
    found = [message.value for message in client.queue("q").scan()]
    assert len(found) == len(set(found)), "none is there twice"
    written = {b"%d" % number for number, each in enumerate(outcomes) if isinstance(each, int)}
    assert len(written) >= 26
    assert written <= set(found)


def test_several_loops_use_one_queue_and_one_that_was_closed_takes_no_more(
    client: hqueue.Client,
) -> None:
    queue = asyncio.run(opened(client))

    async def run() -> None:
        await asyncio.gather(*(queue.put(Message("t", b"")) for _ in range(30)))

    for _ in range(3):
        asyncio.run(run())
    assert len(list(client.queue("q").scan())) == 90
    client.close()
    with pytest.raises(ClosedError):
        asyncio.run(run())
