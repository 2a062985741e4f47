"""The producer: order, deliveries, back-pressure, and its ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import hqueue
from hqueue import (
    BufferFullError,
    ClosedError,
    InvalidInputError,
    Message,
    Messages,
    MessageTooLargeError,
)
from tests.support.backends import LossyWay
from tests.support.history import Seen, check, seen_by
from tests.support.proxy import Fate
from tests.support.queue_faces import QueueFace
from tests.support.waiting import wait_for

from .running import Program

pytestmark = pytest.mark.in_memory

MakeQueue = Callable[..., hqueue.Queue]


@pytest.mark.in_memory_first
def test_each_partition_and_each_key_keeps_the_order_of_sending(make_queue: MakeQueue) -> None:
    queue = make_queue(4)
    sent = []
    with queue.producer(linger_ms=1, batch_messages_max=7, batch_bytes_max=100) as producer:
        for n in range(1_200):
            where: dict[str, object] = {"partition": n % 3} if n % 2 else {"key": f"k{n % 5}"}
            writer = "-".join(map(str, where.values()))
            value = f"{writer}:{n}"
            message = Message("ab"[n % 2], value.encode())
            sent.append((value, producer.send(message, **where)))  # type: ignore[arg-type]
    acknowledged = [Seen(-1, int(delivery.result(0)), value) for value, delivery in sent]
    check(acknowledged, seen_by(queue.scan()))


def test_a_delivery_callback_can_not_wait_for_its_own_producer(make_queue: MakeQueue) -> None:
    refused: list[str] = []
    with make_queue().producer() as producer:

        def wait(_: object, __: object) -> None:
            for end in (producer.flush, producer.close):
                try:
                    end()
                except InvalidInputError as exc:
                    refused.append(exc.text)

        producer.send(Message("t", b"x"), callback=wait).result(30)
        producer.send(Message("t", b"it was not closed")).result(30)
    assert len(refused) == 2


@pytest.mark.in_memory_first
def test_what_is_sent_to_any_partition_arrives_once_and_spreads(make_queue: MakeQueue) -> None:
    queue = make_queue(4)
    with queue.producer(linger_ms=0, batch_messages_max=5) as producer:
        sent = [(n, producer.send(Message("t", b"0:%d" % n))) for n in range(2_000)]
    acknowledged = [Seen(-1, int(delivery.result(0)), f"0:{n}") for n, delivery in sent]
    read = seen_by(queue.scan())
    check(acknowledged, read, ordered=False)
    assert {seen.partition for seen in read} == {0, 1, 2, 3}


def test_whole_batches_keep_their_order_among_single_messages(make_queue: MakeQueue) -> None:
    queue = make_queue(2)
    sent: list[tuple[list[bytes], Any, Any]] = []
    with queue.producer(linger_ms=1) as producer:
        for n in range(200):
            partition = n % 2
            values = [b"%d:%d" % (partition, 4 * n + m) for m in range(4)]
            single = producer.send(Message("t", values[0]), partition=partition)
            batch: Any = [
                Messages("u", values[1:]),
                [Message("u", value) for value in values[1:]],
                pa.RecordBatch.from_pydict({"topic": ["u"] * 3, "value": values[1:]}),
            ][n % 3]
            sent.append((values, single, producer.send_batch(batch, partition=partition)))
    acknowledged = [
        Seen(-1, int(message_id), value.decode())
        for values, single, whole in sent
        for value, message_id in zip(values, [single.result(0), *whole.result(0)], strict=True)
    ]
    check(acknowledged, seen_by(queue.scan()))


def test_values_keep_their_order_among_messages(make_queue: MakeQueue) -> None:
    queue = make_queue(2)
    sent: list[tuple[str, hqueue.Delivery[hqueue.MessageID]]] = []
    with queue.producer(linger_ms=1, batch_messages_max=50) as producer:
        for n in range(600):
            topic, value = f"t{n % 3}", b"writer:%d" % n
            if n % 2:
                delivery = producer.send(Message(topic, value), partition=1)
            else:
                kind = (bytes, bytearray, memoryview)[n % 3]
                delivery = producer.send_value(topic, kind(value), partition=1)
            sent.append((value.decode(), delivery))
    check([Seen(-1, int(each.result(0)), value) for value, each in sent], seen_by(queue.scan()))
    assert [m.topic for m in queue.scan()] == [f"t{n % 3}" for n in range(600)]


@pytest.mark.parametrize(
    ("topic", "value"),
    [
        ("", b""),
        ("x" * 256, b""),
        ("\ud800", b""),
        (b"t", b""),
        (None, b""),
        ([], b""),
        ("t", "text"),
        ("t", None),
        ("t", bytes(8 * 1024 * 1024 + 1)),
    ],
)
def test_a_value_that_no_message_can_have_is_refused_whatever_is_in_the_buffer(
    client: hqueue.Client, make_queue: MakeQueue, queue_face: QueueFace, topic: Any, value: Any
) -> None:
    queue = make_queue()
    with queue_face(client, queue).producer(linger_ms=60_000) as producer:
        for first in (b"", b"x" * 100):
            with pytest.raises((InvalidInputError, MessageTooLargeError)):
                producer.send_value(topic, value)
            producer.send_value("t", first)
    assert [m.value for m in queue.scan()] == [b"", b"x" * 100]


def test_a_bad_batch_is_refused_before_anything_is_taken(make_queue: MakeQueue) -> None:
    queue = make_queue()
    with queue.producer() as producer:
        for bad in ([], "text", Message("t", b"one"), [Message("t", b"one"), b"two"]):
            with pytest.raises(InvalidInputError):
                producer.send_batch(bad)  # type: ignore[arg-type]
        with pytest.raises(InvalidInputError):
            producer.send_batch([Message("t", b"one")], partition=7)
    assert list(queue.scan()) == []
    with pytest.raises(ClosedError):
        producer.send_batch([Message("t", b"one")])


def test_a_batch_waits_for_room_as_a_message_does(lossy: LossyWay, make_queue: MakeQueue) -> None:
    name = make_queue().name
    with lossy.connect() as client:
        queue = client.queue(name)
        queue.put(Message("t", b"the clock is measured"))
        lossy.set_fate(lambda method: Fate.LOSE_REQUEST)
        with queue.producer(buffer_bytes_max=1_000, block_ms_max=50) as producer:
            first = producer.send_batch(Messages("t", [bytes(2_000)]))
            with pytest.raises(BufferFullError):
                producer.send_batch(Messages("t", [b"no room"]))
            lossy.set_fate(lambda method: Fate.PASS)
            assert len(first.result(60)) == 1
    assert first.done()
    assert first.exception(0) is None


def test_a_message_lingers_no_longer_than_asked(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.put(Message("t", b"the clock is measured"))
    with queue.producer(linger_ms=20) as producer:
        began = time.monotonic()
        producer.send(Message("t", b"x")).result(30)
        assert time.monotonic() - began < 30
    with queue.producer(linger_ms=60_000) as producer:
        first = producer.send(Message("t", b"first"))
        assert not first.done()
        assert producer.flush(30)
        assert first.done()
        second = producer.send(Message("t", b"second"))
        with pytest.raises(TimeoutError):
            second.result(0.2)
    assert second.done()
    assert second.result(0) > first.result(0)


@pytest.mark.in_memory_first
def test_values_up_to_8_mib_go_through_any_batch_size(make_queue: MakeQueue) -> None:
    queue = make_queue()
    sizes = [0, 5, 8 * 1024 * 1024, 0, 1, 3_000_000, 0, 8 * 1024 * 1024, 2_000_000]
    with queue.producer(batch_bytes_max=1_000, buffer_bytes_max=1_000) as producer:
        deliveries = [producer.send(Message("t", bytes(size)), partition=0) for size in sizes]
    read = list(queue.scan())
    assert [len(m.value) for m in read] == sizes
    assert [m.id for m in read] == [delivery.result(0) for delivery in deliveries]


def test_callbacks_get_the_id_and_one_that_fails_disturbs_nobody(make_queue: MakeQueue) -> None:
    queue = make_queue()
    told: list[tuple[hqueue.MessageID | None, BaseException | None]] = []
    threads: set[str] = set()

    def callback(message_id: hqueue.MessageID | None, error: BaseException | None) -> None:
        threads.add(threading.current_thread().name)
        told.append((message_id, error))
        if len(told) % 3 == 0:
            raise RuntimeError("a callback that fails")

    with queue.producer(batch_messages_max=4) as producer:
        for n in range(30):
            producer.send(Message("t", b"%d" % n), partition=0, callback=callback)
    assert [i for i, _ in told] == [m.id for m in queue.scan()]
    assert {error for _, error in told} == {None}
    assert threading.current_thread().name not in threads


@pytest.mark.in_memory_first
def test_a_failed_batch_reaches_its_deliveries_and_later_ones_go_on(
    client: hqueue.Client, make_queue: MakeQueue
) -> None:
    queue = make_queue()
    told: list[BaseException | None] = []
    with queue.producer(linger_ms=1) as producer:
        good = [producer.send(Message("t", b"0:0"), partition=0)]
        assert producer.flush(30)
        client.disable_queue(queue.name)
        bad = [
            producer.send(
                Message("t", b"0:%d" % n), partition=0, callback=lambda _, error: told.append(error)
            )
            for n in (1, 2)
        ]
        assert producer.flush(60)
        client.enable_queue(queue.name)
        good += [producer.send(Message("t", b"0:%d" % n), partition=0) for n in (3, 4)]
    for delivery in bad:
        assert isinstance(delivery.exception(0), hqueue.errors.QueueDisabledError)
        with pytest.raises(hqueue.errors.QueueDisabledError):
            delivery.result(0)
    assert [type(error) for error in told] == [hqueue.errors.QueueDisabledError] * 2
    numbers = (0, 3, 4)
    acknowledged = [Seen(0, int(d.result(0)), f"0:{n}") for d, n in zip(good, numbers, strict=True)]
    check(acknowledged, seen_by(queue.scan()))


@pytest.mark.in_memory_first
def test_a_full_buffer_blocks_then_refuses_and_loses_nothing_that_it_took(
    make_queue: MakeQueue, lossy: LossyWay
) -> None:
    name = make_queue().name
    with lossy.connect(request_timeout_ms=1_000, operation_timeout_ms=60_000) as client:
        queue = client.queue(name)
        queue.put(Message("t", b"0:0"))
        lossy.set_fate(lambda _: Fate.HANG)
        producer = queue.producer(linger_ms=0, buffer_bytes_max=10_000, block_ms_max=300)
        sent: list[tuple[int, hqueue.Delivery]] = []
        began = time.monotonic()

        def send_all() -> None:
            for n in range(1, 1_000):
                sent.append((n, producer.send(Message("t", b"0:%d" % n), partition=0)))

        with pytest.raises(BufferFullError) as caught:
            send_all()
        assert caught.value.outcome is hqueue.Outcome.NOT_APPLIED
        assert time.monotonic() - began >= 0.3
        assert 10 < len(sent) < 100
        lossy.set_fate(lambda _: Fate.PASS)
        # A sender that waits is let in as soon as there is room.
        assert producer.flush(60)
        sent.append((1_000, producer.send(Message("t", b"0:1000"), partition=0)))
        assert producer.close()
        acknowledged = [Seen(0, int(delivery.result(0)), f"0:{n}") for n, delivery in sent]
        first = next(queue.scan().__iter__())
        check([*seen_by([first]), *acknowledged], seen_by(queue.scan()))


def test_a_sender_that_waits_for_room_is_let_in(make_queue: MakeQueue) -> None:
    queue = make_queue()
    with queue.producer(buffer_bytes_max=1_000, block_ms_max=60_000) as producer:
        sent = [(n, producer.send(Message("t", b"0:%d" % n), partition=0)) for n in range(500)]
    check([Seen(0, int(d.result(0)), f"0:{n}") for n, d in sent], seen_by(queue.scan()))


@pytest.mark.in_memory_first
@pytest.mark.thorough("waits for the bounds themselves, 10 s")
def test_flush_and_close_keep_their_time_outs_when_hbase_hangs(
    make_queue: MakeQueue, lossy: LossyWay
) -> None:
    name = make_queue(8).name
    with lossy.connect(request_timeout_ms=1_000, operation_timeout_ms=10_000) as client:
        queue = client.queue(name)
        queue.put(Message("t", b"x"))
        lossy.set_fate(lambda _: Fate.HANG)
        producer = queue.producer(linger_ms=0, appends_max=8)
        delivery = producer.send(Message("t", b"y"))
        for wait in (producer.flush, producer.close):
            began = time.monotonic()
            assert wait(0.5) is False
            assert time.monotonic() - began < 9
        with pytest.raises(TimeoutError):
            delivery.result(0.01)
        error = delivery.exception(60)
        assert isinstance(error, hqueue.StoreUnavailableError)
        assert error.outcome is hqueue.Outcome.UNKNOWN
        assert producer.close(60)


@pytest.mark.in_memory_first
def test_a_closed_producer_has_written_all_and_takes_no_more(make_queue: MakeQueue) -> None:
    queue = make_queue(2)
    producer = queue.producer(linger_ms=60_000)
    sent = [producer.send(Message("t", b"%d" % n), partition=n % 2) for n in range(100)]
    assert producer.close()
    assert producer.close(), "closing twice is harmless"
    assert all(delivery.done() for delivery in sent)
    with pytest.raises(ClosedError):
        producer.send(Message("t", b"late"))
    assert len(list(queue.scan())) == 100


def test_closing_wakes_a_sender_that_waits_for_room(make_queue: MakeQueue, lossy: LossyWay) -> None:
    name = make_queue().name
    with lossy.connect(request_timeout_ms=500, operation_timeout_ms=2_000) as client:
        queue = client.queue(name)
        queue.put(Message("t", b"x"))
        lossy.set_fate(lambda _: Fate.HANG)
        producer = queue.producer(linger_ms=0, buffer_bytes_max=1)
        producer.send(Message("t", b"fills the buffer"))
        errors: list[BaseException] = []

        def send() -> None:
            try:
                producer.send(Message("t", b"waits"))
            except hqueue.HQueueError as exc:
                errors.append(exc)

        sender = threading.Thread(target=send)
        sender.start()
        producer.close(0.2)
        sender.join(10)
        assert [type(error) for error in errors] == [ClosedError]
        wait_for(lambda: producer.close(1), "the producer ends")


@pytest.mark.in_memory_first
@pytest.mark.parametrize("how", ["end", "error"])
def test_a_process_that_ends_without_closing_has_written_all(
    make_queue: MakeQueue, process_environment: dict[str, str], how: str
) -> None:
    queue = make_queue(2)
    with Program("leave", queue.name, how, environment=process_environment) as program:
        if how == "end":
            program.result()
        else:
            with pytest.raises(AssertionError):
                program.result()
    read = seen_by(queue.scan())
    check(read, read)
    assert sorted(int(seen.value[2:]) for seen in read) == list(range(2_000))
