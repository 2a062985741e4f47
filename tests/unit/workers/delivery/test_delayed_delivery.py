"""Delayed messages of subscribers: workers deliver them when they are due, over memory."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, cast

import pytest

import hqueue
from hqueue import Message, MessageID
from hqueue.metadata import Address, DeliveryOptions, PartitionKey, Presence, SubscriptionKey
from hqueue.push.answers import MessageAnswers, Status
from hqueue_workers import WorkerSettings
from hqueue_workers.delivery import subscriber_delays
from hqueue_workers.delivery.connection_pool import LostCallError
from hqueue_workers.delivery.partition import ConnectionPools, Deliveries, ServedPartition
from hqueue_workers.delivery.queues import OpenQueues
from hqueue_workers.delivery.sender import MessageSender
from hqueue_workers.delivery.wire import Call, Reply, decode_messages
from hqueue_workers.node.lease import Lease
from hqueue_workers.node.metrics import Metrics
from hqueue_workers.node.runtime import Runtime
from tests.support.backends import MemoryBackend
from tests.support.metadata_histories import FaultyRecords

KEY = PartitionKey("q", 0)
SUBSCRIPTION = SubscriptionKey("q", 0, "s")
SOON_MS = 1_000
WAIT_S = 60.0


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Subscriber:
    """A connection to a subscriber that answers as it is scripted to, and *done* otherwise."""

    def __init__(self) -> None:
        self.got: list[tuple[int, int]] = []
        """Each message's number, and when it came."""
        self.calls: list[list[int]] = []
        self.script: list[Reply | Exception] = []

    @contextlib.asynccontextmanager
    async def connection(self, *, alone: bool = False) -> AsyncIterator[Subscriber]:
        yield self

    async def call(self, call: Call, timeout_s: float) -> Reply:
        numbers = [int(each.value) for each in decode_messages(b"".join(call.parts))]
        self.calls.append(numbers)
        self.got += [(each, now_ms()) for each in numbers]
        await asyncio.sleep(0)
        said = self.script.pop(0) if self.script else Reply(Status.DONE)
        if isinstance(said, Exception):
            raise said
        return said

    @property
    def numbers(self) -> list[int]:
        return [number for number, _ in self.got]

    # The pools, which have no other.

    def use(self, key: SubscriptionKey, presence: Presence) -> Subscriber:
        return self

    def leave(self, key: SubscriptionKey, presence: Presence) -> None:
        pass


class Certain:
    """A lease that holds."""

    holds = True

    async def wait(self) -> None:
        pass


class Scene:
    """Workers that serve a partition to one subscriber, one after another."""

    def __init__(self, client: hqueue.Client, **options: Any) -> None:
        self.client = client
        self.runtime = Runtime(4)
        self.subscriber = Subscriber()
        self._presence = Presence(Address("127.0.0.1", 1), delivery=DeliveryOptions(**options))
        settings = WorkerSettings(name="w", poll_ms_max=50)
        self._queues = OpenQueues(client, self.runtime, settings)
        self._shared = Deliveries(
            self.runtime,
            cast(Lease, Certain()),
            client.coordination.checkpoints,
            cast(ConnectionPools, self.subscriber),
            Metrics(),
            settings,
        )

    async def serve(self) -> ServedPartition:
        """Begin, as a worker that has just claimed the partition."""
        await self._queues.regions([KEY], [])
        opened = self._queues["q"]
        served = ServedPartition(KEY, opened.queue, opened.poller, self._shared, lambda: 1_000_000)
        served.assign({"s": self._presence})
        return served

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait for something."""
        ends_s = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < ends_s
            await asyncio.sleep(0.01)

    async def sender(self, served: ServedPartition) -> MessageSender:
        """What delivers."""
        await self.until(lambda: any(served.senders))
        (sender,) = served.senders
        return sender

    async def close(self) -> None:
        await self._queues.regions([], [])
        await self.runtime.close()


def play(scene: Callable[[Scene], Awaitable[None]], **options: Any) -> None:
    async def run(client: hqueue.Client) -> None:
        it = Scene(client, **options)
        try:
            await scene(it)
            assert not it.runtime.failed.done()
        finally:
            await it.close()

    with MemoryBackend().connect() as client:
        client.create_queue("q", partitions=1)
        client.coordination.checkpoints.create({SUBSCRIPTION: MessageID(0)})
        asyncio.run(run(client))


def put(client: hqueue.Client, *numbers: int, due_ms: int | None = None) -> None:
    plain = [Message("t", b"%d" % number) for number in numbers]
    client.queue("q").put([each.delayed(due_ms) if due_ms else each for each in plain])


def records(client: hqueue.Client) -> Sequence[str]:
    return client.coordination.store.records.keys("/hqueue/delays/q/0/s", 1)


def test_a_delayed_message_holds_up_nothing_and_comes_at_its_time_in_the_order_of_times() -> None:
    async def scene(it: Scene) -> None:
        due_ms = now_ms() + SOON_MS
        put(it.client, 0)
        put(it.client, 1, due_ms=due_ms + 2)
        put(it.client, 2, due_ms=due_ms + 1)
        put(it.client, 3, due_ms=due_ms)
        put(it.client, 4, 5)
        put(it.client, 6, due_ms=due_ms - 2 * SOON_MS)
        served = await it.serve()
        await it.until(lambda: len(it.subscriber.got) == 4)
        assert it.subscriber.numbers == [0, 4, 5, 6]
        await it.until(lambda: len(it.subscriber.got) == 7)
        assert it.subscriber.numbers[4:] == [3, 2, 1]
        for number, came_ms in it.subscriber.got[4:]:
            assert came_ms >= due_ms + 3 - number
        await served.stop()
        assert records(it.client) == []
        known = it.client.coordination.checkpoints.read(SUBSCRIPTION)
        assert known is not None
        assert known.delays == ()

    play(scene)


def test_an_orderly_stop_keeps_what_waits_and_the_next_worker_delivers_it_once() -> None:
    async def scene(it: Scene) -> None:
        put(it.client, 0, due_ms=now_ms() + SOON_MS)
        put(it.client, 1)
        served = await it.serve()
        await it.until(lambda: it.subscriber.numbers == [1])
        await served.stop()
        assert len(records(it.client)) == 1
        served = await it.serve()
        await it.until(lambda: len(it.subscriber.got) >= 2)
        await served.stop()
        assert it.subscriber.numbers == [1, 0]

    play(scene)


def test_what_waits_has_retries_answers_and_dead_letters_as_any_other() -> None:
    async def scene(it: Scene) -> None:
        put(it.client, 0, 1, 2, due_ms=now_ms() - 1)
        put(it.client, 3, 4, 5, due_ms=now_ms() + SOON_MS)
        answers = MessageAnswers({1: "no page"}, 2, 0)
        lost = LostCallError("cut", timed_out=True)
        it.subscriber.script = [Reply(Status.DONE), Reply(Status.RETRY, "", answers), lost]
        served = await it.serve()
        await it.until(lambda: len(it.subscriber.calls) == 4)
        assert it.subscriber.calls == [[0, 1, 2], [3, 4, 5], [5], [5]]
        await served.stop()
        (letter,) = it.client.queue("q").dead_letters.waiting("s")
        assert (letter.message.value, letter.reason) == (
            b"4",
            "rejected by the subscriber: no page",
        )
        assert it.client.queue("q").dead_letters.redrive([letter]) == 1
        served = await it.serve()
        await it.until(lambda: it.subscriber.calls[-1] == [4])
        await served.stop()

    play(scene)


def test_a_call_that_is_repeated_has_the_same_messages_although_others_are_due_by_then() -> None:
    async def scene(it: Scene) -> None:
        soon_ms = now_ms() + SOON_MS
        messages = [Message("t", b"%d" % number) for number in range(3)]
        messages[1] = messages[1].delayed(soon_ms)
        it.client.queue("q").put(messages)
        it.subscriber.script = [Reply(Status.RETRY)]
        served = await it.serve()
        await it.until(lambda: it.subscriber.numbers[-1:] == [1])
        assert it.subscriber.calls == [[0, 2], [0, 2], [1]]
        assert it.subscriber.got[2][1] >= soon_ms, "the delayed one was due by then"
        await served.stop()

    play(scene, backoff_ms_min=SOON_MS + 500)


@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_cut_off_each_message_comes_and_none_before_its_time(seed: int) -> None:
    chance, count = random.Random(seed), 120
    dues_ms: dict[int, int] = {}

    async def scene(it: Scene) -> None:
        store: Any = it.client.coordination.store
        kept = store.records
        store.records = FaultyRecords(kept, seed, 0.1)
        served, number = await it.serve(), itertools.count()
        while len(dues_ms) < count:
            for each in itertools.islice(number, chance.randrange(1, 12)):
                dues_ms[each] = now_ms() + chance.choice([-1, 50, 200, 800])
                put(it.client, each, due_ms=dues_ms[each])
            await asyncio.sleep(chance.random() / 20)
            for sender in served.senders:
                await sender.checkpoint.write()
            served.look_after()
            if chance.random() < 0.2:
                served.abandon()
                served = await it.serve()
            if chance.random() < 0.2:
                await served.stop()
                served = await it.serve()
        store.records = kept

        def all_came() -> bool:
            served.look_after()
            return set(it.subscriber.numbers) == set(dues_ms)

        await it.until(all_came)
        await served.stop()
        for each, came_ms in it.subscriber.got:
            assert came_ms >= dues_ms[each]
        known = it.client.coordination.checkpoints.read(SUBSCRIPTION)
        assert known is not None
        assert known.delays == ()

    play(scene)


def test_without_room_the_next_delayed_message_waits_and_what_follows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subscriber_delays, "DELAYS_MAX", 1)

    async def scene(it: Scene) -> None:
        due_ms = now_ms() + SOON_MS
        put(it.client, 0, due_ms=due_ms)
        served = await it.serve()
        sender = await it.sender(served)
        await it.until(lambda: sender.checkpoint.due)
        await sender.checkpoint.write()
        put(it.client, 1)
        put(it.client, 2, due_ms=due_ms)
        put(it.client, 3)
        await it.until(lambda: len(it.subscriber.got) == 4)
        assert it.subscriber.numbers[0] == 1
        assert all(came_ms >= due_ms for _, came_ms in it.subscriber.got[1:])
        await served.stop()

    play(scene)


def test_many_delayed_messages_lie_in_few_records_and_not_in_memory() -> None:
    async def scene(it: Scene) -> None:
        due_ms, held = now_ms() + 86_400_000, 0
        for first in range(0, 25_000, 1_000):
            put(it.client, *range(first, first + 1_000), due_ms=due_ms)
        put(it.client, 25_000)
        served = await it.serve()
        sender = await it.sender(served)

        def came() -> bool:
            nonlocal held
            held = max(held, subscriber_delays.DELAYED_TOGETHER_MAX - sender.checkpoint.delays.room)
            return it.subscriber.numbers == [25_000]

        await it.until(came)
        assert held <= subscriber_delays.DELAYED_TOGETHER_MAX
        await served.stop()
        assert len(records(it.client)) == 3
        assert sum(each.messages for each in sender.checkpoint.delays.named) == 25_000

    play(scene)


def test_what_waits_is_dropped_by_a_seek_and_with_its_subscriber() -> None:
    async def scene(it: Scene) -> None:
        checkpoints = it.client.coordination.checkpoints
        for drop in (checkpoints.seek, None):
            put(it.client, 0, due_ms=now_ms() + 60_000)
            served = await it.serve()
            sender = await it.sender(served)
            await it.until(lambda: sender.checkpoint.due)  # noqa: B023
            await served.stop()
            assert len(records(it.client)) == 1
            if drop is None:
                checkpoints.delete([SUBSCRIPTION])
            else:
                drop({SUBSCRIPTION: MessageID(2**42)})
                known = checkpoints.read(SUBSCRIPTION)
                assert known is not None
                assert known.delays == ()
            assert records(it.client) == []
            if drop is not None:
                checkpoints.seek({SUBSCRIPTION: MessageID(0)})

    play(scene)
