"""asyncio's face over each way to a store: it writes and reads what the blocking face does."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable

import pytest

import hqueue
import hqueue.aio
from hqueue import ClosedError, Message, MessageID, QueueNotFoundError

MakeQueue = Callable[..., hqueue.Queue]

TASKS = 8
PUTS = 12


@pytest.fixture
def asynchronous(client: hqueue.Client) -> hqueue.aio.Client:
    """The same cluster; it is closed by the fixture that it is made of."""
    return hqueue.aio.Client(client)


def values_of(queue: hqueue.Queue) -> list[bytes]:
    return [message.value for message in queue.scan()]


def test_many_tasks_put_and_scan_and_threads_see_the_same(
    asynchronous: hqueue.aio.Client, make_queue: MakeQueue
) -> None:
    blocking = make_queue(2)
    first = blocking.put(Message("t", b"by a thread"), partition=1)

    async def run() -> list[bytes]:
        queue = await asynchronous.queue(blocking.name)

        async def put(task: int) -> list[MessageID]:
            return [
                await queue.put(Message("t", b"%d %d" % (task, n)), partition=task % 2)
                for n in range(PUTS)
            ]

        for ids in await asyncio.gather(*map(put, range(TASKS))):
            assert ids == sorted(ids)
        async with queue.scan() as messages:
            found = [message async for message in messages]
        assert found[-1].partition != found[0].partition
        offsets = await queue.offsets()
        assert sum(await asyncio.gather(*(queue.count_before(p, found[0].id) for p in (0, 1)))) <= 1
        assert len(offsets) == 2
        assert (await queue.lag({1: first}))[1].messages == TASKS // 2 * PUTS + 1
        return [message.value for message in found]

    values = asyncio.run(run())
    assert Counter(values) == Counter(values_of(blocking))


def test_a_scan_is_sorted_bounded_chosen_and_filtered(
    asynchronous: hqueue.aio.Client, make_queue: MakeQueue
) -> None:
    blocking = make_queue(3)
    for number in range(30):
        blocking.put(Message("ab"[number % 2], b"%d" % number), partition=number % 3)
    every = sorted(blocking.scan(), key=lambda message: message.id)

    async def run() -> None:
        queue = await asynchronous.queue(blocking.name)

        async def scanned(**how: object) -> list[bytes]:
            async with queue.scan(**how) as messages:  # type: ignore[arg-type]
                return [message.value async for message in messages]

        assert await scanned(merge_sorted=True) == [message.value for message in every]
        assert await scanned(merge_sorted=True, limit=7) == [message.value for message in every[:7]]
        assert await scanned(partition=1) == [m.value for m in every if m.partition == 1]
        assert Counter(await scanned(partitions=[0, 2])) == Counter(
            m.value for m in every if m.partition != 1
        )
        assert Counter(await scanned(topics=["a"])) == Counter(
            m.value for m in every if m.topic == "a"
        )
        assert await scanned(partition=2, start=every[14].id, stop=every[20].id) == [
            m.value for m in every[14:20] if m.partition == 2
        ]
        assert await scanned(limit=0) == []

    asyncio.run(run())


def test_messages_and_record_batches_of_a_scan_share_it(
    asynchronous: hqueue.aio.Client, make_queue: MakeQueue
) -> None:
    blocking = make_queue(1)
    for _ in range(3):
        blocking.put([Message("t", b"%d" % number) for number in range(100)])

    async def run(**how: object) -> list[bytes]:
        queue = await asynchronous.queue(blocking.name)
        async with queue.scan(**how) as scanner:  # type: ignore[arg-type]
            begun = [await anext(scanner) for _ in range(5)]
            async for columns in scanner.arrow_batches():
                begun += [Message("t", value) for value in columns["value"].to_pylist()]
            assert await scanner.next() is None
        return [message.value for message in begun]

    expected = [b"%d" % number for _ in range(3) for number in range(100)]
    assert asyncio.run(run()) == expected
    assert asyncio.run(run(merge_sorted=True)) == expected
    assert asyncio.run(run(limit=120)) == expected[:120]


def test_a_follower_gives_what_comes_and_ends_when_nothing_does(
    asynchronous: hqueue.aio.Client, make_queue: MakeQueue
) -> None:
    blocking = make_queue(2)

    async def run() -> list[bytes]:
        queue = await asynchronous.queue(blocking.name)
        values = []
        async with queue.scan(follow=True, idle_ms_max=3_000) as messages:
            await queue.put(Message("t", b"0"))
            async for message in messages:
                values.append(message.value)
                if len(values) == 5:
                    break
                await queue.put(Message("t", b"%d" % len(values)))
            await queue.put(Message("t", b"5"))
            values.append((await anext(messages)).value)
        with pytest.raises(ClosedError):
            await messages.next()
        return values

    assert asyncio.run(run()) == [b"%d" % number for number in range(6)]


def test_a_task_that_waits_is_told_that_another_one_closed_its_scanner(
    asynchronous: hqueue.aio.Client, make_queue: MakeQueue
) -> None:
    blocking = make_queue(2)

    async def run() -> None:
        queue = await asynchronous.queue(blocking.name)

        async def arrow(scanner: hqueue.aio.Scanner) -> None:
            async for _ in scanner.arrow_batches():
                pass

        for use in (hqueue.aio.Scanner.next, arrow):
            for follow in (True, False):
                scanner = queue.scan(follow=follow)
                waiting = asyncio.ensure_future(use(scanner))
                await asyncio.sleep(0.05 if follow else 0)
                await scanner.close()
                with contextlib.suppress(ClosedError):
                    assert await asyncio.wait_for(waiting, 10) is None
                    assert not follow
                with pytest.raises(ClosedError):
                    await scanner.next()

    asyncio.run(run())


def test_a_caller_that_is_cancelled_ever_again_loses_no_message(
    asynchronous: hqueue.aio.Client, make_queue: MakeQueue
) -> None:
    blocking = make_queue(2)
    for number in range(40):
        blocking.put([Message("t", b"%d %d" % (number, each)) for each in range(3)])

    async def run(**how: object) -> list[bytes]:
        queue = await asynchronous.queue(blocking.name)
        values: list[bytes] = []
        turns = 0
        async with queue.scan(bytes_max=2_000, **how) as scanner:  # type: ignore[arg-type]
            while True:
                following = asyncio.ensure_future(scanner.next())
                for _ in range(turns % 7):
                    await asyncio.sleep(0)
                turns += 1
                if turns % 3:
                    following.cancel()
                try:
                    message = await following
                except asyncio.CancelledError:
                    await asyncio.sleep(0.001)
                    continue
                if message is None:
                    return values
                values.append(message.value)

    expected = Counter(values_of(blocking))
    assert Counter(asyncio.run(run())) == expected
    assert Counter(asyncio.run(run(merge_sorted=True))) == expected
    assert Counter(asyncio.run(run(follow=True, idle_ms_max=2_000))) == expected


def test_a_producer_keeps_the_order_and_tells_each_message_what_became_of_it(
    asynchronous: hqueue.aio.Client, make_queue: MakeQueue
) -> None:
    blocking = make_queue(2)
    called: list[object] = []

    async def run() -> None:
        queue = await asynchronous.queue(blocking.name)
        async with queue.producer(linger_ms=1, batch_messages_max=10) as producer:
            sent = [
                await producer.send(Message("t", b"%d" % number), partition=1)
                for number in range(35)
            ]
            together = await producer.send_batch(
                [Message("t", b"35"), Message("t", b"36")], partition=1
            )
            last = await producer.send(
                Message("t", b"37"), partition=1, callback=lambda *what: called.append(what)
            )
            await producer.flush()
            assert all(each.done() for each in [*sent, together, last])
            ids = [await each for each in sent]
            assert ids == sorted(ids)
            assert ids[-1] < (await together)[0] < (await together)[1] < await last
            assert called == [(last.result(), None)]
            assert last.exception() is None
        with pytest.raises(ClosedError):
            await producer.send(Message("t", b"late"))

    asyncio.run(run())
    assert values_of(blocking) == [b"%d" % number for number in range(38)]


def test_a_full_buffer_lets_senders_wait_and_a_cancelled_one_sends_nothing(
    asynchronous: hqueue.aio.Client, make_queue: MakeQueue
) -> None:
    blocking = make_queue(1)

    async def run() -> int:
        queue = await asynchronous.queue(blocking.name)
        async with queue.producer(buffer_bytes_max=1_000, linger_ms=20) as producer:

            async def send(number: int) -> bool:
                try:
                    await producer.send(Message("t", b"%d" % number + bytes(300)))
                except asyncio.CancelledError:
                    return False
                return True

            senders = [asyncio.ensure_future(send(number)) for number in range(60)]
            await asyncio.sleep(0)
            assert not all(each.done() for each in senders)
            for each in senders[::2]:
                each.cancel()
            outcomes = await asyncio.gather(*senders, return_exceptions=True)
            return sum(outcome is True for outcome in outcomes)

    sent = asyncio.run(run())
    assert 30 <= sent < 60
    assert len(values_of(blocking)) == sent


def test_queues_are_administered(asynchronous: hqueue.aio.Client, make_queue: MakeQueue) -> None:
    name = make_queue(1).name + "-more"

    async def run() -> None:
        queue = await asynchronous.create_queue(name, partitions=2, ttl="1h")
        assert (queue.name, queue.partitions) == (name, 2)
        assert await asynchronous.queue_exists(name)
        assert name in [each.name for each in await asynchronous.list_queues()]
        assert (await asynchronous.alter_queue(name, ttl="2h")).ttl_seconds == 7_200
        assert len(await asynchronous.locations(name)) == 2
        await asynchronous.delete_queue(name, force=True)
        with pytest.raises(QueueNotFoundError):
            await asynchronous.queue(name)

    asyncio.run(run())
