"""Push delivery, whole: workers, and subscribers as users write them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import hqueue
from hqueue import DeadLetter, Message, ReceivedMessage, Status, Subscription, local
from hqueue.dead_letters.topics import dead_letter_topic, redrive_topic
from hqueue.metadata import DeliveryOptions, SubscriptionKey
from hqueue.metadata.ports import ANY, Change
from hqueue.settings.limits import BATCH_HEADERS_MAX
from hqueue.typing import ListenerAnswer
from tests.support.garbage import GARBAGE, garbled
from tests.support.proxy import Proxies
from tests.support.waiting import wait_for

from .pushing import (
    SESSION_MS,
    Received,
    Stuck,
    WorkerProcess,
    WorkerThread,
    checkpoint,
    put_numbers,
)

Make = Callable[..., hqueue.Queue]
Start = Callable[..., Any]
"""Starts a worker: a process, or a thread over memory."""
StartProcess = Callable[..., WorkerProcess]


def test_messages_arrive_in_order_from_the_start_that_was_asked_for(
    make: Make, start: Start
) -> None:
    queue = make(3)
    old = put_numbers(queue, range(12))
    start()
    every, new = Received(), Received()
    with (
        queue.subscriber(Subscription("every"), every),
        queue.subscriber(Subscription("new", start="latest"), new),
    ):
        later = put_numbers(queue, range(12, 24))
        every.await_values(old + later)
        new.await_values(later)
    assert sorted(every.values) == sorted(old + later)
    assert sorted(new.values) == sorted(later)
    assert every.check_order() == new.check_order() == 0


@pytest.mark.in_memory_first
def test_a_subscriber_gets_its_topics_and_partitions_and_nothing_else(
    make: Make, start: Start
) -> None:
    queue = make(2)
    start()
    got = Received()
    subscription = Subscription("s", topics=["a", "b"]).add_partition(1)
    with queue.subscriber(subscription, got):
        for partition in (0, 1):
            queue.put(
                [Message(topic, b"%s%d" % (topic.encode(), partition)) for topic in "abcab"],
                partition=partition,
            )
        queue.put(Message("a", b"last"), partition=1)
        got.await_values([b"last"])
    assert got.values == [b"a1", b"b1", b"a1", b"b1", b"last"]


def test_batches_with_and_without_keys_and_headers_are_delivered_as_one(
    make: Make, start: Start
) -> None:
    queue = make(1)
    headers = [("n", b"1"), ("", b""), ("n", b"\xff"), ("ü", b"2")]
    start()
    got = Received()
    with queue.subscriber(Subscription("s"), got):
        for number in range(3):
            queue.put(Message("t", b"plain %d" % number))
            queue.put(Message("t", b"keyed %d" % number, b"k"))
            queue.put(
                [
                    Message("t", b"none %d" % number),
                    Message("u", b"empty %d" % number, b""),
                    Message("t", b"all %d" % number, b"k", headers),
                    Message("u", b"headers %d" % number, headers=headers),
                ],
                partition=0,
            )
        got.await_values([b"headers 2"])
    assert got.messages == list(queue.scan())
    assert {m.key for m in got.messages} == {None, b"", b"k"}


@pytest.mark.thorough("`test_heaviest_batch` is beside it; a million headers, 3 s")
@pytest.mark.in_memory_first
def test_one_message_may_have_as_many_headers_as_a_batch(make: Make, start: Start) -> None:
    queue = make(1)
    start()
    got = Received()
    options = DeliveryOptions(timeout_ms=300_000)
    with queue.subscriber(Subscription("s", delivery=options), got):
        queue.put(Message("t", b"", headers=[("", b"")] * BATCH_HEADERS_MAX))
        queue.put(Message("t", b"next"))
        got.await_values([b"next"], timeout_s=300)
    assert got.messages == list(queue.scan())


@pytest.mark.in_memory_first
def test_large_batches_come_in_calls_of_the_size_that_was_asked_for(
    make: Make, start: Start
) -> None:
    queue = make(1)
    messages = [Message("t", b"%d" % number) for number in range(5_000)]
    for first in range(0, 5_000, 1_000):
        queue.put(messages[first : first + 1_000])
    start()
    got = Received()
    options = DeliveryOptions(batch_messages_max=300)
    with queue.subscriber(Subscription("s", delivery=options), got):
        got.await_values([b"4999"])
    assert got.values == [message.value for message in messages]
    assert max(map(len, got.calls)) == 300


def test_a_subscriber_goes_on_where_its_checkpoint_is(
    make: Make, start: Start, pushing: hqueue.Client
) -> None:
    queue = make(1)
    start(checkpoint_ms=50)
    before, after = Received(), Received()
    with queue.subscriber(Subscription("s"), before):
        first = put_numbers(queue, range(5))
        before.await_values(first)
    second = put_numbers(queue, range(5, 10))
    with queue.subscriber(Subscription("s"), after):
        after.await_values(second)
    assert after.values == second
    last = after.messages[-1].id
    assert last is not None
    wait_for(lambda: checkpoint(pushing, queue, 0, "s") > last, "the checkpoint is written")


@pytest.mark.in_memory_first
def test_retry_brings_the_same_batch_again_before_any_later_one(make: Make, start: Start) -> None:
    class Hesitating(Received):
        def answer(self, messages: Sequence[ReceivedMessage]) -> ListenerAnswer:
            return Status.RETRY if len(self.calls) <= 3 else Status.DONE

    queue = make(1)
    start()
    got = Hesitating()
    options = DeliveryOptions(backoff_ms_min=20, backoff_ms_max=200)
    with queue.subscriber(Subscription("s", delivery=options), got):
        queue.put([Message("t", b"a"), Message("t", b"b")])
        queue.put(Message("t", b"c"))
        got.await_values([b"c"])
    assert got.values == [b"a", b"b"] * 3 + got.values[6:]
    assert got.calls[0] == got.calls[1] == got.calls[2] == got.calls[3][:2]
    pauses = [after - before for before, after in zip(got.at_s, got.at_s[1:], strict=False)]
    assert pauses[0] >= 0.02
    assert pauses[1] >= 0.04


@pytest.mark.in_memory_first
def test_what_is_rejected_lies_with_the_dead_letters_and_can_be_put_back(
    make: Make, start: Start
) -> None:
    class Choosy(Received):
        def answer(self, messages: Sequence[ReceivedMessage]) -> ListenerAnswer:
            bad = any(message.value == b"bad" for message in messages)
            return Status.DEAD_LETTER if bad and len(waiting) < 1 else Status.DONE

    waiting: list[DeadLetter] = []
    queue = make(1)
    start()
    choosy, other = Choosy(), Received()
    options = DeliveryOptions(batch_messages_max=1)
    with (
        queue.subscriber(Subscription("choosy", delivery=options), choosy),
        queue.subscriber(Subscription("other"), other),
    ):
        values = [b"1", b"bad", b"2"]
        # Put by somebody before such topics were the system's own.
        forged = [
            Message(topic("choosy"), value)
            for topic in (redrive_topic, dead_letter_topic)
            for value in (b"anything", b"[" * 100_000 + b"\n", b'{"version":1}\n')
        ]
        queue._log.appender.put_system(forged, 0)
        queue.put([Message("t", value) for value in values])
        choosy.await_values([b"2"])
        unreadable: list[bytes] = []
        (letter,) = waiting = list(
            queue.dead_letters.waiting(
                "choosy", on_unreadable=lambda message, error: unreadable.append(message.value)
            )
        )
        assert sorted(unreadable) == sorted(each.value for each in forged)
        assert (letter.message.value, letter.message.topic) == (b"bad", "t")
        assert letter.message.id == choosy.messages[1].id
        assert (letter.subscriber, letter.attempts) == ("choosy", 1)
        assert letter.reason == "rejected by the subscriber"
        assert queue.dead_letters.redrive([letter]) == 1
        wait_for(lambda: choosy.values == [*values, b"bad"], "the redrive came")
        queue.put(Message("t", b"end"))
        other.await_values([b"end"])
        choosy.await_values([b"end"])
    assert list(queue.dead_letters.waiting("choosy")) == []
    assert other.values == [*values, b"end"]
    assert choosy.messages[3].topic == "t"
    assert choosy.check_order() == other.check_order() == 0


@pytest.mark.in_memory_first
def test_a_message_that_is_retried_too_often_becomes_a_dead_letter(
    make: Make, start: Start
) -> None:
    class Failing(Received):
        def answer(self, messages: Sequence[ReceivedMessage]) -> ListenerAnswer:
            if messages[0].value == b"poison" and not waiting:
                raise ValueError("a bug in a listener")
            return None

    waiting: list[DeadLetter] = []
    queue = make(1)
    start()
    got = Failing()
    options = DeliveryOptions(attempts_max=3, backoff_ms_min=10, batch_messages_max=1)
    poison = Message("t", b"poison", b"key", [("n", b"1"), ("n", b"\xff")])
    with queue.subscriber(Subscription("s", delivery=options), got):
        queue.put([poison, Message("t", b"good")])
        got.await_values([b"good"])
        (letter,) = waiting = list(queue.dead_letters.waiting("s"))
        queue.dead_letters.redrive(waiting)
        wait_for(lambda: len(got.messages) == 5, "the redrive came")
    assert got.values == [b"poison"] * 3 + [b"good", b"poison"]
    assert letter.message == got.messages[0]
    assert letter.attempts == 3
    assert letter.reason == (
        "the subscriber's attempts are used up: ValueError: a bug in a listener"
    )
    assert {(m.key, m.headers) for m in got.messages if m.value == b"poison"} == {
        (poison.key, poison.headers)
    }


@pytest.mark.in_memory_first
def test_a_delivery_delay_is_kept(make: Make, start: Start) -> None:
    queue = make(1)
    start()
    got = Received()
    delayed_ms: list[int] = []

    def listen(messages: Sequence[ReceivedMessage]) -> None:
        now_ms = time.time_ns() // 1_000_000
        delayed_ms.extend(now_ms - message.id.timestamp for message in messages if message.id)
        got(messages)

    options = DeliveryOptions(delay_ms=700)
    with queue.subscriber(Subscription("s", delivery=options), listen):
        values = put_numbers(queue, range(20))
        got.await_values(values)
    assert got.values == values
    assert min(delayed_ms) >= 700


def test_a_slow_subscriber_delays_no_other(make: Make, start: Start) -> None:
    queue = make(2)
    start()
    slow, fast = Stuck(), Received()
    with (
        queue.subscriber(Subscription("slow"), slow),
        queue.subscriber(Subscription("fast"), fast),
    ):
        put_numbers(queue, range(2))
        wait_for(lambda: slow.calls, "the slow one is busy")
        values = put_numbers(queue, range(2, 200))
        fast.await_values(values)
        assert len(slow.calls) == 1
        slow.released.set()


def test_workers_share_the_partitions_and_drain_them(make: Make, start: Start) -> None:
    queue = make(4)
    first = start()
    got = Received()
    with queue.subscriber(Subscription("s"), got):
        values = put_numbers(queue, range(40))
        wait_for(lambda: len(first.owns(queue)) == 4, "the first has all")
        second = start()
        wait_for(lambda: len(first.owns(queue)) == len(second.owns(queue)) == 2, "they share them")
        values += put_numbers(queue, range(40, 80))
        got.await_values(values)
        assert first.terminate() == 0
        wait_for(lambda: len(second.owns(queue)) == 4, "the second has all")
        values += put_numbers(queue, range(80, 120))
        got.await_values(values)
    # What was handed over in order comes once.
    assert sorted(got.values) == sorted(values)
    assert got.check_order() == 0


@pytest.mark.usefixtures("server")
def test_after_a_worker_is_killed_another_goes_on_when_its_session_is_over(
    make: Make, start: StartProcess
) -> None:
    queue = make(2)
    first = start(checkpoint_ms=100)
    got = Received()
    with queue.subscriber(Subscription("s"), got):
        values = put_numbers(queue, range(200))
        got.await_values(values)
        second = start(checkpoint_ms=100)
        wait_for(lambda: len(second.owns(queue)) == 1, "they share the partitions")
        first.kill()
        killed_s = time.monotonic()
        more = put_numbers(queue, range(200, 210))
        got.await_values(more)
        arrived_s = [
            at_s
            for call, at_s in zip(got.calls, got.at_s, strict=True)
            if any(message.value in more for message in call)
        ]
    assert set(got.values) == {*values, *more}
    got.check_order()
    # On an idle machine it is the session and two seconds; see `make bench`.
    assert max(arrived_s) - killed_s <= SESSION_MS / 1e3 + 30


@pytest.mark.usefixtures("server")
def test_a_worker_that_stood_still_for_longer_than_its_session_sends_nothing_more(
    make: Make, start: StartProcess
) -> None:
    queue = make(1)
    first = start(checkpoint_ms=100)
    got = Received(pause_s=0.001)
    options = DeliveryOptions(batch_messages_max=1)
    with queue.subscriber(Subscription("s", delivery=options), got):
        values = put_numbers(queue, range(300))
        wait_for(lambda: len(got.calls) > 20, "the first delivers")
        first.pause()
        second = start(checkpoint_ms=100)
        wait_for(lambda: second.owns(queue) == {0}, "the second took over")
        got.await_values(values)
        calls = len(got.calls)
        first.resume()
        wait_for(lambda: "the session was lost" in first.log, "the first has noticed")
        more = put_numbers(queue, range(300, 310))
        got.await_values(more)
        assert got.values[calls:] == more
    got.check_order()


def test_a_subscriber_that_comes_back_elsewhere_goes_on(make: Make, start: Start) -> None:
    queue = make(1)
    start(checkpoint_ms=50)
    first, second = Received(), Received()
    subscriber = queue.subscriber(Subscription("s"), first)
    subscriber.start()
    values = put_numbers(queue, range(10))
    first.await_values(values)
    subscriber.stop()
    more = put_numbers(queue, range(10, 20))
    with queue.subscriber(Subscription("s"), second):
        second.await_values(more)
    assert second.values == more


def test_an_idle_partition_is_woken_by_an_append(
    make: Make, start: Start, pushing: hqueue.Client
) -> None:
    queue = make(1)
    worker = start(poll_ms_max=60_000)
    got = Received()
    with queue.subscriber(Subscription("s", start="latest"), got):
        wait_for(lambda: worker.owns(queue) == {0}, "the worker has the partition")
        # Producers learn of the claim by a watch: the first messages may be polled for.
        for number in range(1_000):
            queue.put(Message("t", b"%d" % number))
            try:
                got.await_values([b"%d" % number], timeout_s=1)
            except AssertionError:
                continue
            if len(got.calls) >= 3:
                break
        for number in range(2_000, 2_005):
            time.sleep(0.3)  # The pauses between polls grow meanwhile.
            queue.put(Message("t", b"%d" % number))
            got.await_values([b"%d" % number], timeout_s=20)


@pytest.mark.in_memory_first
def test_a_truncated_queue_is_delivered_on(make: Make, start: Start, client: hqueue.Client) -> None:
    queue = make(1)
    start()
    got = Received()
    with queue.subscriber(Subscription("s"), got):
        got_before = put_numbers(queue, range(5))
        got.await_values(got_before)
        client.truncate_queue(queue.name)
        after = put_numbers(queue, range(5, 10))
        got.await_values(after, timeout_s=120)
    assert got.values == got_before + after


def test_what_comes_with_a_notification_is_delivered_without_a_read(
    server: local.LocalServer, make: Make, pushing: hqueue.Client
) -> None:
    queue = make(1)
    with Proxies(server) as proxies:
        between = proxies.settings(
            zookeeper_root=pushing.settings.zookeeper_root,
            zookeeper_session_timeout_ms=SESSION_MS,
        )
        got = Received()
        with (
            hqueue.connect(between) as client,
            WorkerThread(client),
            queue.subscriber(Subscription("s"), got),
        ):
            # Until the producer knows who serves the partition, the worker looks by itself.
            values = []
            while sum(proxy.calls["getRowsWithColumns"] for proxy in proxies) or not values:
                values += put_numbers(queue, range(len(values), len(values) + 1))
                got.await_values(values)
                proxies.reset()
                values += put_numbers(queue, range(len(values), len(values) + 5))
                got.await_values(values)
                assert len(values) < 1_000, "each message is read, though it came along"
    assert got.values == values
    assert got.check_order() == 0


@pytest.mark.in_memory_first
@pytest.mark.parametrize("kind", GARBAGE)
def test_a_checkpoint_that_can_not_be_read_stops_its_partition_alone_and_a_seek_repairs_it(
    make: Make, start: Start, pushing: hqueue.Client, kind: str
) -> None:
    queue = make(2)
    pushing.add_subscriber(queue.name, "s")
    path = pushing.coordination.paths.subscriber(SubscriptionKey(queue.name, 1, "s"))
    records = pushing.coordination.store.records
    garbage = garbled(kind, records.read([path])[path].value)
    records.write({path: Change(garbage, ANY)})
    start()
    got = Received()
    with queue.subscriber(Subscription("s"), got):
        for partition in (1, 0):
            queue.put(Message("t", b"%d" % partition), partition=partition)
        got.await_values([b"0"])
    assert got.values == [b"0"]
    first, second = pushing.list_subscribers(queue.name)
    assert (first.unreadable, second.checkpoint, second.lag) == (None, None, None)
    assert second.unreadable is not None
    assert second.unreadable.path == path
    assert records.read([path])[path].value == garbage
    pushing.seek_subscriber(queue.name, "s", "earliest", partitions=[1])
    assert [each.unreadable for each in pushing.list_subscribers(queue.name)] == [None, None]
    with queue.subscriber(Subscription("s"), got):
        got.await_values([b"1"])
