"""Topics that ``subscribe`` names, and that a queue does not have, are logged."""

from __future__ import annotations

import pytest

import hqueue
from hqueue import Queue
from pyspark_hqueue.reading import topic_names
from pyspark_hqueue.reading.stream import QueueStreamReader
from pyspark_hqueue.reading.topic_names import known_topics, warn_of_topics
from pyspark_hqueue.reading.topic_ranges import planned
from tests.support.doubles import SteppedClock
from tests.support.spark_reading import options_of, put

HOUR_MS = 3_600_000


@pytest.fixture
def queue(memory_client: hqueue.Client) -> Queue:
    made = memory_client.create_queue("events", partitions=2)
    put(made, 1, 1, topic="clicks")
    put(made, 3, topic="views", partition=1)
    return made


def logged(queue: Queue, caplog: pytest.LogCaptureFixture, **given: object) -> str:
    caplog.clear()
    warn_of_topics(queue, options_of("batch", **given), [0, 1])
    return caplog.text


def test_a_misspelt_topic_names_the_one_that_is_meant(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    assert "'clcks', which was not found in the queue 'events': is 'clicks' meant?" in logged(
        queue, caplog, subscribe="clcks,views"
    )
    assert "'orders', but the partitions" in logged(queue, caplog, subscribe="orders,clicks")
    for given in ({"subscribe": "clicks,views"}, {"subscribePattern": "clcks"}, {}):
        assert logged(queue, caplog, **given) == ""


def test_in_a_long_log_only_a_similar_name_counts(
    queue: Queue,
    clock: SteppedClock,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A topic that is seldom written may lie in between."""
    for topic in ("orders", "bills", "latest"):
        clock.now_ms += HOUR_MS
        put(queue, 1, topic=topic)
    assert known_topics(queue, {"latest"}, [0, 1])[0] == {"latest"}
    assert known_topics(queue, {"bills"}, [0])[0] == {"latest", "bills"}
    assert known_topics(queue, {"none"}, [0, 1]) == (
        {"latest", "bills", "orders", "clicks", "views"},
        True,
    )
    monkeypatch.setattr(topic_names, "HEADERS_MAX", 2)
    known, is_all = known_topics(queue, {"orders"}, [0, 1])
    assert ("orders" in known, is_all) == (False, False)
    assert logged(queue, caplog, subscribe="orders") == ""
    assert "is 'views' meant?" in logged(queue, caplog, subscribe="view")


def test_nothing_is_said_of_an_empty_queue(
    memory_client: hqueue.Client, caplog: pytest.LogCaptureFixture
) -> None:
    empty = memory_client.create_queue("empty", partitions=2)
    assert logged(empty, caplog, subscribe="clicks") == ""


def test_a_batch_read_looks_when_it_is_planned(
    memory_client: hqueue.Client, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    planned(memory_client, options_of("batch", subscribe="vews"))
    assert "is 'views' meant?" in caplog.text


def test_a_stream_looks_once_when_its_query_begins(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    options = options_of(subscribe="vews", startingOffsets="earliest")
    reader = QueueStreamReader(options, options.columns)
    first = reader.latestOffset({}, None)
    put(queue, 1, 4, topic="views")
    reader.latestOffset(first, None)
    assert caplog.text.count("is 'views' meant?") == 1
