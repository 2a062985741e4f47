"""A batch that can't be read stops every reader, and hides nothing behind it; and where an operator
says so every reader passes by it, and tells.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

import hqueue
from hqueue import Consumer, CorruptLogError, InvalidInputError, Message, Subscription
from hqueue.consume.skipped_batches import SKIPPED_MAX
from hqueue.engine import messages_of
from hqueue.format import rowkey
from hqueue.metadata import PartitionKey
from tests.support.apache_thrift import ApacheClient, apache_module
from tests.support.backends import Backend
from tests.support.hub_subscribers import Subscriber
from tests.support.hubs import HubThread
from tests.support.queue_faces import QueueFace
from tests.support.raw import RawTables
from tests.support.unreadable import BAD, put_unreadable, unreadable_headers
from tests.support.waiting import wait_for

from .pushing import Received

pytestmark = pytest.mark.in_memory

GOOD = [b"1", b"2", b"3"]
BESIDE = [b"beside 1", b"beside 2"]
LAST = [b"4", b"5"]
WAIT_MS = 60_000
API = apache_module()


class Damaged:
    """A queue with messages before, beside and behind what can't be read.

    Args:
        queue: an empty queue.
        many: whether the batch is so large that it is read as columns, and not by message.
    """

    def __init__(self, queue: hqueue.Queue, *, many: bool) -> None:
        self.queue = queue
        self.lost = 100 if many else 2
        queue.put([Message("t", value) for value in GOOD], partition=0)
        bad = [Message("bad", b"lost", None, [(BAD, b"")]) for _ in range(self.lost)]
        good = [Message("t", value) for value in BESIDE]
        self.row = put_unreadable(queue, [good[0], *bad, good[1]])
        for value in LAST:
            queue.put(Message("t", value), partition=0)
        self.messages = len(GOOD) + self.lost + len(BESIDE) + len(LAST)

    def skip(self) -> None:
        assert self.queue.skipped_batches.add(self.row) == self.lost + len(BESIDE)


@pytest.fixture(params=[False, True], ids=["small", "large"])
def damaged(make_queue: Callable[..., hqueue.Queue], request: pytest.FixtureRequest) -> Damaged:
    return Damaged(make_queue(), many=request.param)


def scanned(queue: hqueue.Queue) -> list[bytes]:
    return [message.value for message in queue.scan()]


def scanned_as_columns(queue: hqueue.Queue) -> list[bytes]:
    batches = list(queue.scan().arrow_batches())
    assert all(batch.num_rows for batch in batches)
    return [value for batch in batches for value in batch.column("value").to_pylist()]


def merged(queue: hqueue.Queue) -> list[bytes]:
    return [message.value for message in queue.scan(merge_sorted=True)]


def followed(queue: hqueue.Queue) -> list[bytes]:
    return [message.value for message in queue.scan(follow=True, idle_ms_max=300)]


def polled(queue: hqueue.Queue) -> list[bytes]:
    """As a loop of one's own reads: `Queue.reader` and `Queue.poll`."""
    reader = queue.reader(0, hqueue.Scan(), 1 << 20)
    values: list[bytes] = []
    while batches := [batch for some in queue.poll([reader], 1 << 20) for batch in some]:
        values += [message.value for batch in batches for message in messages_of(batch)]
    assert reader.ordinal == queue.offsets()[0].end_ordinal
    return values


READERS = pytest.mark.parametrize("read", [scanned, scanned_as_columns, merged, followed, polled])


@pytest.mark.in_memory_first
@READERS
def test_every_reader_stops_there_and_passes_by_once_that_is_decided(
    damaged: Damaged, read: Callable[[hqueue.Queue], Sequence[bytes]]
) -> None:
    for _ in range(2):
        with pytest.raises(CorruptLogError) as raised:
            read(damaged.queue)
        assert raised.value.row == damaged.row
        assert raised.value.topic == "bad"
    damaged.skip()
    assert read(damaged.queue) == GOOD + BESIDE + LAST
    assert damaged.queue.skipped_batches.remove(damaged.row)
    with pytest.raises(CorruptLogError):
        read(damaged.queue)


def test_topics_that_can_be_read_are_read_without_a_decision(damaged: Damaged) -> None:
    found = [message.value for message in damaged.queue.scan(topics=["t"])]
    assert found == GOOD + BESIDE + LAST


def test_a_range_that_ends_within_the_batch_has_what_can_be_read_of_it(damaged: Damaged) -> None:
    damaged.skip()
    ids = [message.id for message in damaged.queue.scan()]
    for stop in range(1, len(ids)):
        found = damaged.queue.scan(start=ids[1], stop=ids[stop])
        assert [message.id for message in found] == ids[1:stop]


def test_what_is_passed_by_is_logged_once_and_counted_and_moves_no_ordinal(
    client: hqueue.Client, damaged: Damaged, caplog: pytest.LogCaptureFixture
) -> None:
    damaged.skip()
    before = client.skipped_messages().get(PartitionKey(damaged.queue.name, 0), 0)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            with damaged.queue.scan() as scanner:
                found = [message.id for message in scanner]
                assert scanner.skipped == damaged.lost
                assert scanner.expired == 0
    said = [record.getMessage() for record in caplog.records if damaged.row in record.getMessage()]
    assert len(said) == 1, "each process says it once"
    assert "a header's name is not UTF-8" in said[0]
    counted = client.skipped_messages()[PartitionKey(damaged.queue.name, 0)]
    assert counted - before == damaged.lost
    (offsets,) = damaged.queue.offsets()
    assert offsets.end_ordinal == damaged.messages
    assert damaged.queue.count_before(0, found[-1]) == damaged.messages - 1
    assert damaged.queue.lag({0: found[-1].next()})[0].messages == 0


def test_a_consumer_hands_out_what_comes_before_and_then_the_same_error_again_and_again(
    client: hqueue.Client, damaged: Damaged, group: str
) -> None:
    with Consumer(damaged.queue.name, group=group, client=client) as consumer:
        assert taken(consumer, len(GOOD)) == GOOD
        for _ in range(3):
            with pytest.raises(CorruptLogError) as raised:
                wait_for(lambda: consumer.poll(1_000), "nothing comes but the error")
            assert raised.value.row == damaged.row
        consumer.commit()
        damaged.skip()
        assert taken(consumer, len(BESIDE + LAST)) == BESIDE + LAST
        consumer.commit()
        (lag,) = consumer.lag().values()
        assert lag.messages == 0
    with Consumer(damaged.queue.name, group=group, client=client) as consumer:
        damaged.queue.put(Message("t", b"new"), partition=0)
        assert taken(consumer, 1) == [b"new"]


def taken(consumer: Consumer, count: int) -> list[bytes]:
    values: list[bytes] = []
    while len(values) < count:
        values += [message.value for message in consumer.poll(WAIT_MS, count - len(values))]
    return values


@pytest.mark.parametrize("as_columns", [False, True])
def test_a_consumers_iteration_goes_on_where_it_stopped_once_that_is_decided(
    client: hqueue.Client, damaged: Damaged, group: str, as_columns: bool
) -> None:
    def values(consumer: Consumer) -> Iterator[bytes]:
        if not as_columns:
            yield from (message.value for message in consumer.messages(idle_ms_max=1_000))
            return
        for batch in consumer.arrow_batches(idle_ms_max=1_000):
            yield from batch.column("value").to_pylist()

    found: list[bytes] = []
    with Consumer(damaged.queue.name, group=group, client=client) as consumer:
        for _ in range(3):
            with pytest.raises(CorruptLogError):
                found.extend(iter_into(found, values(consumer)))
            assert found == GOOD, "nothing is handed out twice, and nothing from behind"
        damaged.skip()
        iter_into(found, values(consumer))
    assert found == GOOD + BESIDE + LAST


def iter_into(found: list[bytes], values: Iterator[bytes]) -> list[bytes]:
    """Take all; what came before an error is kept."""
    for value in values:
        found.append(value)
    return []


@pytest.mark.in_memory_first
def test_workers_deliver_on_once_that_is_decided_and_count_it(
    make: Callable[..., hqueue.Queue], start: Callable[..., Any]
) -> None:
    damaged = Damaged(make(), many=True)
    got = Received()
    start()
    with damaged.queue.subscriber(Subscription("s"), got):
        got.await_values(GOOD)
        damaged.skip()
        got.await_values(GOOD + BESIDE + LAST)
        # What is notified of, and comes with the notification, is treated alike.
        row = put_unreadable(damaged.queue, [Message("bad", b"lost", None, [(BAD, b"")])])
        damaged.queue.put(Message("t", b"6"), partition=0)
        damaged.queue.skipped_batches.add(row)
        got.await_values([*GOOD, *BESIDE, *LAST, b"6"])
    assert got.check_order() == 0


@pytest.mark.in_memory_first
def test_a_hub_delivers_on_once_that_is_decided_and_counts_it(
    backend: Backend, make_queue: Callable[..., hqueue.Queue]
) -> None:
    queue = make_queue()
    with (
        backend.connect() as client,
        HubThread(client, queue.name) as hub,
        hqueue.connect_hubs(str(hub.address), queue=queue.name) as publisher,
        Subscriber(queue.name, lambda: [hub.address]) as sub,
    ):
        sub.subscribe("t", 0, attach=False)
        publisher.topic("t").publish(b"before")
        slot = int(queue.offsets()[0].end)
        with unreadable_headers():
            publisher.topic("t").publish(Message("t", b"lost", None, [(BAD, b"")]))
        publisher.topic("t").publish(b"behind")
    row = rowkey.encode(0, slot).hex()
    # Another hub has nothing of it in memory, and reads the log.
    with (
        backend.connect() as client,
        HubThread(client, queue.name) as hub,
        Subscriber(queue.name, lambda: [hub.address]) as sub,
    ):
        sub.subscribe("t")
        wait_for(lambda: sub.values == [b"before"], "it comes up to what can't be read")
        queue.skipped_batches.add(row)
        wait_for(lambda: sub.values == [b"before", b"behind"], "it goes on")
        assert client.skipped_messages() == {PartitionKey(queue.name, 0): 1}
        page = hub.hub.metrics.page().decode()
        assert f'hqueue_skipped_messages_total{{partition="0",queue="{queue.name}"}} 1.0' in page


def test_the_thrift_api_gives_the_error_and_then_goes_on(
    make: Callable[..., hqueue.Queue], start: Callable[..., Any]
) -> None:
    damaged = Damaged(make(), many=False)
    served = start(push=False, api_port=0)
    with ApacheClient(*served.api_address()) as caller:
        scan = API.TMessageScan()
        scanner = caller.messageScannerOpen(damaged.queue.name, 0, scan)
        found = [caller.messageScannerGet(scanner).value for _ in GOOD]
        with pytest.raises(API.TServiceError):
            caller.messageScannerGet(scanner)
        damaged.skip()
        found += [caller.messageScannerGet(scanner).value for _ in BESIDE + LAST]
        assert found == GOOD + BESIDE + LAST


def test_a_check_finds_it_and_then_tells_of_the_decision(damaged: Damaged) -> None:
    (*_, found) = damaged.queue.verify()
    assert [(each.row, each.problem) for each in found.findings] == [
        (damaged.row, "a header's name is not UTF-8")
    ]
    assert found.skipped == []
    damaged.skip()
    (*_, again) = damaged.queue.verify()
    assert again.skipped == found.findings
    assert again.findings == []
    assert again.messages == damaged.messages


def test_only_what_can_not_be_read_is_passed_by(
    damaged: Damaged, raw: RawTables, client: hqueue.Client, queue_face: QueueFace
) -> None:
    batches = queue_face(client, damaged.queue).skipped_batches
    rows = [key for key in raw.rows(damaged.queue.name) if key[0] != 0xFF]
    readable = next(key for key in rows if key.hex() != damaged.row)
    header = bytearray(raw.rows(damaged.queue.name)[readable][b"log:batch"])
    header[-1] ^= 1
    for row, problem in {
        readable.hex(): "can read this batch",
        damaged.row[:-1] + "9": "no batch",
        damaged.row[2:]: "name the batch by its row",
        "row": "name the batch by its row",
        "0001" + damaged.row[4:]: "no such partition",
    }.items():
        with pytest.raises(InvalidInputError, match=problem):
            batches.add(row)
    raw.put(damaged.queue.name, readable, {b"log:batch": bytes(header)})
    with pytest.raises(InvalidInputError, match="where the next batch begins"):
        batches.add(readable.hex())
    assert batches.rows() == []
    assert not batches.remove(damaged.row)


def test_a_cell_that_is_gone_or_changed_is_passed_by_and_the_others_are_given(
    make_queue: Callable[..., hqueue.Queue], raw: RawTables
) -> None:
    queue = make_queue()
    queue.put([Message("a", b"1"), Message("b", b"2"), Message("c", b"3")], partition=0)
    queue.put(Message("a", b"4"), partition=0)
    (key, cells), _ = ((k, c) for k, c in raw.rows(queue.name).items() if k[0] != 0xFF)
    raw.put(queue.name, key, {b"message:b": b"3"})
    for change in (None, b"message:c"):
        if change is not None:
            raw.delete_cells(queue.name, key, change)
        wanted = [b"1", b"3", b"4"] if change is None else [b"1", b"4"]
        queue.skipped_batches.remove(key.hex())
        with pytest.raises(CorruptLogError):
            scanned(queue)
        queue.skipped_batches.add(key.hex())
        assert scanned(queue) == scanned_as_columns(queue) == wanted
    assert len(cells) == 4


@pytest.mark.in_memory_first
def test_a_truncated_queue_forgets_what_was_decided(
    damaged: Damaged, client: hqueue.Client
) -> None:
    damaged.skip()
    client.truncate_queue(damaged.queue.name)
    assert damaged.queue.skipped_batches.rows() == []
    put_unreadable(damaged.queue, [Message("bad", b"", None, [(BAD, b"")])])
    with pytest.raises(CorruptLogError):
        scanned(damaged.queue)


@pytest.mark.in_memory_first
def test_another_batch_in_the_same_row_is_not_meant(damaged: Damaged, raw: RawTables) -> None:
    """As where a log was deleted by hand, and begins again."""
    damaged.skip()
    known = damaged.queue._log.reader._decisions
    (header,) = (h for h in damaged.queue.headers(0) if h.count == damaged.lost + len(BESIDE))
    key = bytes.fromhex(damaged.row)
    assert known.decide(key, header)
    other = header.__class__(
        **{f: getattr(header, f) for f in header.__dataclass_fields__} | {"nonce": b"another!"}
    )
    assert not known.decide(key, other)


def test_so_many_batches_are_passed_by_and_no_more(
    make_queue: Callable[..., hqueue.Queue],
    client: hqueue.Client,
    queue_face: QueueFace,
    monkeypatch: pytest.MonkeyPatch,
    raw: RawTables,
) -> None:
    assert SKIPPED_MAX == 100
    monkeypatch.setattr("hqueue.consume.skipped_batches.SKIPPED_MAX", 2)
    queue = make_queue()
    batches = queue_face(client, queue).skipped_batches
    bad = [Message("bad", b"", None, [(BAD, b"")])]
    rows = [put_unreadable(queue, bad) for _ in range(3)]
    for row in rows[:2]:
        assert batches.add(row) == 1
        batches.add(row)
    with pytest.raises(InvalidInputError, match="maximum number of skipped batches"):
        batches.add(rows[2])
    assert batches.rows() == rows[:2]
    raw.delete_cells(queue.name, bytes.fromhex(rows[0]), b"log:batch")  # As a collection does.
    batches.add(rows[2])
    assert batches.rows() == rows[1:]
