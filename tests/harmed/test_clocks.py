"""A region server whose clock is wrong: what it changes is when messages expire, and nothing else.

A message's body has the time of the region server that wrote it, and the region server that reads
it judges its age. IDs, order and the log's links have nothing of a server's clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import hqueue
from hqueue import Message, Queue, local
from hqueue.errors import ClockSkewError
from tests.faults.regions import Regions
from tests.faults.server_clocks import ServerClocks
from tests.support.waiting import wait_for

HOUR_S = 3_600
SERVER = "master"
"""The one process of a standalone server."""


@pytest.fixture
def clocks(tmp_path: Path) -> ServerClocks:
    return ServerClocks(tmp_path / "clocks", [SERVER])


@pytest.fixture
def server(
    tmp_path: Path, clocks: ServerClocks, monkeypatch: pytest.MonkeyPatch
) -> Iterator[local.LocalServer]:
    with monkeypatch.context() as within:
        for name, value in clocks.environment(SERVER).items():
            within.setenv(name, value)
        started = local.start(home=tmp_path / "home")
    with started:
        yield started


def values(queue: Queue) -> list[bytes]:
    with queue.scan(partition=0) as scanner:
        return [message.value for message in scanner]


def has_ahead_s(server: local.LocalServer, queue: str, ahead_s: float) -> None:
    """Wait until the server sees its clock so far ahead: then a new client refuses to append."""

    def seen() -> bool:
        with hqueue.connect(server.settings()) as client:
            try:
                client.queue(queue).put(Message("probe", b"probe"), partition=1)
            except ClockSkewError as exc:
                return abs(exc.facts["store_ahead_ms"] - ahead_s * 1e3) < 60_000
            return ahead_s == 0

    wait_for(seen, f"the server's clock is {ahead_s:+} s off")


def faults(queue: Queue) -> list[str]:
    return [each.problem for each in list(queue.verify([0]))[-1].findings]


def test_a_wrong_clock_of_a_region_server_moves_expiry_alone(
    server: local.LocalServer, clocks: ServerClocks
) -> None:
    with hqueue.connect(server.settings()) as client:
        queue = client.create_queue("clocks", partitions=2, ttl="1h")
        put = [queue.put(Message("t", b"right"), partition=0)]
        clocks.set(SERVER, 2 * HOUR_S)
        has_ahead_s(server, "clocks", 2 * HOUR_S)
        # A writer that measured the clock lately does not know that it was set since.
        put.append(queue.put(Message("t", b"while ahead"), partition=0))
        assert values(queue) == [b"while ahead"]
        clocks.set(SERVER, 0)
        has_ahead_s(server, "clocks", 0)
        assert values(queue) == [b"right", b"while ahead"]
        assert faults(queue) == []
        clocks.set(SERVER, -2 * HOUR_S)
        has_ahead_s(server, "clocks", -2 * HOUR_S)
        put.append(queue.put(Message("t", b"while behind"), partition=0))
        assert values(queue) == [b"right", b"while ahead", b"while behind"]
        clocks.set(SERVER, 0)
        has_ahead_s(server, "clocks", 0)
        put.append(queue.put(Message("t", b"right again"), partition=0))
        assert values(queue) == [b"right", b"while ahead", b"right again"]
        assert put == sorted(set(put))
        assert queue.offsets()[0].count == len(put)
        # What expired before its time is named.
        assert faults(queue) == ["its bodies are missing, and can't have expired"]

        clocks.set(SERVER, 2 * HOUR_S)
        has_ahead_s(server, "clocks", 2 * HOUR_S)
        _rewrite(server, "clocks")
        clocks.set(SERVER, 0)
        has_ahead_s(server, "clocks", 0)
        assert values(queue) == [b"while ahead"], "a compaction has dropped what had expired"
        assert len(faults(queue)) == 3
        put.append(queue.put(Message("t", b"afterwards"), partition=0))
        assert values(queue) == [b"while ahead", b"afterwards"]
        assert queue.offsets()[0].count == len(put)


def _rewrite(server: local.LocalServer, queue: str) -> None:
    """Write all of the first partition into one file."""
    regions = Regions(server.settings())
    name = regions.all(queue)[0].name
    encoded = name.rstrip(b".").rpartition(b".")[2].decode()

    def is_compacted() -> bool:
        regions.flush(queue, name)
        regions.compact(queue, name)
        lines = server.last_log_lines(5_000, SERVER)
        return any("ompleted major compaction" in x.text and encoded in x.text for x in lines)

    wait_for(is_compacted, "the partition is compacted")
