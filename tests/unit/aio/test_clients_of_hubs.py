"""A client of hubs in event loops: cancellation, listeners, ends, and loops that come and go."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import threading
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import hqueue
import hqueue.aio
from hqueue import (
    ClosedError,
    HubUnavailableError,
    InvalidInputError,
    Message,
    MessageID,
    Outcome,
    ReceivedMessage,
    Status,
    SubscribeMode,
)
from hqueue.aio import hub_subscriptions
from hqueue.errors import SubscriberConnectedError
from hqueue.topics.loop_connections import CALLS_MAX
from hqueue_workers.hub.subscribing import subscription_sessions
from tests.support.backends import MemoryBackend
from tests.support.hubs import HubThread
from tests.support.looped import LoopThread
from tests.support.waiting import wait_for

QUEUE = "q"
WAIT_S = 60.0
SOON_S = 5.0
CANCELS = 60
"""After so many turns of the loop at most, each call is done."""

Connect = Callable[[], hqueue.aio.HubClient]


@pytest.fixture(scope="module")
def hubs() -> Iterator[list[HubThread]]:
    with contextlib.ExitStack() as stack:
        backend = MemoryBackend().apart(10_000)
        admin = stack.enter_context(backend.connect())
        admin.create_queue(QUEUE, partitions=2)
        yield [
            stack.enter_context(
                HubThread(
                    stack.enter_context(backend.connect()), QUEUE, balance_ms=3_600_000, api_port=0
                )
            )
            for _ in range(2)
        ]


@pytest.fixture
def connect(hubs: list[HubThread]) -> Connect:
    addresses = [hub.address for hub in hubs]
    return lambda: hqueue.aio.connect_hubs(addresses, queue=QUEUE, publisher="me")


_names = iter(range(1_000_000))


@pytest.fixture
def topic() -> str:
    """The name of a topic that is new."""
    return f"t{next(_names)}"


def files() -> int:
    return len(os.listdir("/dev/fd"))


def ports() -> int:
    """How many ports this process listens at."""
    own = {os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if is_open(fd)}
    rows = [row.split() for row in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return sum(row[3] == "0A" and f"socket:[{row[9]}]" in own for row in rows)


def is_open(fd: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{fd}")


def run(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run work in a loop that must report nothing that nobody learned."""
    reported: list[dict[str, Any]] = []

    async def reporting() -> Any:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: reported.append(context)
        )
        result = await work()
        gc.collect()
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}, "no task is left"
        return result

    result = asyncio.run(reporting())
    assert not reported
    return result


async def until(condition: Callable[[], object], what: str) -> None:
    async with asyncio.timeout(WAIT_S) if hasattr(asyncio, "timeout") else _unbounded():
        while not condition():
            await asyncio.sleep(0.005)
    assert condition(), what


@contextlib.asynccontextmanager
async def _unbounded() -> AsyncIterator[None]:
    yield


async def cancelled_after(work: Awaitable[Any], turns: int) -> Any:
    """What comes of work; None if it was cancelled after so many turns of the loop."""
    task = asyncio.ensure_future(work)
    for _ in range(turns):
        if task.done():
            break
        await asyncio.sleep(0.0005)
    task.cancel()
    try:
        return await task
    except asyncio.CancelledError:
        return None


def test_a_publish_that_is_cancelled_anywhere_leaves_nothing_and_its_outcome_unknown(
    connect: Connect, topic: str
) -> None:
    async def publish() -> None:
        async with connect() as client:
            clicks = client.topic(topic)
            sent, done = [], []
            for turns in range(CANCELS):
                sent.append(b"%d" % turns)
                found = await cancelled_after(clicks.publish(sent[-1]), turns)
                done += [sent[-1]] if found is not None else []
            last = b"last"
            await clicks.publish(last)
            assert done, "some are not cancelled"
            async with client.queue().scan(topics=[topic]) as messages:
                values = [message.value async for message in messages]
            assert set(done) <= set(values) <= {*sent, last}
            assert values[-1] == last
            assert len(values) == len(set(values)), "none is repeated"

    before = files()
    run(publish)
    gc.collect()
    wait_for(lambda: files() <= before, "the hubs have closed theirs, too")


def test_a_thousand_publishes_at_a_time_share_a_bounded_number_of_connections(
    connect: Connect, topic: str
) -> None:
    async def publish() -> None:
        async with connect() as client:
            clicks = client.topic(topic)
            await clicks.publish(b"first")
            before = files()
            sent = [asyncio.ensure_future(clicks.publish(b"v")) for _ in range(1_000)]
            most = 0
            while not all(each.done() for each in sent):
                await asyncio.sleep(0.005)
                most = max(most, files() - before)
            assert len({each.result() for each in sent}) == 1_000
            assert most <= 2 * CALLS_MAX + 100, "the hub has its ends in this process, too"

    run(publish)


def test_an_idempotent_publish_that_was_cancelled_is_repeated_and_is_there_once(
    connect: Connect, topic: str
) -> None:
    async def publish() -> None:
        async with connect() as client:
            clicks = client.topic(topic)
            for number in range(30):
                call = clicks.publish_idempotent([b"%d" % number], sequence_number=number)
                if await cancelled_after(call, number % 8) is None:
                    await clicks.publish_idempotent([b"%d" % number], sequence_number=number)
            async with client.queue().scan(topics=[topic]) as messages:
                values = [message.value async for message in messages]
            assert values == [b"%d" % number for number in range(30)]

    run(publish)


def test_a_subscribe_that_is_cancelled_anywhere_frees_its_name_and_its_port(
    connect: Connect, topic: str
) -> None:
    async def subscribe() -> None:
        async with connect() as client:
            clicks, taken = client.topic(topic), list[ReceivedMessage]()
            for turns in range(CANCELS):
                made = await cancelled_after(clicks.subscribe("sub", taken.extend), turns)
                if made is not None:
                    await made.close()
            async with await clicks.subscribe("sub", taken.extend):
                await clicks.publish(b"value")
                await until(lambda: taken, "it is served")
            await until(lambda: not client.subscriptions, "all names are free")

    before = ports()
    run(subscribe)
    assert ports() == before


def test_a_subscribe_whose_client_is_closed_meanwhile_says_so_and_is_not_cancelled(
    connect: Connect, topic: str
) -> None:
    async def close() -> None:
        for turns in range(20):
            client = connect()
            call = client.topic(topic).subscribe(f"sub{turns}", lambda messages: None)
            subscribing = asyncio.ensure_future(call)
            for _ in range(turns):
                await asyncio.sleep(0.0005)
            await client.close()
            try:
                subscription = await subscribing
            except ClosedError:
                continue
            assert subscription.ended

    run(close)


def test_a_close_that_is_cancelled_anywhere_goes_on(connect: Connect, topic: str) -> None:
    async def close() -> None:
        async with connect() as client:
            clicks = client.topic(topic)
            for turns in range(20):
                subscription = await clicks.subscribe("sub", lambda messages: None)
                await cancelled_after(subscription.close(), 1 + turns % 10)
                again = await clicks.subscribe("sub", lambda messages: None)
                await cancelled_after(again.unsubscribe(), 1 + turns % 10)
            await until(lambda: not client.subscriptions, "all are closed")

    run(close)


def test_an_iterator_whose_calls_are_cancelled_ever_again_gives_each_message_once(
    connect: Connect, topic: str
) -> None:
    async def take() -> list[bytes]:
        values: list[bytes] = []
        async with connect() as client:
            await client.topic(topic).publish_many([b"%d" % number for number in range(40)])
            async with client.queue().scan(topics=[topic]) as scanner:
                turns = 0
                while True:
                    turns += 1
                    call = asyncio.ensure_future(scanner.next())
                    for _ in range(turns % 5):
                        await asyncio.sleep(0)
                    if turns % 3:
                        call.cancel()
                    try:
                        message = await call
                    except asyncio.CancelledError:
                        await asyncio.sleep(0.001)
                        continue
                    if message is None:
                        return values
                    values.append(message.value)

    assert run(take) == [b"%d" % number for number in range(40)]


def test_messages_that_are_cancelled_anywhere_go_on_at_what_was_acknowledged(
    connect: Connect, topic: str
) -> None:
    sent = [b"%d" % number for number in range(40)]

    async def take() -> list[bytes]:
        values: list[bytes] = []
        async with connect() as client:
            clicks = client.topic(topic)
            await (await clicks.subscribe("sub", lambda messages: None)).close()
            await clicks.publish_many(sent)

            async def some() -> None:
                async with contextlib.aclosing(clicks.messages("sub")) as messages:
                    async for message in messages:
                        values.append(message.value)

            turns = 0
            while sent[-1] not in values:
                await cancelled_after(some(), turns % 40)
                turns += 1
            await until(lambda: not client.subscriptions, "all are closed")
        return values

    values = run(take)
    assert list(dict.fromkeys(values)) == sent, "none is missing, and each came first in its order"


def test_a_task_that_waits_learns_that_another_one_closed_its_scanner(
    connect: Connect, topic: str
) -> None:
    async def close() -> None:
        async with connect() as client:
            await client.topic(topic).publish(b"v")
            scanner = client.queue().scan()
            waiting = asyncio.ensure_future(scanner.next())
            await asyncio.sleep(0)
            await scanner.close()
            with pytest.raises(ClosedError):
                await waiting
            with pytest.raises(ClosedError):
                await scanner.next()

    run(close)


def test_a_forked_child_publishes_by_connections_of_its_own(connect: Connect, topic: str) -> None:
    client = connect()

    async def publish(value: bytes) -> None:
        await client.topic(topic).publish(value)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(publish(b"parent"))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            asyncio.run(publish(b"child"))
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    loop.run_until_complete(publish(b"parent again"))

    async def values() -> list[bytes]:
        async with client, client.queue().scan(topics=[topic]) as messages:
            return [message.value async for message in messages]

    assert loop.run_until_complete(values()) == [b"parent", b"child", b"parent again"]
    loop.close()


def test_a_coroutine_listener_that_fails_or_hangs_gets_its_messages_again(
    connect: Connect,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(hub_subscriptions, "TIMEOUT_MS", 300)
    cancelled: list[bytes] = []
    calls: list[bytes] = []

    async def listener(messages: Sequence[ReceivedMessage]) -> Status | None:
        values = [message.value for message in messages]
        calls.extend(values)
        if len(calls) == 1:
            raise ValueError("not now")
        if len(calls) == 2:
            return Status.RETRY
        if len(calls) == 3:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.extend(values)
                raise
        if len(calls) == 4:
            raise asyncio.CancelledError
        return None

    async def receive() -> None:
        async with connect() as client:
            clicks = client.topic(topic)
            async with await clicks.subscribe("sub", listener) as subscription:
                last = await clicks.publish(b"value")
                await until(lambda: len(calls) == 5, "it came again")
            async with await clicks.subscribe(
                "sub", listener, mode=SubscribeMode.ATTACH
            ) as subscription:
                assert subscription.cursor == last

    run(receive)
    assert cancelled == [b"value"]
    assert f"a listener of subscriber 'sub' of topic {topic!r} failed" in caplog.text


@pytest.mark.parametrize("wrong", ["nonsense", 7, True, b"payload", [[]]])
@pytest.mark.parametrize("kind", ["plain", "coroutine"])
def test_a_listener_that_returns_no_status_has_failed_and_gets_its_messages_again(
    connect: Connect, topic: str, kind: str, wrong: object, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[bytes] = []

    def plain(messages: Sequence[ReceivedMessage]) -> Any:
        calls.extend(message.value for message in messages)
        return wrong if len(calls) == 1 else None

    async def coroutine(messages: Sequence[ReceivedMessage]) -> Any:
        return plain(messages)

    async def receive() -> None:
        async with connect() as client:
            clicks = client.topic(topic)
            async with await clicks.subscribe("sub", plain if kind == "plain" else coroutine):
                await clicks.publish(b"value")
                await until(lambda: len(calls) == 2, "it came again")

    run(receive)  # In the main thread, which also has handlers of signals.
    assert calls == [b"value"] * 2
    assert f"a listener of subscriber 'sub' of topic {topic!r} failed" in caplog.text
    assert "must return a Status, a DeliveryAnswer or None" in caplog.text
    assert "payload" not in caplog.text
    assert "closed the connection" not in caplog.text


@pytest.mark.usefixtures("each_loop")
def test_a_slow_listener_has_one_call_at_a_time_and_holds_up_no_other(
    connect: Connect, topic: str
) -> None:
    async def receive() -> None:
        going_on, under_way, most = asyncio.Event(), 0, 0
        got: list[ReceivedMessage] = []
        other: list[ReceivedMessage] = []

        async def slow(messages: Sequence[ReceivedMessage]) -> None:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            await going_on.wait()
            got.extend(messages)
            under_way -= 1

        async with connect() as client:
            clicks = client.topic(topic)
            await clicks.subscribe("slow", slow)
            await clicks.subscribe("quick", other.extend)
            for number in range(20):
                await clicks.publish(b"%d" % number)
            await until(lambda: len(other) == 20, "the other one has all")
            assert (most, got) == (1, [])
            going_on.set()
            await until(lambda: len(got) == 20, "it has all, too")
            assert most == 1
            assert [message.id for message in got] == [message.id for message in other]

    run(receive)


@pytest.mark.parametrize("ending", ["close", "unsubscribe", "the client's"])
@pytest.mark.parametrize("kind", ["awaited", "in a task of its own"])
def test_a_listener_that_ends_its_own_subscription_goes_on_at_once_and_its_answer_counts(
    connect: Connect, topic: str, ending: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A call that waits for itself waits long.
    monkeypatch.setattr(subscription_sessions, "GRACE_S", WAIT_S)

    async def receive() -> None:
        begun, done = asyncio.Event(), asyncio.Event()
        got: list[ReceivedMessage] = []
        client = connect()
        clicks = client.topic(topic)

        async def end() -> None:
            calls = {
                "close": subscription.close,
                "unsubscribe": subscription.unsubscribe,
                "the client's": client.close,
            }
            await calls[ending]()

        async def listener(messages: Sequence[ReceivedMessage]) -> None:
            await begun.wait()
            if kind == "awaited":
                await end()
            else:
                await asyncio.create_task(end())
            got.extend(messages)
            done.set()

        subscription = await clicks.subscribe("sub", listener)
        begun.set()
        async with connect() as publisher:
            last = await publisher.topic(topic).publish(b"a")
            await asyncio.wait_for(done.wait(), SOON_S)
            await subscription.wait()
            assert [message.value for message in got] == [b"a"]
            await until(lambda: not client.subscriptions, "its name is free")
            await client.close()
            mode = SubscribeMode.CREATE if ending == "unsubscribe" else SubscribeMode.ATTACH
            again = await publisher.topic(topic).subscribe("sub", got.extend, mode=mode)
            assert ending == "unsubscribe" or again.cursor == last

    run(receive)


def test_a_subscription_that_another_client_takes_over_says_so_in_its_loop(
    connect: Connect, topic: str
) -> None:
    async def receive() -> None:
        async with connect() as first, connect() as second:
            taken = await first.topic(topic).subscribe("sub", lambda messages: None)
            waiting = asyncio.ensure_future(taken.wait())
            await second.topic(topic).subscribe("sub", lambda messages: None)
            with pytest.raises(SubscriberConnectedError):
                await asyncio.wait_for(waiting, WAIT_S)
            assert taken.ended

    run(receive)


@pytest.mark.usefixtures("each_loop")
def test_loops_follow_one_another_and_run_beside_one_another_over_one_client(
    connect: Connect, topic: str
) -> None:
    client = connect()

    async def take(number: int) -> None:
        got: list[ReceivedMessage] = []
        clicks = client.topic(topic)
        async with await clicks.subscribe(f"sub{number}", got.extend):
            last = await clicks.publish(b"%d" % number)
            await until(lambda: got and got[-1].id >= last, "it came")
        async with client.producer() as producer:
            await (await producer.send(Message(topic, b"sent")))

    for number in range(3):
        asyncio.run(take(number))
    failures: list[BaseException] = []

    def beside(number: int) -> None:
        try:
            asyncio.run(take(number))
        except BaseException as exc:
            failures.append(exc)

    threads = [threading.Thread(target=beside, args=(number,)) for number in range(3, 6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(WAIT_S)
    assert not failures
    asyncio.run(client.close())
    with pytest.raises(ClosedError):
        asyncio.run(client.topic(topic).publish(b"late"))


def test_a_loop_that_ends_with_subscriptions_frees_their_ports_when_another_one_comes(
    connect: Connect, topic: str
) -> None:
    client = connect()

    async def leave() -> int:
        subscription = await client.topic(topic).subscribe("sub", lambda messages: None)
        return subscription.endpoint.port

    async def again(port: int) -> None:
        got: list[ReceivedMessage] = []
        async with client:
            clicks = client.topic(topic)
            subscription = await clicks.subscribe("sub", got.extend, port=port)
            assert client.subscriptions == [subscription]
            await clicks.publish(b"value")
            await until(lambda: got, "it came")

    port = asyncio.run(leave())
    asyncio.run(again(port))


def test_a_subscription_belongs_to_one_loop(connect: Connect, topic: str) -> None:
    with contextlib.closing(LoopThread()) as thread:
        client = connect()

        async def subscribe() -> hqueue.aio.TopicSubscription:
            return await client.topic(topic).subscribe(
                "sub", lambda messages: None, explicit_ack=True
            )

        subscription = thread.run(subscribe())

        async def use() -> None:
            for call in (
                subscription.wait(),
                subscription.acknowledge_cumulative(MessageID(1, 0)),
                subscription.unsubscribe(),
                subscription.close(),
                subscription.__aexit__(),
            ):
                with pytest.raises(InvalidInputError, match="belongs to the event loop"):
                    await call

        run(use)
        assert not subscription.ended
        for call in (subscription.close(), client.close()):
            thread.run(call)


@pytest.mark.parametrize("waits", [False, True])
def test_a_subscription_whose_loop_was_closed_is_freed_by_its_close(
    connect: Connect, topic: str, waits: bool
) -> None:
    client = connect()

    async def subscribe() -> hqueue.aio.TopicSubscription:
        subscription = await client.topic(topic).subscribe(
            "sub", lambda messages: None, explicit_ack=True
        )
        if waits:  # `asyncio.run` cancels it.
            waiting.append(asyncio.ensure_future(subscription.wait()))
            await asyncio.sleep(0)
        return subscription

    waiting: list[asyncio.Future[None]] = []
    subscription = asyncio.run(subscribe())

    async def use() -> None:
        for call in (
            subscription.wait(),
            subscription.acknowledge_cumulative(MessageID(1, 0)),
            subscription.unsubscribe(),
        ):
            with pytest.raises(InvalidInputError, match="belongs to the event loop"):
                await call
        async with subscription:
            pass
        await subscription.close()
        assert subscription.ended
        assert client.subscriptions == []
        with socket.create_server(tuple(subscription.endpoint)):
            pass
        await client.close()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(use)


def test_a_scanner_and_a_producer_belong_to_one_loop(connect: Connect, topic: str) -> None:
    with contextlib.closing(LoopThread()) as thread:
        client = connect()

        async def make() -> tuple[hqueue.aio.HubProducer, hqueue.aio.HubScanner]:
            scanner = client.queue().scan()
            await scanner.next()
            return client.producer(), scanner

        producer, scanner = thread.run(make())

        async def use() -> None:
            for call in (producer.send(Message(topic, b"v")), scanner.next(), scanner.close()):
                with pytest.raises(InvalidInputError, match="belongs to the event loop"):
                    await call

        asyncio.run(use())
        for call in (producer.close(), scanner.close(), client.close()):
            thread.run(call)


@pytest.mark.filterwarnings("ignore:an asynchronous client of hubs:ResourceWarning")
def test_a_client_whose_loop_ended_with_subscriptions_is_collected_with_their_ports(
    connect: Connect, topic: str
) -> None:
    before = ports()

    async def leave() -> None:
        client = connect()
        for name in ("one", "two"):
            await client.topic(topic).subscribe(name, lambda messages: None)
        await client.topic(topic).publish(b"v")
        assert ports() == before + 2

    asyncio.run(leave())
    gc.collect()
    wait_for(lambda: ports() == before, "nobody listens any more")


def test_a_client_that_is_forgotten_closes_its_connections_with_a_warning(
    connect: Connect, topic: str
) -> None:
    async def forget() -> None:
        client = connect()
        await client.topic(topic).publish(b"v")
        before = files()
        with pytest.warns(  # noqa: PT031  (the last reference goes within)
            ResourceWarning, match="an asynchronous client of hubs"
        ):
            del client
            gc.collect()
        await until(lambda: files() < before, "its connection is closed")

    run(forget)


@pytest.mark.usefixtures("each_loop")
def test_a_task_group_publishes_side_by_side_and_a_failure_cancels_the_others(
    connect: Connect, topic: str
) -> None:
    if not hasattr(asyncio, "TaskGroup"):
        return  # Before Python 3.11.

    async def publish() -> None:
        async with connect() as client:
            clicks = client.topic(topic)
            async with asyncio.TaskGroup() as group:
                sent = [group.create_task(clicks.publish(b"%d" % n)) for n in range(100)]
            assert len({each.result() for each in sent}) == 100

            async def fail() -> None:
                async with asyncio.TaskGroup() as group:
                    for number in range(10):
                        group.create_task(clicks.publish(b"%d" % number))
                    group.create_task(clicks.publish("no bytes"))  # type: ignore[arg-type]

            with pytest.raises(Exception, match="unhandled errors in a TaskGroup"):
                await fail()
            assert isinstance(await clicks.publish(b"after"), MessageID)

    run(publish)


@pytest.mark.parametrize(
    "answer",
    [
        b"\x80\x01\x00\x02" + b"\0\0\0\x07publish" + b"\0\0\0\0" + b"\x0f\0\0\x0c\x7f\xff\xff\xff",
        b"\x80\x01\x00\x02" + b"\0\0\0\x07publish" + b"\0\0\0\0" + b"\x0c\0\0" * 100,
        b"\x80\x01\x00\x02" + b"\0\0\0\x07publish" + b"\0\0\0\0" + b"\x63\0\0",
        b"\x80\x01\x00\x02" + b"\0\0",
        b"",
    ],
    ids=["a list without end", "too deep", "an unknown type", "cut off", "nothing"],
)
def test_an_answer_that_is_broken_is_refused_and_its_outcome_unknown(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65_536)
        writer.write(answer)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    async def publish() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()[:2]
        async with server, hqueue.aio.connect_hubs(f"{host}:{port}", queue=QUEUE) as client:
            with pytest.raises(HubUnavailableError) as caught:
                await asyncio.wait_for(client.topic("t").publish(b"v"), SOON_S)
            assert caught.value.outcome is Outcome.UNKNOWN
        await asyncio.sleep(0.01)

    asyncio.run(publish())


def test_many_messages_are_made_encoded_and_decoded_beside_the_loop(
    connect: Connect, topic: str
) -> None:
    many = 30_000

    async def watch() -> int:
        turns, longest_s = 0, 0.0

        async def tick() -> None:
            nonlocal turns, longest_s
            while True:
                last_s = time.thread_time()  # Other threads and processes take none of it.
                await asyncio.sleep(0)
                turns, longest_s = turns + 1, max(longest_s, time.thread_time() - last_s)

        async with connect() as client:
            clicks, queue = client.topic(topic), client.queue()
            values = [b"v"] * many
            messages = [Message(topic, value) for value in values]
            await clicks.publish(b"v")
            async with client.producer(batch_messages_max=many) as producer:
                watching = asyncio.ensure_future(tick())
                for call in (clicks.publish_many(values), queue.put(messages, partition=0)):
                    turns = 0
                    await call
                    assert turns >= 10
                turns = 0
                for message in messages:
                    await producer.send(message)
                assert turns >= 10
            async with queue.scan(topics=[topic]) as scanner:
                turns, count = 0, 0
                async for _ in scanner:
                    count += 1
                assert turns >= 10
            watching.cancel()
        assert longest_s < 0.05, "Python looks for cycles meanwhile, too"
        return count

    assert run(watch) == 3 * many + 1


def test_the_name_of_a_host_is_looked_up_beside_the_loop(
    connect: Connect, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_up, name = socket.getaddrinfo, "here.invalid"
    looked_up: list[bool] = []

    def getaddrinfo(host: Any, *args: Any, **options: Any) -> Any:
        if host != name:
            return look_up(host, *args, **options)
        if options.get("flags") == socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "a name")
        looked_up.append(asyncio._get_running_loop() is None)
        return look_up("127.0.0.1", *args, **options)

    async def use() -> None:
        got: asyncio.Queue[bytes] = asyncio.Queue()

        def listener(messages: Sequence[ReceivedMessage]) -> None:
            for message in messages:
                got.put_nowait(message.value)

        async with (
            connect() as client,
            await client.topic(topic).subscribe("s", listener, host=name),
        ):
            await client.topic(topic).publish(b"v")
            assert await asyncio.wait_for(got.get(), WAIT_S) == b"v"

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    run(use)
    assert len(looked_up) >= 2, "by this client, and by the hub"
    assert all(looked_up)


@pytest.mark.parametrize("turns", [0, 1, 3, 6, 12, 25])
def test_two_may_close_a_client_at_the_same_time(connect: Connect, topic: str, turns: int) -> None:
    async def use() -> None:
        client = connect()
        await client.topic(topic).subscribe("s", lambda messages: None)
        closing = [asyncio.create_task(client.close())]
        for _ in range(turns):
            await asyncio.sleep(0)
        closing.append(asyncio.create_task(client.close()))
        await asyncio.gather(*closing)

    run(use)
