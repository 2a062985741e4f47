"""Wrong arguments are refused before anything is sent: the table stays as it is."""

from __future__ import annotations

import datetime
import enum
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import hqueue
from hqueue import InvalidInputError, Message, MessageID, MessageTooLargeError, Scan
from tests.support.raw import RawTables

pytestmark = pytest.mark.in_memory

MakeQueue = Callable[..., hqueue.Queue]
MIB = 1024 * 1024
GOOD = Message("topic", b"good")


@pytest.fixture(scope="module")
def queue(client: hqueue.Client) -> Iterator[hqueue.Queue]:
    name = "refused-input"
    yield client.create_queue(name, partitions=3)
    client.disable_queue(name)
    client.delete_queue(name)


@pytest.mark.in_memory_first
@pytest.mark.parametrize(
    "name",
    ["", " ", "a b", "-a", ".a", "a/b", "ä", "hbase:meta", ":a", "a:", "a:b:c", "x" * 201, None],
)
def test_a_name_that_hbase_would_not_take_is_refused(client: hqueue.Client, name: str) -> None:
    before = client.list_queues()
    for operation in (client.queue, client.describe_queue, client.delete_queue):
        with pytest.raises(InvalidInputError):
            operation(name)
    with pytest.raises(InvalidInputError):
        client.create_queue(name, partitions=1)
    assert client.list_queues() == before


@pytest.mark.parametrize("partitions", [0, -1, 32_768, 1.0, "1", None, True])
def test_a_wrong_number_of_partitions_creates_nothing(
    client: hqueue.Client, raw: RawTables, queue_name: str, partitions: int
) -> None:
    with pytest.raises(InvalidInputError):
        client.create_queue(queue_name, partitions=partitions)
    assert not raw.exists(queue_name)


@pytest.mark.in_memory_first
@pytest.mark.parametrize(
    "ttl", [0, 59, -1, 2**31 - 1, "", "1x", "d", 1.5, True, datetime.timedelta(seconds=59)]
)
def test_a_wrong_ttl_creates_nothing(
    client: hqueue.Client, raw: RawTables, queue_name: str, ttl: int
) -> None:
    with pytest.raises(InvalidInputError):
        client.create_queue(queue_name, partitions=1, ttl=ttl)
    assert not raw.exists(queue_name)


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("compresion", "GZ"),
        ("compression", "RAR"),
        ("durability", "ASYNC_WAL"),
        ("partitions_per_region", 0),
        ("memstore_flush_bytes", 10),
        ("hbase.hstore.compaction.min", 1),
        ("blocking_store_files", "many"),
    ],
)
def test_a_wrong_attribute_creates_nothing_and_is_named(
    client: hqueue.Client, raw: RawTables, queue_name: str, attribute: str, value: object
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        client.create_queue(queue_name, partitions=1, **{attribute: value})
    assert caught.value.facts["attribute"] == attribute
    assert not raw.exists(queue_name)


@pytest.mark.parametrize("topic", ["", "x" * 256, "ä" * 128, "\ud800", b"bytes", None, 1])
def test_a_wrong_topic_makes_no_message(topic: str) -> None:
    with pytest.raises(InvalidInputError):
        Message(topic, b"")
    with pytest.raises(InvalidInputError):
        Scan().add_topic(topic)


@pytest.mark.parametrize("value", ["text", None, 1, [b"x"]])
def test_a_value_that_is_not_bytes_makes_no_message(value: bytes) -> None:
    with pytest.raises(InvalidInputError):
        Message("topic", value)


def test_a_value_above_8_mib_makes_no_message() -> None:
    with pytest.raises(MessageTooLargeError) as caught:
        Message("topic", bytes(8 * MIB + 1))
    assert caught.value.outcome is hqueue.Outcome.NOT_APPLIED


WRONG_PUTS: dict[str, Callable[[hqueue.Queue], object]] = {
    "partition too high": lambda q: q.put(GOOD, partition=3),
    "partition negative": lambda q: q.put(GOOD, partition=-1),
    "partition a bool": lambda q: q.put(GOOD, partition=True),
    "partition a text": lambda q: q.put(GOOD, partition="1"),  # type: ignore[call-overload]
    "partition and key": lambda q: q.put(GOOD, partition=1, key="k"),
    "key without UTF-8": lambda q: q.put(GOOD, key="\ud800"),
    "key a number": lambda q: q.put(GOOD, key=1),  # type: ignore[call-overload]
    "no message": lambda q: q.put([]),
    "bytes": lambda q: q.put(b"value"),  # type: ignore[call-overload]
    "text": lambda q: q.put("value"),  # type: ignore[call-overload]
    "a set": lambda q: q.put({GOOD}),  # type: ignore[call-overload]
    "a stranger in the batch": lambda q: q.put([GOOD, b"bad", GOOD]),  # type: ignore[list-item]
    "a tuple in the batch": lambda q: q.put([GOOD, ("topic", b"bad")]),  # type: ignore[list-item]
    "too many messages": lambda q: q.put([GOOD] * 65_537),
    "too many topics": lambda q: q.put([Message(f"t{n}", b"") for n in range(1_025)]),
    "too many bytes": lambda q: q.put([Message("topic", bytes(MIB))] * 8),
}


@pytest.mark.parametrize("name", WRONG_PUTS)
def test_a_put_with_anything_wrong_writes_nothing(
    queue: hqueue.Queue, raw: RawTables, name: str
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        WRONG_PUTS[name](queue)
    assert caught.value.outcome is hqueue.Outcome.NOT_APPLIED
    assert raw.rows(queue.name) == {}, "not even the clock was probed"


class Topic(str, enum.Enum):
    CLICKS = "clicks"


def test_a_member_of_an_enumeration_of_texts_is_a_topic_wherever_a_text_is(
    make_queue: MakeQueue,
) -> None:
    queue = make_queue(1)
    for message in (Message(Topic.CLICKS, b"1"), hqueue.Messages(Topic.CLICKS, [b"1"])[0]):
        assert type(message.topic) is str
        assert message == Message("clicks", b"1")
    queue.put(Message(Topic.CLICKS, b"1"), partition=0)
    queue.put(hqueue.Messages(Topic.CLICKS, [b"2", b"3"]), partition=0)
    with queue.producer() as producer:
        producer.send_value(Topic.CLICKS, b"4", partition=0)
    found = [(each.topic, each.value) for each in queue.scan(topics=[Topic.CLICKS])]
    assert found == [("clicks", b"%d" % number) for number in (1, 2, 3, 4)]
    assert hqueue.Subscription("s", [Topic.CLICKS]).topics == {"clicks"}
    assert Message("t", b"", headers=[(Topic.CLICKS, b"")]).headers == (("clicks", b""),)


@pytest.mark.parametrize("whole", [np.int8, np.uint16, np.int32, np.int64, np.uint64])
def test_numpys_integers_are_taken_where_integers_are(
    make_queue: MakeQueue, whole: Callable[[int], int]
) -> None:
    queue = make_queue(whole(2))
    first = queue.put(GOOD, partition=whole(1))
    with queue.producer(linger_ms=whole(100), appends_max=whole(2)) as producer:
        producer.send(GOOD, partition=whole(1))
    assert [type(each.partition) for each in queue.scan(partition=whole(1))] == [int, int]
    assert MessageID(whole(3), whole(5)) == MessageID(3, 5)
    assert MessageID.from_int(whole(100)) == MessageID.from_int(100)
    assert [each.partition for each in queue.offsets([whole(1)])] == [1]
    assert queue.lag({whole(1): first})[1].messages == 2
    assert queue.count_before(whole(1), first) == 0
    scans = {whole(1): Scan(whole(3))}
    assert len(list(queue.combined_partition_scanner(scans, bytes_max=whole(100)))) == 2


def test_a_producer_refuses_the_same(queue: hqueue.Queue, raw: RawTables) -> None:
    with queue.producer() as producer:
        for send in (
            lambda: producer.send(GOOD, partition=3),
            lambda: producer.send(GOOD, partition=0, key="k"),
            lambda: producer.send(GOOD, key="\udfff"),
            lambda: producer.send_batch([GOOD], key="\udfff"),
            lambda: producer.send(b"value"),  # type: ignore[arg-type]
            lambda: producer.send(("topic", b"value")),  # type: ignore[arg-type]
            lambda: producer.send([GOOD]),  # type: ignore[arg-type]
        ):
            with pytest.raises(InvalidInputError):
                send()
    assert raw.rows(queue.name) == {}


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("linger_ms", -1),
        ("batch_bytes_max", 0),
        ("batch_messages_max", 65_537),
        ("buffer_bytes_max", 0),
        ("block_ms_max", -1),
        ("appends_max", 0),
        ("appends_max", "4"),
    ],
)
def test_a_producer_option_out_of_range_is_named(
    queue: hqueue.Queue, option: str, value: object
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        queue.producer(**{option: value})
    assert caught.value.facts["option"] == option


@pytest.mark.parametrize(
    "moment",
    [
        -1,
        2**48,
        1_700_000_000,
        1.5,
        "soon",
        True,
        datetime.datetime(2024, 1, 1),
        datetime.datetime.max,
    ],
)
def test_a_wrong_moment_makes_no_scan(queue: hqueue.Queue, moment: int) -> None:
    with pytest.raises(InvalidInputError):
        Scan(start=moment)
    with pytest.raises(InvalidInputError):
        queue.scan(stop=moment)


def test_a_scan_that_stops_before_it_starts_is_refused(queue: hqueue.Queue) -> None:
    with pytest.raises(InvalidInputError):
        Scan(MessageID(2), MessageID(1, 32_767))


WRONG_SCANS: dict[str, Callable[[hqueue.Queue], object]] = {
    "partition too high": lambda q: q.scan(partition=3),
    "combined partition": lambda q: q.combined_partition_scanner({0: Scan(), 7: Scan()}),
    "no partition": lambda q: q.combined_partition_scanner({}),
    "follow and merge": lambda q: q.scan(follow=True, merge_sorted=True),
    "topics None": lambda q: q.scan(topics=None),  # type: ignore[arg-type]
    "a partition and several": lambda q: q.scan(partition=0, partitions=[1]),
    "several with one too high": lambda q: q.scan(partitions=[0, 3]),
    "a negative limit": lambda q: q.scan(limit=-1),
    "idle, a text": lambda q: q.scan(follow=True, idle_ms_max="10"),  # type: ignore[typeddict-item]
    "idle, negative": lambda q: q.scan(follow=True, idle_ms_max=-1),
    "idle without following": lambda q: q.scan(idle_ms_max=10),
    "a list of partitions": lambda q: q.combined_partition_scanner([0, 1]),  # type: ignore[arg-type]
    "a partition without a scan": lambda q: q.combined_partition_scanner({0: None}),  # type: ignore[dict-item]
    "no bytes": lambda q: q.scan(bytes_max=0),
    "wrong topic": lambda q: q.scan(topics=["ok", ""]),
}


@pytest.mark.parametrize("name", WRONG_SCANS)
def test_a_scan_with_anything_wrong_is_refused_when_it_is_opened(
    queue: hqueue.Queue, name: str
) -> None:
    with pytest.raises(InvalidInputError):
        WRONG_SCANS[name](queue)


def test_seconds_where_milliseconds_are_meant_are_refused_with_what_to_do(
    queue: hqueue.Queue,
) -> None:
    now_s = int(time.time())
    for call in (
        lambda: queue.scan(start=now_s),
        lambda: queue.put(GOOD, partition=0, idempotency_key="k", since=now_s),
        lambda: hqueue.Subscription("s", start=now_s),
    ):
        with pytest.raises(InvalidInputError, match="milliseconds"):
            call()
    with queue.scan(start=now_s * 1_000):
        pass


def test_a_subscriber_that_was_not_started_is_not_waited_for(queue: hqueue.Queue) -> None:
    subscriber = queue.subscriber(hqueue.Subscription("s"), print)
    with pytest.raises(InvalidInputError, match="not started"):
        subscriber.wait()
    subscriber.request_stop()
    assert subscriber.wait()


def test_without_pyarrow_arrow_batches_say_what_to_install(
    queue: hqueue.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "hqueue.consume.arrow", raising=False)
    with queue.scan() as scanner, pytest.raises(InvalidInputError, match="\\[arrow\\]"):
        next(scanner.arrow_batches())


def test_one_text_for_topics_is_refused_instead_of_taken_apart(queue: hqueue.Queue) -> None:
    with pytest.raises(InvalidInputError):
        queue.scan(topics="clicks")


@pytest.mark.in_memory_first
def test_a_closed_queue_refuses_everything(client: hqueue.Client, queue: hqueue.Queue) -> None:
    with client.queue(queue.name) as closed:
        scanner = closed.scan()
    scanner.close()
    operations: tuple[Callable[[], object], ...] = (
        lambda: closed.put(GOOD),
        closed.scan,
        scanner.next,
    )
    for operation in operations:
        with pytest.raises(hqueue.ClosedError):
            operation()


@pytest.mark.parametrize("count", [0, 65_537])
@pytest.mark.parametrize("kind", ["list", "Messages", "record batch"])
@pytest.mark.parametrize("way", ["put", "send_batch"])
def test_no_messages_or_too_many_are_refused_with_what_to_do(
    queue: hqueue.Queue, way: str, kind: str, count: int
) -> None:
    given: Any = hqueue.Messages("topic", [b"v"] * count)
    if kind == "list":
        given = [GOOD] * count
    elif kind == "record batch":
        values = pa.array([b"v"] * count, pa.binary())
        given = pa.record_batch({"topic": pa.array(["topic"] * count), "value": values})
    with queue.producer() as producer, pytest.raises(InvalidInputError) as raised:
        (queue.put if way == "put" else producer.send_batch)(given)
    assert raised.value.facts["messages"] == count
    assert ("Producer.send," in str(raised.value)) == (count > 0)
    assert ("skip an empty batch" in str(raised.value)) == (count == 0)
    assert raised.value.outcome is hqueue.Outcome.NOT_APPLIED
    assert not list(queue.scan())
