"""`Queue.verify` finds every planted fault in a table, and names the row."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hqueue import Client, CorruptLogError, Message, Queue
from hqueue.log.verify import Finding
from tests.support.queue_faces import QueueFace
from tests.support.raw import RawTables

pytestmark = pytest.mark.in_memory

HEADER = b"log:batch"


@pytest.fixture
def queue(make_queue: Callable[..., Queue], client: Client, queue_face: QueueFace) -> Queue:
    queue: Queue = queue_face(client, make_queue(partitions=2))
    for partition in range(2):
        for number in range(5):
            queue.put([Message("a", b"%d" % number), Message("b", b"x")], partition=partition)
    return queue


def findings(queue: Queue) -> list[Finding]:
    last = {result.partition: result for result in queue.verify()}
    assert set(last) == {0, 1}, "every partition is checked, whatever is found in another"
    assert last[1].findings == []
    assert last[1].messages == 10
    return last[0].findings


def middle_row(raw: RawTables, queue: Queue) -> tuple[bytes, dict[bytes, bytes]]:
    rows = [(key, cells) for key, cells in raw.rows(queue.name).items() if key[:2] == b"\0\0"]
    return rows[2]


@pytest.mark.in_memory_first
def test_a_right_log_has_no_findings(queue: Queue, raw: RawTables) -> None:
    assert findings(queue) == []


@pytest.mark.parametrize("rows", [1, 2, 4, 5])
def test_each_batch_is_checked_once_however_many_headers_come_at_a_time(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr("hqueue.log.verify.HEADERS_READ", rows)
    assert findings(queue) == []
    last = {result.partition: result for result in queue.verify()}
    assert [(last[n].batches, last[n].messages) for n in range(2)] == [(5, 10)] * 2


@pytest.mark.in_memory_first
def test_a_flipped_bit_in_a_header_is_found_and_names_the_row(queue: Queue, raw: RawTables) -> None:
    key, cells = middle_row(raw, queue)
    broken = bytearray(cells[HEADER])
    broken[20] ^= 1
    raw.put(queue.name, key, {HEADER: bytes(broken)})
    assert [f.row for f in findings(queue)] == [key.hex()]
    with pytest.raises(CorruptLogError) as raised:
        list(queue.scan(partition=0))
    assert raised.value.row == key.hex()


def test_a_flipped_bit_in_a_body_is_found(queue: Queue, raw: RawTables) -> None:
    key, cells = middle_row(raw, queue)
    raw.put(queue.name, key, {b"message:a": bytes([cells[b"message:a"][0] ^ 1])})
    assert [f.row for f in findings(queue)] == [key.hex()]


def test_a_missing_batch_is_found(queue: Queue, raw: RawTables) -> None:
    key, _ = middle_row(raw, queue)
    raw.delete_cells(queue.name, key)
    problems = [f.problem for f in findings(queue)]
    assert len(problems) == 2
    assert "batches are missing" in problems[0]
    assert "2 messages are missing" in problems[1]


@pytest.mark.in_memory_first
def test_missing_bodies_are_found(queue: Queue, raw: RawTables) -> None:
    key, _ = middle_row(raw, queue)
    raw.delete_cells(queue.name, key, b"message:a", b"message:b")
    (finding,) = findings(queue)
    assert finding.row == key.hex()
    assert "can't have expired" in finding.problem


def test_a_missing_topic_is_found(queue: Queue, raw: RawTables) -> None:
    key, _ = middle_row(raw, queue)
    raw.delete_cells(queue.name, key, b"message:b")
    (finding,) = findings(queue)
    assert "its topics differ" in finding.problem


def test_a_row_key_that_is_none_of_a_queue_does_not_stop_other_partitions(
    queue: Queue, raw: RawTables
) -> None:
    key, cells = middle_row(raw, queue)
    raw.put(queue.name, key[:-1], {HEADER: cells[HEADER]})
    (finding,) = findings(queue)
    assert finding.row == key[:-1].hex()
