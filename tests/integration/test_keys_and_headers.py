"""Keys and headers: they choose partitions, lie in the log, and come back as they were."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

import hqueue
from hqueue import InvalidInputError, Message, Messages
from hqueue.format.arrow import HEADERS
from hqueue.message import partition_of_key

pytestmark = pytest.mark.in_memory

MakeQueue = Callable[..., hqueue.Queue]

MIXED = [
    Message("a", b"1"),
    Message("a", b"2", b"k", [("n", b"1"), ("n", b"2"), ("ü", b"")]),
    Message("b", b"3", b""),
    Message("a", b"4", None, [("", b"\xff\x00")]),
]


def sent(messages: object) -> list[Message]:
    """What was put, of messages that were read."""
    return [Message(m.topic, m.value, m.key, m.headers) for m in messages]  # type: ignore[attr-defined]


def in_partition(partition: int, partitions: int, count: int) -> list[bytes]:
    """Keys that belong to a partition."""
    keys = (b"key %d" % n for n in range(100 * count * partitions))
    return [key for key in keys if partition_of_key(key, partitions) == partition][:count]


@pytest.mark.in_memory_first
def test_batches_of_both_formats_are_read_as_one_log(make_queue: MakeQueue) -> None:
    queue = make_queue(2)
    queue.put([Message("a", b"plain")] * 3, partition=1)
    queue.put(MIXED, partition=1)
    queue.put(Message("b", b"plain again"), partition=1)
    expected = [*[Message("a", b"plain")] * 3, *MIXED, Message("b", b"plain again")]
    assert sent(queue.scan()) == expected
    assert sent(queue.scan(topics=["a"])) == [m for m in expected if m.topic == "a"]
    with queue.scan(partition=1) as scanner:
        table = pa.Table.from_batches(scanner.arrow_batches())
    assert table.column("key").to_pylist() == [m.key for m in expected]
    assert [
        tuple((pair["key"], pair["value"]) for pair in headers or ())
        for headers in table.column("headers").to_pylist()
    ] == [m.headers for m in expected]
    assert [each.findings for each in queue.verify()][-1] == []


@pytest.mark.in_memory_first
def test_what_was_read_is_put_again_with_its_key_and_headers(make_queue: MakeQueue) -> None:
    queue, by_message, by_column = (make_queue(1) for _ in range(3))
    queue.put(MIXED)
    by_message.put(list(queue.scan()))
    with queue.scan() as scanner:
        by_column.put(pa.Table.from_batches(scanner.arrow_batches()))
    assert sent(by_message.scan()) == sent(by_column.scan()) == MIXED


def test_a_messages_own_key_chooses_its_partition(make_queue: MakeQueue) -> None:
    queue = make_queue(4)
    keys = [b"", b"a", b"b", "ü".encode(), b"\xff"]
    with queue.producer(linger_ms=1) as producer:
        for number in range(40):
            key = keys[number % len(keys)]
            producer.send(Message("t", b"%d" % number, key))
    for key in keys:
        queue.put(Message("t", b"40", key))
    for key in keys:
        alike = [m for m in queue.scan() if m.key == key]
        assert {m.partition for m in alike} == {partition_of_key(key, 4)}
        numbers = [int(m.value) for m in alike]
        assert numbers == sorted(numbers)
        assert len(numbers) == 9


def test_a_partition_and_a_key_that_are_given_come_before_a_messages_own(
    make_queue: MakeQueue,
) -> None:
    queue = make_queue(3)
    (own,), (other,) = in_partition(0, 3, 1), in_partition(1, 3, 1)
    message = Message("t", b"v", own)
    queue.put(message, partition=2)
    queue.put(message, key=other)
    queue.put([message, message], partition=2)
    with queue.producer() as producer:
        producer.send(message, partition=2)
        producer.send(message, key=other)
        producer.send_batch([message], partition=2)
    assert sorted(m.partition for m in queue.scan()) == [1, 1, 2, 2, 2, 2, 2]
    assert {m.key for m in queue.scan()} == {own}


def columns_of(keys: list[bytes | None]) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "topic": ["t"] * len(keys),
            "value": [b"v"] * len(keys),
            "key": pa.array(keys, pa.binary()),
            "headers": pa.nulls(len(keys), HEADERS),
        }
    )


@pytest.mark.parametrize(
    "batch_of",
    [
        lambda keys: [Message("t", b"v", key) for key in keys],
        lambda keys: Messages("t", [b"v"] * len(keys), keys),
        columns_of,
        lambda keys: pa.Table.from_batches([columns_of(keys[:1]), columns_of(keys[1:])]),
    ],
    ids=["messages", "Messages", "record batch", "table"],
)
def test_a_batch_lies_where_its_keys_belong_and_is_refused_if_they_belong_apart(
    make_queue: MakeQueue, batch_of: Callable[[list[bytes | None]], list[Message]]
) -> None:
    queue = make_queue(3)
    together: list[bytes | None] = [*in_partition(2, 3, 3), None]
    apart: list[bytes | None] = [*in_partition(2, 3, 1), *in_partition(1, 3, 1)]
    with queue.producer() as producer:
        for put in (queue.put, producer.send_batch):
            put(batch_of(together))  # type: ignore[operator]
            with pytest.raises(InvalidInputError, match="several partitions"):
                put(batch_of(apart))  # type: ignore[operator]
            put(batch_of(apart), partition=0)  # type: ignore[operator]
    found = [(m.partition, m.key) for m in queue.scan(merge_sorted=False)]
    assert sorted(found, key=str) == sorted(
        2 * [*((2, key) for key in together), *((0, key) for key in apart)], key=str
    )


def test_keys_and_headers_count_toward_what_a_producer_gathers(make_queue: MakeQueue) -> None:
    queue = make_queue(1)
    with queue.producer(linger_ms=60_000, batch_bytes_max=1_000) as producer:
        for _ in range(3):
            producer.send(Message("t", b"", b"k" * 300, [("n" * 100, b"v" * 200)]))
        producer.flush()
    assert [header.count for header in queue.headers(0)] == [1, 1, 1]
    (entry,) = next(iter(queue.headers(0))).topics
    assert entry.value_bytes == 0
    assert entry.key_bytes > 300
    assert entry.header_bytes > 300


@pytest.mark.thorough("a million headers, 3 s")
def test_many_empty_headers_fill_a_batch_as_others_do(make_queue: MakeQueue) -> None:
    queue = make_queue(1)
    with queue.producer(linger_ms=60_000, batch_bytes_max=4 * 1024 * 1024) as producer:
        message = Message("t", b"", None, [("", b"")] * 100_000)
        sent_all = [producer.send(message) for _ in range(12)]
        producer.flush()
    assert all(each.exception(0) is None for each in sent_all)
    assert len(list(queue.headers(0))) > 1


def test_the_same_idempotency_key_with_other_keys_or_headers_is_refused(
    make_queue: MakeQueue,
) -> None:
    queue = make_queue(1)
    message = Message("t", b"v", b"k", [("n", b"1")])
    first = queue.put(message, partition=0, idempotency_key="once")
    assert queue.put(message, partition=0, idempotency_key="once") == first
    for other in (
        Message("t", b"v"),
        Message("t", b"v", b"other", [("n", b"1")]),
        Message("t", b"v", b"k", [("n", b"2")]),
    ):
        with pytest.raises(hqueue.IdempotencyKeyReusedError):
            queue.put(other, partition=0, idempotency_key="once")
    assert sent(queue.scan()) == [message]
