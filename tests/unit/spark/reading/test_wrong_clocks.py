"""Planning with a clock that is wrong by days: nothing that is there is left out, and no loss is
reported that did not happen.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import hqueue
from pyspark_hqueue.reading import plan
from pyspark_hqueue.reading.decode import read_ranges
from pyspark_hqueue.reading.stream import QueueStreamReader
from tests.support.backends import MemoryBackend
from tests.support.doubles import SteppedClock
from tests.support.past import DAY_MS, put_in_the_past
from tests.support.spark_reading import options_of

from ..conftest import NOW_MS

WRONG_MS = [-400 * DAY_MS, -DAY_MS, -60_000, 0, 60_000, DAY_MS, 400 * DAY_MS]
AGES_MS = [3 * DAY_MS, 2 * DAY_MS, DAY_MS + 90_000, DAY_MS + 5_000, DAY_MS - 20_000, DAY_MS // 2, 0]
FIVE = SimpleNamespace(max_rows=5)
THERE = 3
"""So many batches have not expired."""


@pytest.fixture(params=WRONG_MS, ids=lambda ms: f"{ms // 1000}s")
def queue(
    request: pytest.FixtureRequest,
    memory: MemoryBackend,
    memory_client: hqueue.Client,
    monkeypatch: pytest.MonkeyPatch,
) -> hqueue.Queue:
    """A queue whose oldest messages have expired. The driver's clock is wrong, HBase's is right."""
    made = memory_client.create_queue("events", partitions=1, ttl="1d")
    put_in_the_past(memory.raw, made, AGES_MS, per_batch=10, now_ms=NOW_MS)
    monkeypatch.setattr(plan, "SYSTEM_CLOCK", SteppedClock(NOW_MS + request.param))
    return made


def test_a_batch_from_the_earliest_reads_all_that_is_there(queue: hqueue.Queue) -> None:
    options = options_of("batch", startingOffsets="earliest")
    batches = read_ranges(options, plan.snapshot(queue, options), options.columns)
    assert sum(batch.num_rows for batch in batches) == THERE * 10


@pytest.mark.parametrize("begin", [{"startingOffsets": "earliest"}, {"startingTimestamp": 1}])
def test_a_stream_from_the_earliest_gives_all_that_is_there_once_and_reports_no_loss(
    queue: hqueue.Queue, clock: SteppedClock, begin: dict[str, object]
) -> None:
    options = options_of(**begin)
    reader = QueueStreamReader(options, options.columns)
    start: dict[str, object] = {}
    given = 0
    for number in range(20):
        end = reader.latestOffset(start, FIVE)
        if end == start:
            break
        for task in reader.partitions(start, end):
            given += sum(batch.num_rows for batch in reader.read(task))
        start = end
        if not number:
            clock.now_ms += 30_000  # Some expire that the first batch had.
    assert given == THERE * 10
