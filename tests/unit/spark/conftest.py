"""What reads queues in memory, without Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import hqueue
from pyspark_hqueue.reading import decode, located, plan, stream
from tests.support.backends import MemoryBackend
from tests.support.doubles import SteppedClock

NOW_MS = 1_700_000_000_000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SteppedClock:
    """Of the cluster, its client, and what waits for them."""
    stepped = SteppedClock(NOW_MS)
    for module in (decode, plan, stream):
        monkeypatch.setattr(module, "SYSTEM_CLOCK", stepped)
    return stepped


@pytest.fixture
def memory(clock: SteppedClock) -> MemoryBackend:
    return MemoryBackend(clock)


@pytest.fixture
def memory_client(
    memory: MemoryBackend, clock: SteppedClock, monkeypatch: pytest.MonkeyPatch
) -> Iterator[hqueue.Client]:
    """A client of the cluster, which all options lead to."""
    with memory.connect(clock) as client:
        for module in (decode, located, stream):
            monkeypatch.setattr(module, "client_of", lambda settings, token=None: client)
        yield client
