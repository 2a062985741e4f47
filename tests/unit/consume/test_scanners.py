"""A scanner whose messages are taken in several ways gives each once, or an error."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from hqueue import Client, HQueueError, Message, Scan, Scanner
from hqueue.client import cluster_of
from hqueue.consume.topic_scanner import TopicScanner
from hqueue.consume.topic_scans import scans_of
from hqueue.message_id import MessageID
from hqueue.metadata.managers import LogRange
from hqueue.queue import Queue
from tests.support.backends import MemoryBackend

MESSAGES = 20


@pytest.fixture
def queue() -> Iterator[Queue]:
    with MemoryBackend().connect() as client:
        queue = client.create_queue("scanned", partitions=2)
        for number in range(MESSAGES):
            queue.put(Message("t", b"%d" % number), partition=number % 2)
        yield queue


@pytest.mark.parametrize("merge_sorted", [False, True])
def test_one_that_was_interrupted_between_messages_gives_no_later_ones_as_arrow(
    queue: Queue, merge_sorted: bool
) -> None:
    with queue.scan(bytes_max=1, merge_sorted=merge_sorted) as scanner:
        assert next(iter(scanner))
        with pytest.raises(KeyboardInterrupt):
            scanner._source.throw(KeyboardInterrupt)
        with pytest.raises(HQueueError, match="the scan was interrupted"):
            next(scanner.arrow_batches())


@pytest.mark.parametrize("place", range(1, 12))
@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("way", ["for", "next", "arrow_batches"])
def test_one_that_is_interrupted_while_a_body_is_cut_out_leaves_none_out_in_silence(
    queue: Queue, way: str, bounded: bool, place: int
) -> None:
    ids = queue.put([Message("t", b"%d" % number) for number in range(10)], partition=0)
    values: list[bytes] = []
    said = ""
    cut = itertools.count(1)

    def interrupt(frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_name != "<genexpr>" or not frame.f_code.co_filename.endswith("cells.py"):
            return None
        if event == "line" and next(cut) == place:
            raise KeyboardInterrupt
        return interrupt

    more = {"start": ids[2], "stop": ids[9]} if bounded else {"start": ids[0]}
    with queue.scan(partition=0, **more) as scanner:
        sys.settrace(interrupt)
        try:
            values.extend(message.value for message in scanner)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        try:
            if way == "for":
                values.extend(message.value for message in scanner)
            elif way == "next":
                values.extend(message.value for message in iter(scanner.next, None))
            else:
                for columns in scanner.arrow_batches():
                    values += columns["value"].to_pylist()
        except HQueueError as exc:
            said = exc.text
    assert said.startswith("the scan was interrupted") or len(values) == (7 if bounded else 10)


@pytest.mark.parametrize("merge_sorted", [False, True])
def test_one_that_came_to_its_end_stays_there_in_whichever_way_it_is_asked_again(
    queue: Queue, merge_sorted: bool
) -> None:
    with queue.scan(merge_sorted=merge_sorted) as scanner:
        assert len(list(scanner)) == MESSAGES
        assert not list(scanner.arrow_batches())
        assert scanner.next() is None
        assert not list(scanner)


LARGE = 600 * 1024
"""Batches of so many bytes are record batches by themselves, several in one answer."""


class Places:
    """A queue whose answers hold several record batches: in each of its two partitions batches of
    two messages, large and small in turns.
    """

    def __init__(self, client: Client) -> None:
        self.queue = queue = client.create_queue("broken-off", partitions=2)
        self.reader = cluster_of(client).log(queue.name).reader
        self.expected: dict[int, list[bytes]] = {0: [], 1: []}
        for number in range(20):
            partition, size = number % 2, LARGE if number // 2 % 2 else 1
            values = [b"%d.%d" % (number, each) for each in range(2)]
            self.expected[partition] += values
            queue.put([Message("t", value.ljust(size)) for value in values], partition=partition)

    @property
    def count(self) -> int:
        return sum(map(len, self.expected.values()))

    def check(self, taken: list[tuple[int, bytes]]) -> None:
        """Each came once, and those of a partition in order."""
        for partition, expected in self.expected.items():
            assert [value for number, value in taken if number == partition] == expected


@pytest.fixture
def places() -> Iterator[Places]:
    with MemoryBackend().connect() as client:
        yield Places(client)


Take = Callable[[Any], list[tuple[int, bytes]]]


def one_record_batch(scanner: Any) -> list[tuple[int, bytes]]:
    for columns in scanner.arrow_batches():
        return [(row["partition"], row["value"].rstrip()) for row in columns.to_pylist()]
    return []


def one_message(scanner: Any) -> list[tuple[int, bytes]]:
    message = scanner.next()
    return [] if message is None else [(message.partition, message.value.rstrip())]


def one_of_an_iteration(scanner: Any) -> list[tuple[int, bytes]]:
    return [(each.partition, each.value.rstrip()) for each in itertools.islice(scanner, 1)]


WAYS: dict[str, list[Take]] = {
    "record batches": [one_record_batch],
    "a message, a record batch": [one_message, one_record_batch],
    "three messages, a record batch": [one_of_an_iteration] * 3 + [one_record_batch],
    "a record batch, a message": [one_record_batch, one_of_an_iteration],
}


def all_by(scanner: Any, ways: list[Take]) -> list[tuple[int, bytes]]:
    taken: list[tuple[int, bytes]] = []
    for take in itertools.cycle(ways):
        came = take(scanner)
        if not came:
            return taken
        taken += came
    raise AssertionError


@pytest.mark.parametrize("ways", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize(
    "options", [{}, {"follow": True, "idle_ms_max": 1}, {"partition": 1}], ids=str
)
def test_what_an_iteration_that_was_left_did_not_give_comes_with_the_next_one(
    places: Places, options: dict[str, Any], ways: list[Take]
) -> None:
    if "partition" in options:
        places.expected[0] = []
    with places.queue.scan(**options) as scanner:
        places.check(all_by(scanner, ways))


@pytest.mark.parametrize("ways", WAYS.values(), ids=WAYS)
def test_what_an_iteration_over_a_topic_that_was_left_did_not_give_comes_with_the_next_one(
    places: Places, ways: list[Take]
) -> None:
    ranges = scans_of("t", [LogRange(0, MessageID(0, 0), None, 0)], None, None)
    places.expected[1] = []
    with TopicScanner(places.reader, ranges) as scanner:
        places.check(all_by(scanner, ways))


@pytest.mark.parametrize("ways", WAYS.values(), ids=WAYS)
def test_a_merge_by_id_is_in_the_order_of_ids_in_whichever_way_messages_are_taken(
    places: Places, ways: list[Take]
) -> None:
    with places.queue.scan(merge_sorted=True) as scanner:
        merged = [(each.partition, each.value.rstrip()) for each in scanner]
    with places.queue.scan(merge_sorted=True) as scanner:
        assert all_by(scanner, ways) == merged
    with places.queue.scan(merge_sorted=True, limit=7) as scanner:
        assert all_by(scanner, ways) == merged[:7]


@pytest.mark.parametrize("ways", WAYS.values(), ids=WAYS)
def test_a_limit_holds_over_all_ways_in_which_messages_are_taken(
    places: Places, ways: list[Take]
) -> None:
    for limit in range(places.count + 2):
        with places.queue.scan(limit=limit) as scanner:
            assert len(all_by(scanner, ways)) == min(limit, places.count)


def test_a_scan_of_one_some_or_all_partitions_is_one_type_that_the_named_ones_have(
    queue: Queue,
) -> None:
    ways = ({}, {"partition": 0}, {"partitions": [0]})
    for scanner in [queue.scan(**way) for way in ways]:  # type: ignore[arg-type]
        with scanner:
            assert type(scanner) is Scanner
    named = (
        queue.queue_scanner(),
        queue.partition_scanner(0),
        queue.combined_partition_scanner({0: Scan()}),
    )
    for scanner in named:
        with scanner:
            assert isinstance(scanner, Scanner)
