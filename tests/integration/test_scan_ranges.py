"""Where a scan starts and stops, to the message."""

from __future__ import annotations

import dataclasses
import datetime
import time
from collections.abc import Iterator

import pytest

import hqueue
from hqueue import Message, MessageID, Scan

pytestmark = pytest.mark.in_memory

UTC = datetime.timezone.utc
MILLISECOND = datetime.timedelta(milliseconds=1)


@dataclasses.dataclass
class Written:
    """A queue with batches of 1 to 7 messages, milliseconds apart from each other."""

    queue: hqueue.Queue
    batches: list[list[MessageID]]

    @property
    def ids(self) -> list[MessageID]:
        return [i for batch in self.batches for i in batch]

    def scanned(self, start: object = None, stop: object = None) -> list[MessageID | None]:
        return [m.id for m in self.queue.scan(partition=1, start=start, stop=stop)]


@pytest.fixture(scope="module")
def written(client: hqueue.Client) -> Iterator[Written]:
    queue = client.create_queue("scan-ranges", partitions=3)
    # The partitions beside it must never show.
    for partition in (0, 2):
        queue.put([Message("other", b"other")] * 5, partition=partition)
    batches: list[list[MessageID]] = []
    for n in range(30):
        while batches and time.time_ns() // 1_000_000 <= batches[-1][-1].timestamp + 1:
            time.sleep(0.001)
        batches.append(list(queue.put([Message("t", b"%d" % n)] * (n % 7 + 1), partition=1)))
    yield Written(queue, batches)
    client.disable_queue("scan-ranges")
    client.delete_queue("scan-ranges")


@pytest.mark.in_memory_first
def test_every_start_and_stop_by_id_cuts_exactly(written: Written) -> None:
    ids = written.ids
    for at in range(0, len(ids), 3):
        assert written.scanned(ids[at]) == ids[at:]
        assert written.scanned(None, ids[at]) == ids[:at]
        assert written.scanned(ids[at].next()) == ids[at + 1 :]


def test_a_range_within_one_batch_cuts_it_on_both_sides(written: Written) -> None:
    batch = written.batches[6]
    assert len(batch) == 7
    assert written.scanned(batch[2], batch[5]) == batch[2:5]
    assert written.scanned(batch[3], batch[3]) == []
    assert written.scanned(batch[3], batch[3].next()) == [batch[3]]


def test_a_range_over_batches_cuts_the_first_and_the_last(written: Written) -> None:
    first, last = written.batches[4], written.batches[12]
    expected = [i for i in written.ids if first[3] <= i < last[4]]
    assert written.scanned(first[3], last[4]) == expected
    assert len(expected) > 20


def test_between_two_batches_nothing_lies(written: Written) -> None:
    before, after = written.batches[9], written.batches[10]
    between = MessageID(before[-1].timestamp + 1)
    assert before[-1] < between < after[0]
    assert written.scanned(between) == [i for i in written.ids if i >= after[0]]
    assert written.scanned(None, between) == [i for i in written.ids if i <= before[-1]]
    assert written.scanned(before[-1].next(), after[0]) == []


def test_before_the_first_and_beyond_the_end(written: Written) -> None:
    ids = written.ids
    assert written.scanned(0) == written.scanned(1) == written.scanned(MessageID(0, 1)) == ids
    assert written.scanned(ids[0].timestamp - 1) == ids
    assert written.scanned(None, ids[0]) == written.scanned(0, 0) == []
    assert written.scanned(ids[-1].next()) == []
    assert written.scanned(ids[-1].timestamp + 1) == []
    assert written.scanned(None, 2**48 - 1) == ids
    assert written.scanned(2**48 - 1) == []


def test_milliseconds_and_datetimes_mean_the_same_as_ids(written: Written) -> None:
    middle = written.batches[15][0]
    expected = [i for i in written.ids if i.timestamp >= middle.timestamp]
    assert written.scanned(middle.timestamp) == expected
    assert written.scanned(middle.datetime) == expected
    assert written.scanned(middle.datetime + MILLISECOND - MILLISECOND / 1_000) == expected
    elsewhere = datetime.timezone(datetime.timedelta(hours=-7))
    assert written.scanned(middle.datetime.astimezone(elsewhere)) == expected
    rest = [i for i in written.ids if i.timestamp < middle.timestamp]
    assert written.scanned(None, middle.timestamp) == written.scanned(None, middle.datetime) == rest
    assert written.scanned(datetime.datetime(1970, 1, 1, tzinfo=UTC)) == written.ids


def test_topics_and_ranges_together(written: Written) -> None:
    queue, ids = written.queue, written.ids
    scan = Scan(ids[10], ids[40]).add_topic("t").add_topic("other")
    assert [m.id for m in queue.partition_scanner(1, scan)] == ids[10:40]
    assert list(queue.partition_scanner(1, Scan(ids[10], ids[40]).add_topic("other"))) == []


@pytest.mark.in_memory_first
def test_a_range_over_all_partitions_and_a_range_for_each(written: Written) -> None:
    queue, ids = written.queue, written.ids
    scanned = [m.id for m in queue.scan(start=ids[5], stop=ids[50]) if m.partition == 1]
    assert scanned == ids[5:50]
    scans = {1: Scan(ids[60], ids[70]), 0: Scan(None, 1), 2: Scan(None)}
    read = [(m.partition, m.id) for m in queue.combined_partition_scanner(scans)]
    assert [i for p, i in read if p == 1] == ids[60:70]
    assert [p for p, _ in read if p != 1] == [2] * 5


@pytest.mark.in_memory_first
def test_a_follower_with_a_stop_ends_there(written: Written) -> None:
    queue, ids = written.queue, written.ids
    with queue.scan(partition=1, start=ids[80], stop=ids[90], follow=True) as follower:
        assert [m.id for m in follower] == ids[80:90]


def test_a_follower_ends_when_nothing_comes_for_long_enough(written: Written) -> None:
    with written.queue.scan(partition=1, follow=True, idle_ms_max=300) as follower:
        assert [m.id for m in follower] == written.ids
