"""Push delivery to coroutines: workers, and subscribers in event loops."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import hqueue
import hqueue.aio
from hqueue import Message, ReceivedMessage, Status, Subscription
from hqueue.metadata import DeliveryOptions
from hqueue.settings.limits import BATCH_BYTES_MAX

from .pushing import checkpoint, put_numbers

Make = Callable[..., hqueue.Queue]
Start = Callable[..., Any]


class Awaited:
    """A coroutine function as a listener, that keeps what it gets."""

    def __init__(self) -> None:
        self.messages: list[ReceivedMessage] = []
        self.answers: dict[bytes, list[Any]] = {}
        """What to answer for a call that begins with a value, in turn: a status, or an error."""
        self.under_way = self.most = 0

    async def __call__(self, messages: Sequence[ReceivedMessage]) -> Any:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await asyncio.sleep(0.001)
        finally:
            self.under_way -= 1
        if answers := self.answers.get(messages[0].value):
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        self.messages += messages
        return None

    async def await_values(self, values: Sequence[bytes]) -> None:
        async def came() -> None:
            while not set(values) <= {message.value for message in self.messages}:
                await asyncio.sleep(0.01)

        await asyncio.wait_for(came(), 60)


def test_a_coroutine_gets_each_partition_in_order_and_checkpoints_stay(
    make: Make, start: Start, pushing: hqueue.Client
) -> None:
    blocking = make(3)
    start(checkpoint_ms=50)
    old = put_numbers(blocking, range(30))

    async def run(values: Sequence[bytes]) -> list[ReceivedMessage]:
        queue = await hqueue.aio.Client(pushing).queue(blocking.name)
        got = Awaited()
        subscriber = queue.subscriber(Subscription("s"), got, calls_max=3)
        async with subscriber:
            assert subscriber.partitions == [0, 1, 2]
            await got.await_values(values)
            ends = [max(m.id for m in got.messages if m.partition == p) + 1 for p in range(3)]
            while [checkpoint(pushing, blocking, p, "s") for p in range(3)] < [*map(int, ends)]:
                await asyncio.sleep(0.05)
        assert got.most <= 3
        return got.messages

    first = asyncio.run(run(old))
    of_partition: dict[int, list[int]] = defaultdict(list)
    for message in first:
        of_partition[message.partition].append(message.id)
    assert all(ids == sorted(set(ids)) for ids in of_partition.values())
    later = put_numbers(blocking, range(30, 36))
    assert sorted(message.value for message in asyncio.run(run(later))) == sorted(later)


def test_what_a_coroutine_raises_or_answers_is_what_a_worker_acts_on(
    make: Make, start: Start, pushing: hqueue.Client
) -> None:
    blocking = make(1)
    start()

    async def run() -> None:
        queue = await hqueue.aio.Client(pushing).queue(blocking.name)
        got = Awaited()
        got.answers = {
            b"a": [ValueError("on purpose"), "nonsense", Status.RETRY],
            b"b": [Status.DEAD_LETTER],
        }
        delivery = DeliveryOptions(
            attempts_max=10, backoff_ms_min=10, backoff_ms_max=20, batch_messages_max=1
        )
        async with queue.subscriber(Subscription("s", delivery=delivery), got):
            await queue.put([Message("t", value) for value in (b"a", b"b", b"c")])
            await got.await_values([b"c"])
        assert [message.value for message in got.messages] == [b"a", b"c"]
        assert not any(got.answers.values())

    asyncio.run(run())
    (letter,) = blocking.dead_letters.waiting("s")
    assert letter.message.value == b"b"


def test_subscribers_of_a_name_share_its_partitions_in_a_loop(
    make: Make, start: Start, pushing: hqueue.Client
) -> None:
    blocking = make(4)
    start()

    async def run() -> None:
        queue = await hqueue.aio.Client(pushing).queue(blocking.name)
        got = [Awaited(), Awaited()]
        one, other = (queue.subscriber(Subscription("s"), each, shared=True) for each in got)
        async with one:
            async with other:
                await share(one, other, [2, 2])
                values = [b"%d" % number for number in range(40)]
                for number, value in enumerate(values):
                    await queue.put(Message("t", value), partition=number % 4)
                while {m.value for each in got for m in each.messages} < set(values):
                    await asyncio.sleep(0.01)
                assert all({m.partition for m in each.messages} for each in got)
            await share(one, other, [4, 0])

    async def share(one: Any, other: Any, counts: list[int]) -> None:
        async def shared() -> None:
            while [len(one.partitions), len(other.partitions)] != counts:
                await asyncio.sleep(0.01)

        await asyncio.wait_for(shared(), 60)

    asyncio.run(run())


def test_dead_letters_are_read_and_redriven_in_a_loop(
    make: Make, start: Start, pushing: hqueue.Client
) -> None:
    blocking = make(2)
    start()

    async def run() -> None:
        queue = await hqueue.aio.Client(pushing).queue(blocking.name)
        got = Awaited()
        # The larger one is left where it is, for it fits no batch with what a dead letter says.
        values = [b"small", b"large" + bytes(BATCH_BYTES_MAX - 5)]
        got.answers = {value: [Status.DEAD_LETTER] for value in values}
        delivery = DeliveryOptions(batch_messages_max=1)
        async with queue.subscriber(Subscription("s", delivery=delivery), got):
            for number, value in enumerate(values):
                await queue.put(Message("t", value), partition=number)
            await queue.put(Message("t", b"last"), partition=1)
            await got.await_values([b"last"])
            while len(letters := [each async for each in queue.dead_letters.waiting("s")]) < 2:
                await asyncio.sleep(0.05)
            assert [each.message.value for each in letters] == values
            assert letters == list(blocking.dead_letters.waiting("s"))
            assert await queue.dead_letters.redrive(letters) == 2
            await got.await_values(values)
        assert not [each async for each in queue.dead_letters.waiting("s")]
        client = hqueue.aio.Client(pushing)
        beginning = await client.seek_subscriber(queue.name, "s", "earliest")
        listed = await client.list_subscribers(queue.name)
        assert {each.partition: each.checkpoint for each in listed} == beginning
        assert listed == pushing.list_subscribers(queue.name)
        await client.delete_subscriber(queue.name, "s")
        assert await client.list_subscribers(queue.name) == []

    asyncio.run(run())
