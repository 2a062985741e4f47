"""A task gives what was planned, or says how much of it is gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

import hqueue
from hqueue import Queue
from hqueue.consume.queue_reader import QueueReader
from pyspark_hqueue.reading.decode import read_ranges
from pyspark_hqueue.reading.loss import DataLossError
from pyspark_hqueue.reading.plan import Position, Range
from tests.support.backends import MemoryBackend
from tests.support.spark_reading import collect, options_of, put


@pytest.fixture
def queue(memory_client: hqueue.Client) -> Queue:
    return memory_client.create_queue("events", partitions=1, ttl=None)


def between(start: Position, stop: Position, *, exact: bool = True) -> Range:
    return Range(0, start.id, stop.id, start.ordinal, stop.ordinal - start.ordinal, exact)


def rows(*ranges: Range, **options: object) -> int:
    """How many messages a task of these ranges gives."""
    return sum(batch.num_rows for batch in read_ranges(options_of(**options), ranges))


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("wanted", [{}, {"subscribePattern": "t+"}, {"subscribe": "t"}])
@pytest.mark.parametrize("again", [0, 1, 100])
def test_a_log_that_was_truncated_and_began_again_behind_the_stop_is_a_loss(
    memory_client: hqueue.Client, queue: Queue, exact: bool, wanted: dict[str, str], again: int
) -> None:
    places = put(queue, 10, 10)
    range_ = between(places[0], places[-1], exact=exact)
    memory_client.truncate_queue("events")
    if again:
        put(memory_client.queue("events"), again)
    with pytest.raises(DataLossError, match=r"truncated.*lost=20"):
        rows(range_, **wanted)
    assert rows(range_, failOnDataLoss=False, **wanted) == 0


@pytest.mark.parametrize("first", [0, 1])
def test_what_was_collected_since_it_was_planned_is_a_loss_where_all_had_to_be_there(
    memory: MemoryBackend, queue: Queue, first: int
) -> None:
    places = put(queue, 10, 10, 10, 10)
    start = Position(0, 0) if first == 0 else places[first]
    collect(memory, 0, 0, places[1].id)
    with pytest.raises(
        DataLossError, match=rf"expired before they were read.*lost={20 - 10 * first}"
    ):
        rows(between(start, places[-1]))
    assert rows(between(start, places[-1]), failOnDataLoss=False) == 20
    assert rows(between(start, places[-1], exact=False)) == 20


@pytest.mark.parametrize("wanted", [{}, {"subscribe": "a"}, {"subscribePattern": "[ab]"}])
def test_a_range_is_whole_whatever_is_wanted_of_it(queue: Queue, wanted: dict[str, str]) -> None:
    put(queue, 10, topic="a")
    places = put(queue, 20, topic="c")
    expected = 30 if not wanted else 10
    assert rows(between(places[0], places[-1]), **wanted) == expected
    part = [Position(places[0].id + 5, 5), Position(places[1].id + 5, 15)]
    assert rows(between(*part), **wanted) == expected - (20 if not wanted else 5)


def test_topics_are_named_by_a_log_that_reaches_to_the_stop(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(queue, 10, topic="a")
    places = put(queue, 20, topic="b")
    headers: Callable[..., Iterator[Any]] = QueueReader.headers
    answers: list[Sequence[Any]] = [[], list(queue.headers(0))[:1]]

    def stale(*arguments: Any) -> Iterator[Any]:
        return iter(answers.pop(0)) if answers else headers(*arguments)

    monkeypatch.setattr(QueueReader, "headers", stale)
    assert rows(between(places[0], places[-1]), subscribePattern="[ab]") == 30
