"""Messages that expire, headers that are collected, and logs that are truncated"""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

import hqueue
from hqueue import Message
from hqueue.format.header import decode_header
from hqueue.log import PartitionWriter
from hqueue.log.table_ports import LogPort
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline, drive
from hqueue.store import StorePort
from tests.support.past import DAY_MS, put_in_the_past
from tests.support.raw import RawHBase, RawTables
from tests.support.waiting import wait_for

pytestmark = pytest.mark.in_memory_first

MakeQueue = Callable[..., hqueue.Queue]


def a_day_ago_ms() -> int:
    return SYSTEM_CLOCK.wall_ms() - DAY_MS


def collect(writer: PartitionWriter, log: LogPort) -> int:
    deadline = Deadline(SYSTEM_CLOCK, 60_000)
    return drive(writer.collect(a_day_ago_ms()), log, deadline)


def headers(raw: RawTables, queue: hqueue.Queue) -> list[int]:
    """The ordinals of the headers that lie in HBase."""
    return [
        decode_header(key, cells[b"log:batch"]).ordinal
        for key, cells in raw.rows(queue.name).items()
        if key[0] != 0xFF and b"log:batch" in cells
    ]


def test_expired_messages_are_skipped_and_counted(make_queue: MakeQueue, raw: RawTables) -> None:
    queue = make_queue(ttl="1d")
    put_in_the_past(raw, queue, [3 * DAY_MS, 2 * DAY_MS, DAY_MS + 5_000, DAY_MS // 2, 1_000])
    assert headers(raw, queue) == [0, 3, 6, 9, 12], "headers outlive their bodies"
    for options in ({}, {"bytes_max": 1}, {"merge_sorted": True}, {"topics": ["t"]}):
        scanner = queue.scan(**options)  # type: ignore[arg-type]
        assert [m.value for m in scanner] == [b"3"] * 3 + [b"4"] * 3
        assert scanner.expired == 9
    written = queue.put(Message("t", b"new"))
    assert [m.id for m in queue.scan()][-1] == written
    assert queue.offsets()[0].count == 16


def test_a_partition_of_which_everything_expired_goes_on_counting(
    make_queue: MakeQueue, raw: RawTables
) -> None:
    queue = make_queue(ttl="1d")
    (base,) = put_in_the_past(raw, queue, [9 * DAY_MS])
    scanner = queue.scan()
    assert list(scanner) == []
    assert scanner.expired == 3
    written = queue.put(Message("t", b"new"))
    assert written > base
    assert [m.id for m in queue.scan()] == [written]
    assert queue.offsets()[0].count == 4


def test_an_altered_ttl_expires_messages_at_once(
    client: hqueue.Client, make_queue: MakeQueue, raw: RawTables
) -> None:
    queue = make_queue(ttl=None)
    put_in_the_past(raw, queue, [900 * DAY_MS, DAY_MS])
    assert len(list(queue.scan())) == 6
    client.alter_queue(queue.name, ttl="2d")
    assert [m.value for m in queue.scan()] == [b"1"] * 3


def test_collection_deletes_old_headers_from_the_oldest_on_and_never_the_newest(
    make_queue: MakeQueue, raw: RawTables, store: StorePort
) -> None:
    queue = make_queue(ttl="1d")
    put_in_the_past(raw, queue, [9 * DAY_MS - n for n in range(1_500)] + [DAY_MS // 2])
    writer, log = PartitionWriter(0), store.log(queue.name)
    assert [collect(writer, log) for _ in range(3)] == [1_000, 500, 0]
    assert headers(raw, queue) == [4_500]
    scanner = queue.scan()
    assert [m.value for m in scanner] == [b"1500"] * 3
    written = queue.put(Message("t", b"new"))
    assert [m.id for m in queue.scan(start=written)] == [written]
    assert queue.offsets()[0].beginning_ordinal == 4_500


def test_collection_leaves_the_only_header_however_old(
    make_queue: MakeQueue, raw: RawTables, store: StorePort
) -> None:
    queue = make_queue(ttl="1d")
    put_in_the_past(raw, queue, [90 * DAY_MS, 80 * DAY_MS])
    writer, log = PartitionWriter(0), store.log(queue.name)
    assert collect(writer, log) == 1
    assert collect(writer, log) == 0
    assert headers(raw, queue) == [3]
    queue.put(Message("t", b"new"))
    assert queue.offsets()[0].count == 7


def test_a_reader_whose_part_of_the_log_is_collected_goes_on_and_counts(
    make_queue: MakeQueue, raw: RawTables, store: StorePort
) -> None:
    queue = make_queue(ttl="1d")
    bases = put_in_the_past(raw, queue, [9 * DAY_MS - n for n in range(50)])
    follower = queue.scan(follow=True, start=hqueue.MessageID.from_int(bases[10]), idle_ms_max=1)
    assert list(follower) == []
    late = queue.scan(start=hqueue.MessageID.from_int(bases[10]))
    first = queue.put(Message("t", b"a"))
    collect(PartitionWriter(0), store.log(queue.name))
    assert headers(raw, queue) == [150]
    second = queue.put(Message("t", b"b"))
    assert [m.id for m in late] == [first, second]


def test_a_writer_collects_in_passing(
    make_queue: MakeQueue, raw: RawTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hqueue.produce.header_reaper.EVERY_MS", 0)
    queue = make_queue(ttl="1d")
    put_in_the_past(raw, queue, [9 * DAY_MS - n for n in range(20)])
    queue.put(Message("t", b"new"))
    wait_for(lambda: headers(raw, queue) == [60], "old headers are collected")
    assert [m.value for m in queue.scan()] == [b"new"]


def test_truncation_keeps_the_presharding_and_the_ttl_and_deletes_all_messages(
    client: hqueue.Client, make_queue: MakeQueue, raw: RawTables
) -> None:
    queue = make_queue(6, ttl="3h", partitions_per_region=2, compaction_files_min=5)
    for partition in range(6):
        queue.put([Message("t", b"old")] * 3, partition=partition)
    before = queue.describe()
    starts = [r.start_key for r in raw.regions(queue.name)]

    client.truncate_queue(queue.name)

    assert raw.rows(queue.name) == {}
    assert queue.describe() == before
    assert [r.start_key for r in raw.regions(queue.name)] == starts == [b"", b"\0\x02", b"\0\x04"]
    # The objects from before go on, as do new ones.
    written = [queue.put(Message("t", b"new"), partition=p) for p in range(6)]
    assert [m.id for m in client.queue(queue.name).scan()] == written
    assert [each.count for each in queue.offsets()] == [1] * 6


def test_truncation_keeps_all_that_hbase_says_of_the_table(
    client: hqueue.Client, make_queue: MakeQueue, hbase: RawHBase
) -> None:
    queue = make_queue(ttl="3h", compaction_files_min=5)
    attributes = hbase.table_attributes(queue.name)
    families = hbase.all_family_attributes(queue.name)
    client.truncate_queue(queue.name)
    assert hbase.table_attributes(queue.name) == attributes
    assert hbase.all_family_attributes(queue.name) == families


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_follower_goes_on_with_the_new_messages_after_a_truncation(
    client: hqueue.Client, make_queue: MakeQueue, partitions: int
) -> None:
    queue = make_queue(partitions)
    old = [queue.put(Message("t", b"old %d" % p), partition=p) for p in range(partitions)]
    read: list[hqueue.Message] = []
    errors: list[BaseException] = []
    follower = queue.scan(follow=True)

    def follow() -> None:
        try:
            for message in follower:
                read.append(message)
        except BaseException as exc:
            errors.append(exc)

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        wait_for(lambda: len(read) == partitions, "the follower is at the end")
        client.truncate_queue(queue.name)
        new = [queue.put(Message("t", b"new %d" % n), partition=n % partitions) for n in range(6)]
        wait_for(
            lambda: len(read) >= partitions + 6 or errors, "the follower reads what came after"
        )
    finally:
        follower.close()
        thread.join(60)
    assert not errors
    assert sorted(m.id for m in read) == sorted([*old, *new])  # type: ignore[type-var]
    for partition in range(partitions):
        mine = [m.value for m in read if m.partition == partition]
        news = [b"new %d" % n for n in range(partition, 6, partitions)]
        assert mine == [b"old %d" % partition, *news]
