"""Reading with a clock that is wrong by days gives what it gives with a right one: where something
lies in a log is judged by the log.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

import hqueue
from hqueue import Consumer
from hqueue.runtime.clock import SystemClock
from tests.support.backends import MemoryBackend
from tests.support.consuming import put_numbered, take, values

DAY_MS = 86_400_000
WRONG_MS = [-30 * DAY_MS, -60_000, 0, 60_000, 30 * DAY_MS]
RESETS = ["earliest", "latest", "error"]


class RightClock(SystemClock):
    """The clock of HBase's servers and of who writes, whatever this process's clock says."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


@pytest.fixture
def servers() -> MemoryBackend:
    return MemoryBackend(RightClock())


@pytest.fixture
def writer(servers: MemoryBackend) -> Iterator[hqueue.Client]:
    with servers.connect(RightClock()) as client:
        yield client


@pytest.fixture(params=WRONG_MS, ids=lambda ms: f"{ms // 1000}s")
def wrong_ms(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Sets this process's clock wrong, whoever asks it."""
    wrong_ms: int = request.param
    monkeypatch.setattr(SystemClock, "wall_ms", lambda self: time.time_ns() // 1_000_000 + wrong_ms)
    return wrong_ms


@pytest.fixture
def client(servers: MemoryBackend, wrong_ms: int) -> Iterator[hqueue.Client]:
    """Of a process that reads."""
    with servers.connect(operation_timeout_ms=500) as reading:
        yield reading


def bodies(messages: Any) -> list[bytes]:
    return [message.value for message in messages]


@pytest.mark.parametrize("reset", RESETS)
def test_a_consumer_goes_on_at_its_group_s_offset(
    writer: hqueue.Client, client: hqueue.Client, reset: Any
) -> None:
    queue = writer.create_queue("q", partitions=1)
    put_numbered(queue, 10)
    with Consumer("q", group="g", client=writer) as before:
        take(10, before)
    put_numbered(queue, 3, first=10)
    with Consumer("q", group="g", client=client, auto_offset_reset=reset) as consumer:
        assert values(take(3, consumer)) == [10, 11, 12]
        put_numbered(queue, 2, first=13)
        assert values(take(2, consumer)) == [13, 14]
        assert [lag.messages for lag in consumer.lag().values()] == [0]
    end = queue.offsets()[0].end
    assert [each.committed for each in client.describe_group("g").partitions] == [end]
