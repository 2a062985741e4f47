"""Streams and batches begin at a group's offsets, and commit to a group, over memory."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

import hqueue
from hqueue import MessageID, Queue
from hqueue.engine import Engine
from hqueue.errors import CommitFailedError, Outcome, StoreUnavailableError
from pyspark_hqueue.reading import group_read
from pyspark_hqueue.reading.groups import RETRY_MS, GroupCommits, committed_by
from pyspark_hqueue.reading.loss import DataLossError
from pyspark_hqueue.reading.plan import Position, Range, snapshot
from pyspark_hqueue.reading.stream import QueueStreamReader
from tests.support.backends import MemoryBackend
from tests.support.doubles import SteppedClock
from tests.support.spark_reading import collect, options_of, put
from tests.support.waiting import wait_for

ALL = SimpleNamespace()


@pytest.fixture
def queue(memory_client: hqueue.Client) -> Queue:
    return memory_client.create_queue("events", partitions=2, ttl="1h")


def reader_of(**options: object) -> QueueStreamReader:
    made = options_of(**options)
    return QueueStreamReader(made, made.columns)


def set_offset(
    client: hqueue.Client, partition: int, at: Position, *, counted: bool = True
) -> None:
    """Let the group g have consumed what lies before."""
    offsets = Engine(client).standalone_offsets("g", "events")
    offsets.begin([partition])
    offsets.commit({partition: (MessageID.from_int(at.id), at.ordinal if counted else None)})


def offsets_of(client: hqueue.Client) -> dict[int, MessageID | None]:
    return {each.partition: each.committed for each in client.describe_group("g").partitions}


def rows(reader: QueueStreamReader, start: dict[str, Any], end: dict[str, Any]) -> int:
    tasks = reader.partitions(start, end)
    return sum(batch.num_rows for task in tasks for batch in reader.read(task))


def await_commit(
    client: hqueue.Client, reader: QueueStreamReader, offset: dict[str, Any]
) -> MessageID:
    """Ask for the next batch, as Spark does while nothing comes, until this one is committed."""
    end = MessageID.from_int(offset["partitions"]["0"][0])

    def is_committed() -> bool:
        assert reader.latestOffset(offset, ALL) == offset
        return offsets_of(client)[0] == end

    wait_for(is_committed, "the batch is committed")
    return end


@pytest.mark.parametrize("counted", [True, False])
def test_a_stream_begins_at_the_groups_offsets_and_elsewhere_with_what_is_left(
    memory_client: hqueue.Client, queue: Queue, counted: bool
) -> None:
    (_, second, _) = put(queue, 4, 6)
    put(queue, 3, partition=1)
    set_offset(memory_client, 0, second, counted=counted)
    reader = reader_of(startingGroup="g")
    end = reader.latestOffset({}, ALL)
    assert rows(reader, {}, end) == 6 + 3
    assert end["exact"] == [0]
    set_offset(memory_client, 1, Position(int(queue.offsets([1])[0].end), 3))
    again = reader_of(startingGroup="g")
    assert rows(again, {}, end) == 6 + 3, "the checkpoint has the start"
    latest = reader_of(startingGroup="g", startingOffsets="latest").latestOffset({}, ALL)
    assert latest["exact"] == [0, 1]


def test_a_group_that_has_everything_misses_nothing_by_what_was_collected_since(
    memory: MemoryBackend, memory_client: hqueue.Client, queue: Queue
) -> None:
    places = put(queue, 5, 5)
    set_offset(memory_client, 0, places[2])
    put(queue, 7)
    collect(memory, 0, 0, places[1].id)
    reader = reader_of(startingGroup="g")
    assert rows(reader, {}, reader.latestOffset({}, ALL)) == 7


def test_a_group_misses_what_is_gone_before_it_was_consumed(
    memory: MemoryBackend, memory_client: hqueue.Client, queue: Queue
) -> None:
    places = put(queue, 5, 5, 7)
    set_offset(memory_client, 0, places[1])
    collect(memory, 0, 0, places[1].id)
    reader = reader_of(startingGroup="g")
    end = reader.latestOffset({}, ALL)
    with pytest.raises(DataLossError, match="lost=5"):
        reader.partitions({}, end)
    options = options_of("batch", startingGroup="g")
    with pytest.raises(DataLossError, match="lost=5"):
        snapshot(queue, options, committed_by(memory_client, options))
    lenient = options_of("batch", startingGroup="g", failOnDataLoss=False)
    (range_,) = snapshot(queue, lenient, committed_by(memory_client, lenient))
    assert range_.messages == 12


def test_a_batch_begins_at_the_groups_offsets(memory_client: hqueue.Client, queue: Queue) -> None:
    (_, second, _) = put(queue, 4, 6)
    put(queue, 3, partition=1)
    set_offset(memory_client, 0, second)
    options = options_of("batch", startingGroup="g")
    ranges = snapshot(queue, options, committed_by(memory_client, options))
    assert [(range_.partition, range_.messages, range_.exact) for range_ in ranges] == [
        (0, 6, True),
        (1, 3, False),
    ]


def test_an_unknown_group_is_logged_and_begins_with_the_oldest(
    memory_client: hqueue.Client, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    put(queue, 4)
    reader = reader_of(startingGroup="g")
    assert rows(reader, {}, reader.latestOffset({}, ALL)) == 4
    assert "the group 'g' has no offsets in the queue 'events' yet" in caplog.text


def test_a_stream_commits_a_batch_when_the_next_is_asked_for(
    memory_client: hqueue.Client, queue: Queue
) -> None:
    put(queue, 4)
    reader = reader_of(startingOffsets="earliest", commitGroup="g")
    first = reader.latestOffset({}, ALL)
    assert set(offsets_of(memory_client).values()) == {None}, "it is not finished yet"
    put(queue, 5)
    wait_for(lambda: reader.latestOffset(first, ALL) != first, "the new messages are seen")
    second = reader.latestOffset(first, ALL)
    wait_for(lambda: offsets_of(memory_client)[0], "the first batch is committed")
    described = memory_client.describe_group("g").partitions
    assert [each.lag and each.lag.messages for each in described] == [5, 0]
    restarted = reader_of(startingOffsets="earliest", commitGroup="g")
    await_commit(memory_client, restarted, second)


def test_a_query_that_ends_has_committed_its_last_batch_before(
    memory_client: hqueue.Client, queue: Queue
) -> None:
    put(queue, 4)
    reader = reader_of(startingOffsets="earliest", commitGroup="g")
    reader.prepareForTriggerAvailableNow()
    first = reader.latestOffset({}, ALL)
    assert reader.latestOffset(first, ALL) == first
    assert offsets_of(memory_client)[0] == queue.offsets([0])[0].end


def test_before_pyspark_4_2_spark_says_when_a_batch_is_finished(
    memory_client: hqueue.Client, queue: Queue
) -> None:
    put(queue, 4)
    reader = reader_of(startingOffsets="earliest", commitGroup="g")
    first = reader.latestOffset()
    put(queue, 4)
    reader.latestOffset()
    assert set(offsets_of(memory_client).values()) == {None}
    reader.commit(first)
    end = MessageID.from_int(first["partitions"]["0"][0])
    wait_for(lambda: offsets_of(memory_client)[0] == end, "the first batch is committed")


def test_a_driver_that_stood_still_commits_nothing_after_its_successor(
    memory_client: hqueue.Client, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    put(queue, 4)
    before = reader_of(startingOffsets="earliest", commitGroup="g")
    first = before.latestOffset({}, ALL)
    put(queue, 5)
    successor = reader_of(startingOffsets="earliest", commitGroup="g")
    second = successor.latestOffset(first, ALL)
    end = await_commit(memory_client, successor, second)
    before.latestOffset(first, ALL)
    wait_for(lambda: "does not have what the stream has finished" in caplog.text, "it is refused")
    assert offsets_of(memory_client)[0] == end


class Offsets:
    """A group's offsets, whose commits end when the test says so."""

    partitions = frozenset({0})

    def __init__(self) -> None:
        self.commits: list[dict[int, tuple[MessageID, int]]] = []
        self.ends: list[Callable[[hqueue.HQueueError | None], None]] = []

    def commit_later(
        self,
        positions: dict[int, tuple[MessageID, int]],
        on_commit: Callable[[hqueue.HQueueError | None], None],
    ) -> None:
        self.commits.append(positions)
        self.ends.append(on_commit)


@pytest.fixture
def offsets() -> Offsets:
    return Offsets()


@pytest.fixture
def commits(offsets: Offsets, clock: SteppedClock) -> GroupCommits:
    return GroupCommits(offsets, "g", clock)  # type: ignore[arg-type]


def test_a_commit_that_failed_is_tried_again_later(
    commits: GroupCommits, offsets: Offsets, clock: SteppedClock, caplog: pytest.LogCaptureFixture
) -> None:
    away = StoreUnavailableError("ZooKeeper is away", outcome=Outcome.NOT_APPLIED)
    at = Position(1 << 60, 3)
    for number in range(1, 3):
        for _ in range(3):
            commits.finished({0: at})
        assert len(offsets.commits) == number, "it waits for the one before, and then for a while"
        offsets.ends[-1](away)
        commits.finished({0: at})
        clock.now_ms += RETRY_MS
    assert caplog.text.count("the group 'g' does not have what the stream has finished") == 1
    commits.finished({0: at})
    assert offsets.commits == [{0: (MessageID.from_int(at.id), 3)}] * 3
    offsets.ends[-1](None)
    assert "the group 'g' has the stream's offsets again" in caplog.text
    commits.finished({0: at})
    assert len(offsets.commits) == 3


def test_one_commit_is_on_its_way_at_a_time_and_the_latest_follows(
    commits: GroupCommits, offsets: Offsets
) -> None:
    for number in range(1, 5):
        commits.finished({0: Position(number << 20, number), 1: Position(1 << 20, 1)})
    assert len(offsets.commits) == 1
    offsets.ends[-1](None)
    commits.finished({0: Position(4 << 20, 4), 1: Position(1 << 20, 1)})
    assert offsets.commits[1:] == [{0: (MessageID.from_int(4 << 20), 4)}], "what changed"
    offsets.ends[-1](None)
    commits.finished({0: Position(4 << 20, 4)})
    assert len(offsets.commits) == 2, "what was committed is not committed again"


@pytest.fixture
def framed(memory_client: hqueue.Client, monkeypatch: pytest.MonkeyPatch) -> list[list[Range]]:
    """The ranges of the frames that are made."""
    made: list[list[Range]] = []

    def frame_of(spark: Any, options: Any, ranges: list[Range], columns: Any) -> MagicMock:
        made.append(ranges)
        return MagicMock()

    monkeypatch.setattr(group_read, "frame_of", frame_of)
    monkeypatch.setattr(group_read, "client_of", lambda settings: memory_client)
    return made


def test_a_batch_is_committed_when_its_block_ends_and_not_when_it_fails(
    memory_client: hqueue.Client, queue: Queue, framed: list[list[Range]]
) -> None:
    put(queue, 4)
    with pytest.raises(ZeroDivisionError), group_read.read_group(MagicMock(), "events", "g"):
        raise ZeroDivisionError
    for _ in range(2):
        with group_read.read_group(MagicMock(), "events", "g"):
            assert offsets_of(memory_client)[0] == (None if len(framed) == 2 else end_of(queue))
        assert offsets_of(memory_client)[0] == end_of(queue)
    failed, first, second = framed
    assert (sum(range_.messages for range_ in failed), failed) == (4, first)
    assert second == []
    put(queue, 3, partition=1)
    with group_read.read_group(MagicMock(), "events", "g"):
        assert [range_.messages for range_ in framed[-1]] == [3]


def end_of(queue: Queue) -> MessageID:
    return queue.offsets([0])[0].end


def test_of_two_batches_at_once_the_later_one_commits(
    memory_client: hqueue.Client, queue: Queue, framed: list[list[Range]]
) -> None:
    put(queue, 4)
    earlier, later = (group_read.read_group(MagicMock(), "events", "g") for _ in range(2))
    with pytest.raises(CommitFailedError), earlier, later:
        assert len(framed) == 2
    assert offsets_of(memory_client)[0] == end_of(queue)


def test_a_client_of_spark_connect_is_told_what_to_do(framed: list[list[Range]]) -> None:
    with (
        pytest.raises(hqueue.InvalidInputError, match="Spark Connect"),
        group_read.read_group(SimpleNamespace(), "events", "g"),  # type: ignore[arg-type]
    ):
        pass
