"""Reading with a clock that is wrong by days gives what it gives with a right one: where something
lies in a log is judged by the log.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

import hqueue
from hqueue import Consumer, DeliveryOptions, InvalidInputError, MessageID, Subscription
from hqueue.format.header import decode_header
from hqueue.runtime.clock import SystemClock
from tests.support.backends import MemoryBackend
from tests.support.consuming import put_numbered, take, values
from tests.support.hubs import HubThread
from tests.support.past import DAY_MS, put_in_the_past
from tests.support.waiting import wait_for

from .pushing import Received, WorkerThread

WRONG_MS = [-30 * DAY_MS, -60_000, 0, 60_000, 30 * DAY_MS]
RESETS = ["earliest", "latest", "error"]


class RightClock(SystemClock):
    """The clock of HBase's servers and of the writer, whatever this process's clock says."""

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
    """Sets this process's clock wrong for every caller."""
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


def test_scans_followers_offsets_and_lag_are_what_they_are(
    writer: hqueue.Client, client: hqueue.Client
) -> None:
    queue = writer.create_queue("q", partitions=2, ttl="1d")
    put_numbered(queue, 10)
    written = sorted(message.id for message in queue.scan())
    read = client.queue("q")
    assert sorted(message.id for message in read.scan()) == written
    later = [each for each in written if each >= written[4]]
    assert [message.id for message in read.scan(merge_sorted=True, start=written[4])] == later
    with read.scan(follow=True, idle_ms_max=60_000) as follower:
        assert len([follower.next() for _ in range(10)]) == 10
        put_numbered(queue, 1, first=10)
        followed = follower.next()
        assert followed is not None
        assert followed.value == b"10"
    assert read.offsets() == queue.offsets()
    behind = {0: written[0], 1: MessageID(0)}
    lags = read.lag(behind)
    assert [lag.messages for lag in lags.values()] == [6, 5]
    newest = [each.end.timestamp for each in queue.offsets()]
    assert lags[0].age_ms >= newest[0] - written[0].timestamp, "however far the clock is behind"


def test_a_group_is_reset_to_a_time_and_one_to_come_is_refused(
    writer: hqueue.Client, client: hqueue.Client
) -> None:
    queue = writer.create_queue("q", partitions=1)
    put_numbered(queue, 5)
    with Consumer("q", group="g", client=writer) as consumer:
        take(2, consumer)
    (end,) = (each.end for each in queue.offsets())
    now_ms = RightClock().wall_ms()
    assert client.reset_group("g", "q", now_ms) == {0: end}, "nothing was written since"
    assert client.reset_group("g", "q", 1) == {0: MessageID(1)}
    with pytest.raises(InvalidInputError, match="beyond the end"):
        client.reset_group("g", "q", now_ms + DAY_MS)


def test_a_check_reports_bodies_that_are_gone_before_their_time_and_no_others(
    servers: MemoryBackend, writer: hqueue.Client, client: hqueue.Client
) -> None:
    queue = writer.create_queue("q", partitions=1, ttl="1d")
    ages_ms = [3 * DAY_MS, DAY_MS // 2, 1_000]
    put_in_the_past(servers.raw, queue, ages_ms, now_ms=RightClock().wall_ms())
    read = client.queue("q")

    def problems() -> list[str]:
        *_, found = read.verify()
        return [finding.problem for finding in found.findings]

    assert problems() == []
    (key,) = (key for key, cells in servers.raw.rows("q").items() if _ordinal(key, cells) == 3)
    servers.raw.delete_cells("q", key, b"message:t")
    assert problems() == ["its bodies are missing, and can't have expired"]


def _ordinal(key: bytes, cells: dict[bytes, bytes]) -> int | None:
    header = cells.get(b"log:batch")
    return None if header is None or key[0] == 0xFF else decode_header(key, header).ordinal


def test_a_worker_delivers_what_is_there_and_what_comes(
    writer: hqueue.Client, client: hqueue.Client
) -> None:
    queue = writer.create_queue("q", partitions=2, ttl="1d")
    put_numbered(queue, 10)
    received = Received()
    subscription = Subscription("s", delivery=DeliveryOptions(delay_ms=200))
    with WorkerThread(client), queue.subscriber(subscription, received, host="127.0.0.1"):

        def numbers() -> list[int]:
            return sorted(int(message.value) for call in received.calls for message in call)

        wait_for(lambda: numbers() == list(range(10)), "what is there is delivered")
        put_numbered(queue, 2, first=10)
        wait_for(lambda: numbers() == list(range(12)), "what comes is delivered")


def test_a_topic_that_a_hub_owns_is_read_whole(
    writer: hqueue.Client, client: hqueue.Client
) -> None:
    writer.create_queue("q", partitions=2, ttl="1d")
    with HubThread(writer, "q") as hub, hqueue.connect_hubs([hub.address], queue="q") as hubs:
        for number in range(5):
            hubs.topic("t").publish(b"%d" % number)
        assert [message.value for message in client.queue("q").scan_topic("t")] == [
            b"%d" % number for number in range(5)
        ]
