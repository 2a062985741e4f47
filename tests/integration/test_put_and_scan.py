"""What is put is read: bytes, topics, orders, partitions and the three scanners."""

from __future__ import annotations

import os
import zlib
from collections import defaultdict
from collections.abc import Callable

import pyarrow as pa
import pytest

import hqueue
from hqueue import Message, MessageID, Messages, Scan
from tests.support.raw import RawTables

MakeQueue = Callable[..., hqueue.Queue]
MIB = 1024 * 1024


def pairs(messages: object) -> list[tuple[str, bytes]]:
    return [(m.topic, m.value) for m in messages]  # type: ignore[attr-defined]


def test_the_ids_of_a_put_are_those_that_are_read(make_queue: MakeQueue) -> None:
    queue = make_queue(2)
    one = queue.put(Message("a", b"1"), partition=1)
    many = queue.put([Message("a", b"2"), Message("b", b"3"), Message("a", b"4")], partition=1)
    read = list(queue.scan())
    assert [m.id for m in read] == [one, *many]
    assert [m.value for m in read] == [b"1", b"2", b"3", b"4"]
    assert {m.partition for m in read} == {1}
    assert one < many[0] < many[1] < many[2]


def test_a_record_batch_is_put_and_what_is_read_as_one_is_put_again(make_queue: MakeQueue) -> None:
    queue, copy = make_queue(2), make_queue(1)
    columns = {"topic": ["a", "b", "a"], "value": [b"1", b"2", b""]}
    ids = queue.put(pa.RecordBatch.from_pydict(columns), key="k")
    read = list(queue.scan())
    assert ([m.id for m in read], pairs(read)) == (ids, [("a", b"1"), ("b", b"2"), ("a", b"")])
    with queue.scan() as scanner:
        for batch in scanner.arrow_batches():
            copy.put(batch)
    assert pairs(copy.scan()) == pairs(read)


def test_many_values_of_a_topic_are_put_as_messages(make_queue: MakeQueue) -> None:
    queue = make_queue(1)
    values = [b"", b"1", b"2" * 300, os.urandom(50)]
    ids = queue.put(Messages("a", values))
    assert ids[-1] < queue.put(Messages("b", [b"one"]))[0]
    read = list(queue.scan())
    assert [m.id for m in read[:4]] == list(ids)
    assert pairs(read) == [*(("a", value) for value in values), ("b", b"one")]


VALUES = [b"", b"\0", b"\xff" * 3, bytes(range(256)), b"HQ\x01", b"\r\n", "ä€😀".encode()]


def test_any_bytes_come_back_as_they_were(make_queue: MakeQueue) -> None:
    queue = make_queue()
    expected = []
    for value in VALUES:
        queue.put(Message("t", value))
        queue.put([Message("t", value), Message("t", b"between"), Message("t", value)])
        queue.put(Message("t", bytearray(value)))
        queue.put(Message("t", memoryview(value)))
        expected += [value, value, b"between", value, value, value]
    assert [m.value for m in queue.scan()] == expected


def test_a_batch_of_empty_values_keeps_its_number(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.put([Message("t", b"")] * 1_000)
    assert pairs(queue.scan()) == [("t", b"")] * 1_000


def test_8_mib_are_taken_as_one_value_as_a_batch_and_over_topics(make_queue: MakeQueue) -> None:
    queue = make_queue()
    noise = os.urandom(8 * MIB)
    whole = [Message("whole", noise)]
    offsets_bytes = 4 * 9
    cut = [Message("cut", noise[n * MIB : (n + 1) * MIB]) for n in range(7)]
    cut.append(Message("cut", noise[: MIB - offsets_bytes]))
    spread = [Message(f"topic{n}", noise[n * MIB : (n + 1) * MIB]) for n in range(8)]
    expected = []
    for batch in (whole, cut, spread):
        queue.put(batch)
        expected += pairs(batch)
    for bytes_max in (1, 4 * MIB, 64 * MIB):
        with queue.scan(bytes_max=bytes_max) as scanner:
            for message in scanner:
                assert (message.topic, message.value) == expected.pop(0)
        assert not expected
        expected = [*pairs(whole), *pairs(cut), *pairs(spread)]


def test_65536_messages_are_one_batch_across_a_millisecond(make_queue: MakeQueue) -> None:
    queue = make_queue()
    written = queue.put([Message("t", n.to_bytes(4, "big")) for n in range(65_536)])
    following = queue.put(Message("t", b"next"))
    read = list(queue.scan())
    assert [m.id for m in read] == [*written, following]
    assert [int.from_bytes(m.value, "big") for m in read[:-1]] == list(range(65_536))
    assert written[-1].timestamp > written[0].timestamp


TOPICS = [
    "a",
    "a:b",
    ":",
    "::",
    "message:batch",
    "log:batch",
    "ä€😀",
    " ",
    "\0",
    "x" * 255,
    "ä" * 127,
]


def test_any_topic_is_kept_and_can_be_asked_for(make_queue: MakeQueue) -> None:
    queue = make_queue()
    for topic in TOPICS:
        queue.put(Message(topic, f"alone in {topic}".encode()))
    batch = [Message(topic, f"together in {topic}".encode()) for topic in TOPICS]
    queue.put(batch)
    assert [m.topic for m in queue.scan()] == TOPICS * 2
    for topic in TOPICS:
        assert pairs(queue.scan(topics=[topic])) == [
            (topic, f"alone in {topic}".encode()),
            (topic, f"together in {topic}".encode()),
        ]


def test_1024_topics_in_one_batch_keep_their_order(make_queue: MakeQueue) -> None:
    queue = make_queue()
    messages = [Message(f"topic-{n % 1_024}", str(n).encode()) for n in range(3_000)]
    written = queue.put(messages)
    read = list(queue.scan())
    assert [m.id for m in read] == list(written)
    assert pairs(read) == pairs(messages)


def test_interleaved_topics_come_in_the_order_of_the_batch(make_queue: MakeQueue) -> None:
    queue = make_queue()
    messages = [Message(topic, str(n).encode()) for n, topic in enumerate("abacabadab" * 20)]
    written = queue.put(messages)
    read = list(queue.scan(topics=["a", "c", "absent"]))
    wanted = [(i, m) for i, m in zip(written, messages, strict=True) if m.topic in "ac"]
    assert [(m.id, m.topic, m.value) for m in read] == [(i, m.topic, m.value) for i, m in wanted]


def test_the_row_in_hbase_is_what_the_design_draws(make_queue: MakeQueue, raw: RawTables) -> None:
    queue = make_queue(3)
    first = queue.put(Message("clicks", b"raw body"), partition=2)
    second = queue.put([Message("clicks", b"ab"), Message("clicks", b"c")], partition=2)
    rows = {key: cells for key, cells in raw.rows(queue.name).items() if key[0] != 0xFF}
    slots = [
        bytes(10),
        (first.timestamp.to_bytes(8, "big") + (first.sequence + 1).to_bytes(2, "big")),
    ]
    assert list(rows) == [b"\0\x02" + slot for slot in slots]
    one, two = rows.values()
    assert set(one) == set(two) == {b"log:batch", b"message:clicks"}
    assert one[b"message:clicks"] == b"raw body"
    assert two[b"message:clicks"] == (b"".join(n.to_bytes(4, "little") for n in (0, 2, 3)) + b"abc")
    assert second[0] > first


def test_the_clocks_probe_leaves_no_row(make_queue: MakeQueue, raw: RawTables) -> None:
    queue = make_queue()
    queue.put(Message("t", b"x"))
    assert [key for key in raw.rows(queue.name) if key[0] == 0xFF] == []


def test_a_key_always_means_the_same_partition(
    client: hqueue.Client, make_queue: MakeQueue
) -> None:
    queue = make_queue(8)
    keys = ["", "a", "user-1", "ä€😀", *(f"k{n}" for n in range(40))]
    for opened in (queue, client.queue(queue.name)):
        for key in keys:
            opened.put(Message("t", key.encode()), key=key)
            opened.put(Message("t", key.encode()), key=key.encode())
    with queue.producer() as producer:
        for key in keys:
            producer.send(Message("t", key.encode()), key=key)
    placed = defaultdict(list)
    for message in queue.scan():
        placed[message.value].append(message.partition)
    assert placed == {k.encode(): [zlib.crc32(k.encode()) % 8] * 5 for k in keys}
    assert len({p for found in placed.values() for p in found}) == 8


def test_many_partitions_with_several_a_region_keep_apart(
    make_queue: MakeQueue, raw: RawTables
) -> None:
    queue = make_queue(100, partitions_per_region=34)
    assert len(raw.regions(queue.name)) == 3
    written = {}
    for partition in range(0, 100, 3):
        ids = queue.put(
            [Message("t", b"%d/%d" % (partition, n)) for n in range(3)], partition=partition
        )
        written[partition] = list(ids)
    by_partition = defaultdict(list)
    for message in queue.scan():
        assert message.value.startswith(b"%d/" % message.partition)
        by_partition[message.partition].append(message.id)
    assert by_partition == written
    assert list(queue.scan(partition=1)) == []
    offsets = queue.offsets()
    assert [each.count for each in offsets] == [3 if p % 3 == 0 else 0 for p in range(100)]
    assert {e.partition: e.end for e in offsets if e.count} == {
        partition: ids[-1].next() for partition, ids in written.items()
    }


def test_puts_without_a_partition_reach_every_partition_in_time(make_queue: MakeQueue) -> None:
    queue = make_queue(3)
    for n in range(200):
        queue.put(Message("t", b"%d" % n))
    read = list(queue.scan())
    assert sorted(int(m.value) for m in read) == list(range(200))
    assert {m.partition for m in read} == {0, 1, 2}


def test_the_three_scanners_of_alibabas_hqueue(make_queue: MakeQueue) -> None:
    queue = make_queue(3)
    for partition in range(3):
        for topic in ("topic1", "topic2", "topic3"):
            queue.put(Message(topic, f"{partition}{topic}".encode()), partition=partition)
    scan = Scan().add_topic("topic1").add_topic("topic2")

    def drain(scanner: hqueue.Scanner) -> list[bytes]:
        values = []
        while (message := scanner.next()) is not None:
            values.append(message.value)
        assert scanner.next() is None
        scanner.close()
        with pytest.raises(hqueue.ClosedError):
            scanner.next()
        return values

    both = [[f"{p}topic1".encode(), f"{p}topic2".encode()] for p in range(3)]
    assert sorted(drain(queue.queue_scanner(scan))) == sorted(both[0] + both[1] + both[2])
    assert drain(queue.partition_scanner(1, scan)) == both[1]
    combined = drain(queue.combined_partition_scanner({1: scan, 2: Scan().add_topic("topic3")}))
    assert [value for value in combined if value.startswith(b"1")] == both[1]
    assert sorted(combined) == sorted([*both[1], b"2topic3"])


def test_a_merge_by_id_gives_one_ascending_sequence_of_all_partitions(
    make_queue: MakeQueue,
) -> None:
    queue = make_queue(4)
    written = []
    for n in range(120):
        partition = n * 7 % 4
        written += [
            (i, partition)
            for i in queue.put([Message("t", b"x")] * (n % 5 + 1), partition=partition)
        ]
    read = [(m.id, m.partition) for m in queue.scan(merge_sorted=True, bytes_max=1_000)]
    assert sorted(read) == sorted(written)
    assert [i for i, _ in read] == sorted(i for i, _ in read)


def test_a_scan_while_others_put_reads_all_from_before_and_leaves_no_gap(
    make_queue: MakeQueue,
) -> None:
    queue = make_queue()
    for n in range(10):
        queue.put(Message("t", b"%d" % n))
    values = []
    with queue.scan(bytes_max=1) as scanner:
        for message in scanner:
            if not values:
                for n in range(10, 60):
                    queue.put(Message("t", b"%d" % n))
            values.append(int(message.value))
        again = [int(m.value) for m in queue.scan(start=scanner.positions()[0])]
    assert len(values) >= 10
    assert values + again == list(range(60))


def test_positions_go_on_exactly_where_a_scan_ended(make_queue: MakeQueue) -> None:
    queue = make_queue(2)
    for n in range(10):
        queue.put([Message("t", b"%d" % n)] * 3, partition=n % 2)
    scanner = queue.scan()
    assert len(list(scanner)) == 30
    later = [queue.put(Message("t", b"later"), partition=p) for p in (0, 1)]
    scans = {p: Scan(start) for p, start in scanner.positions().items()}
    assert [m.id for m in queue.combined_partition_scanner(scans)] == later


def test_arrow_batches_hold_what_messages_hold(make_queue: MakeQueue) -> None:
    queue = make_queue(2)
    for n in range(50):
        queue.put([Message(t, f"{n}{t}".encode()) for t in "abab"[: n % 4 + 1]], partition=n % 2)
    start: MessageID = sorted(m.id for m in queue.scan(partition=1))[7]  # type: ignore[type-var]
    for options in ({}, {"topics": ["b"]}, {"partition": 1, "start": start}, {"bytes_max": 1}):
        rows = [
            (row["partition"], row["id"], row["topic"], row["value"])
            for batch in queue.scan(**options).arrow_batches()  # type: ignore[arg-type]
            for row in batch.to_pylist()
        ]
        messages = list(queue.scan(**options))  # type: ignore[arg-type]
        assert rows == [(m.partition, m.id, m.topic, m.value) for m in messages]
        assert rows
