"""Offsets of streams, and the lag that they show, without Spark."""

from __future__ import annotations

import json
import uuid
from types import SimpleNamespace
from typing import Any

import pytest

from hqueue import InvalidInputError
from pyspark_hqueue.reading.lag import LagListener, StreamLag, lags_of
from pyspark_hqueue.reading.plan import Position
from pyspark_hqueue.reading.stream_offsets import (
    behind,
    check_queue,
    latest_offset,
    offset_of,
    positions_in,
    read_offset,
    start_in,
)

READ = {0: Position(100, 10), 1: Position(50, 4)}
ENDS = {0: Position(100, 10), 1: Position(90, 11), 2: Position(7, 2)}
QUERY = uuid.uuid4()


def test_an_offset_is_written_and_read() -> None:
    plain = offset_of("events", READ)
    assert json.dumps(plain) == '{"partitions": {"0": [100, 10], "1": [50, 4]}, "queue": "events"}'
    first = offset_of("events", READ, {0: Position(1, 1)}, {1, 0})
    assert (positions_in(first), start_in(first)) == (READ, {0: Position(1, 1)})
    assert first["exact"] == [0, 1]


def test_the_end_of_the_log_has_the_lag_by_the_names_of_kafka_s_metrics() -> None:
    assert behind(ENDS, READ) == {0: 0, 1: 7, 2: 2}
    latest = latest_offset("events", ENDS, READ)
    assert latest["minOffsetsBehindLatest"] == 0
    assert latest["maxOffsetsBehindLatest"] == 7
    assert latest["avgOffsetsBehindLatest"] == 3.0
    assert positions_in(latest) == ENDS
    assert latest_offset("events", {}, {})["maxOffsetsBehindLatest"] == 0


def test_after_a_truncation_all_of_the_new_log_is_behind() -> None:
    assert behind({0: Position(200, 3)}, {0: Position(100, 10)}) == {0: 3}
    assert behind({0: Position(100, 3)}, {0: Position(200, 10)}) == {0: 0}


def test_an_offset_of_another_queue_is_refused() -> None:
    check_queue({}, "events")
    check_queue({"partitions": {}}, "events")
    check_queue(offset_of("events", READ), "events")
    with pytest.raises(InvalidInputError, match="another checkpointLocation"):
        check_queue(offset_of("others", READ), "events")


@pytest.mark.parametrize(
    "text",
    [None, "", "null", "17", "{}", '{"t": {"0": 23}}', '{"partitions": {"0": [1, 1]}}', "{"],
)
def test_offsets_of_other_sources_are_no_offsets(text: Any) -> None:
    assert read_offset(text) is None


def progress(*sources: tuple[Any, Any]) -> Any:
    return SimpleNamespace(
        id=QUERY,
        name="clicks",
        batchId=4,
        sources=[SimpleNamespace(endOffset=end, latestOffset=latest) for end, latest in sources],
    )


def test_a_listener_reports_each_queue_that_a_query_reads() -> None:
    ours = json.dumps(offset_of("events", READ)), json.dumps(latest_offset("events", ENDS, READ))
    kafka = '{"t":{"0":23}}', '{"t":{"0":24}}'
    before_4_2 = ours[0], None
    reported: list[StreamLag] = []
    listener = LagListener(reported.append)
    listener.onQueryProgress(SimpleNamespace(progress=progress(kafka, ours, before_4_2)))
    assert reported == [StreamLag("events", str(QUERY), "clicks", 4, {0: 0, 1: 7, 2: 2})]
    assert reported[0].messages == 9
    assert lags_of(progress()) == []
