"""asyncio's face over each way to a store: it writes and reads what the blocking face does."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable

import pytest

import hqueue
import hqueue.aio
from hqueue import ClosedError, Message, MessageID, PartitionKey, QueueNotFoundError
from tests.support.consuming import put_numbered, values

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
        before = [each.partition for each in found if each.id < found[0].id]
        for number in (0, 1):
            assert await queue.count_before(number, found[0].id) == before.count(number)
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
    every = sorted(blocking.scan(), key=lambda message: (message.id, message.partition))

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


def test_consumers_of_a_group_share_partitions_commit_and_go_on_after_a_restart(
    asynchronous: hqueue.aio.Client, make_queue: MakeQueue, group: str
) -> None:
    blocking = make_queue(4)
    put_numbered(blocking, 400)
    events: list[tuple[str, str, int]] = []
    got: list[int] = []

    async def consume(name: str, stop: asyncio.Event) -> None:
        consumer = hqueue.aio.Consumer(group=group, client=asynchronous, auto_commit=False)

        async def assigned(keys: list[PartitionKey]) -> None:
            await asyncio.gather(consumer.position(keys[0]))
            events.extend((name, "assigned", key.partition) for key in keys)

        async def revoked(keys: list[PartitionKey]) -> None:
            await consumer.commit()
            events.extend((name, "revoked", key.partition) for key in keys)

        async with consumer:
            await consumer.subscribe(blocking.name, on_assigned=assigned, on_revoked=revoked)
            while not stop.is_set():
                got.extend(values(await consumer.poll(100, messages_max=7)))
                await consumer.commit()

    async def until(condition: Callable[[], object]) -> None:
        while not condition():
            await asyncio.sleep(0.01)

    def count(name: str, what: str) -> Counter[int]:
        return Counter(each[2] for each in events if each[:2] == (name, what))

    async def run() -> None:
        stops = asyncio.Event(), asyncio.Event()
        first = asyncio.ensure_future(consume("first", stops[0]))
        await until(lambda: len(got) >= 100)
        second = asyncio.ensure_future(consume("second", stops[1]))
        await until(lambda: count("second", "assigned").total() == 2)
        await until(lambda: len(got) >= 400)
        stops[0].set()
        await first
        queue = await asynchronous.queue(blocking.name)
        for number in range(400, 440):
            await queue.put(Message("t", b"%d" % number), partition=number % 4)
        await until(lambda: len(got) >= 440)
        stops[1].set()
        await second

    async def restarted() -> None:
        async with hqueue.aio.Consumer(blocking.name, group=group, client=asynchronous) as consumer:
            await (await asynchronous.queue(blocking.name)).put(Message("t", b"440"))
            assert values([await anext(aiter(consumer))]) == [440]

    asyncio.run(asyncio.wait_for(run(), 300))
    assert sorted(got) == list(range(440)), "each once: what was returned was committed"
    for name in ("first", "second"):
        assert count(name, "assigned") == count(name, "revoked")
    asyncio.run(restarted())


def test_a_consumer_that_is_cancelled_ever_again_under_load_loses_nothing(
    asynchronous: hqueue.aio.Client, make_queue: MakeQueue, group: str
) -> None:
    blocking = make_queue(3)
    got: list[int] = []

    async def produce() -> None:
        queue = await asynchronous.queue(blocking.name)
        async with queue.producer(linger_ms=1) as producer:
            for number in range(3_000):
                await producer.send(Message("t", b"%d" % number), partition=number % 3)
                if number % 100 == 0:
                    await asyncio.sleep(0.005)

    async def take(consumer: hqueue.aio.Consumer) -> None:
        got.extend(values(await consumer.poll(1_000, messages_max=50)))

    async def run() -> None:
        producing = asyncio.ensure_future(produce())
        draws = random.Random(7)
        async with hqueue.aio.Consumer(
            blocking.name, group=group, client=asynchronous, auto_commit_interval_ms=20
        ) as consumer:
            while len(got) < 3_000:
                calls = [asyncio.ensure_future(take(consumer))]
                if draws.random() < 0.3:
                    calls.append(asyncio.ensure_future(consumer.commit()))
                await asyncio.wait(calls, timeout=draws.random() * 0.02)
                for call in calls:
                    call.cancel()
                await asyncio.wait(calls)
                for call in calls:
                    assert call.cancelled() or call.exception() is None
        await producing

    asyncio.run(asyncio.wait_for(run(), 300))
    assert sorted(got) == list(range(3_000))
    for partition in range(3):
        of_it = [number for number in got if number % 3 == partition]
        assert of_it == sorted(of_it)


def test_processors_of_a_group_that_are_cancelled_put_each_result_once(
    asynchronous: hqueue.aio.Client, make_queue: MakeQueue, group: str
) -> None:
    source, target = make_queue(3), make_queue(2)
    put_numbered(source, 300)

    async def process(message: hqueue.ReceivedMessage) -> list[Message]:
        await asyncio.sleep(0)
        return [Message("r", message.value)]

    async def run_once(seconds: float) -> bool:
        """Whether it came to its end."""
        async with hqueue.aio.ExactlyOnceProcessor(
            source.name, target.name, group, process, client=asynchronous, messages_max=5
        ) as processor:
            running = asyncio.ensure_future(processor.run(idle_ms_max=1_000))
            await asyncio.wait([running], timeout=seconds)
            running.cancel()
            await asyncio.wait([running])
            return not running.cancelled() and running.result() >= 0

    async def run() -> None:
        draws = random.Random(7)
        for _ in range(4):
            await asyncio.gather(*(run_once(draws.random()) for _ in range(2)))
        assert all(await asyncio.gather(*(run_once(240) for _ in range(2))))

    asyncio.run(asyncio.wait_for(run(), 300))
    results = [int(value) for value in values_of(target)]
    assert sorted(results) == list(range(300))
    for partition in range(3):
        of_it = [number for number in results if number % 3 == partition]
        assert of_it == sorted(of_it)
