"""A page that follows new messages shows each of them, or says that it does not."""

from __future__ import annotations

import contextlib
import html
import re
from collections.abc import Iterator
from typing import Any
from unittest import mock

import httpx
import pytest

import hqueue
from hqueue import Message
from hqueue.aio import Queue, Scanner
from hqueue.errors import Outcome, StoreUnavailableError
from hqueue_workers.console import following
from tests.support.backends import MemoryBackend
from tests.support.console import Event, RunningConsole, events_of, running_console

STREAM = "/queues/followed/tail/stream"


@pytest.fixture(scope="module")
def followed() -> Iterator[tuple[RunningConsole, hqueue.Queue]]:
    """A console, and a queue that no other test uses."""
    with (
        MemoryBackend().connect() as client,
        client.create_queue("followed", partitions=2) as queue,
        running_console(client) as running,
    ):
        yield running, queue


@contextlib.contextmanager
def events(site: RunningConsole, last: str = "", **fields: Any) -> Iterator[Iterator[Event]]:
    """The events of a stream, after the first."""
    headers = {"last-event-id": last} if last else {}
    with (
        httpx.Client(base_url=site.address, timeout=30) as browser,
        browser.stream("GET", STREAM, params=fields, headers=headers) as stream,
    ):
        assert stream.status_code == 200
        found = events_of(stream)
        assert next(found)[:2] == ("state", "Following.")
        yield found


def numbers(rows: list[Event]) -> list[int]:
    return [int(re.findall(r"number (\d+)", row.data)[0]) for row in rows]


def put(queue: hqueue.Queue, *wanted: int, topic: str = "sales") -> None:
    for number in wanted:
        queue.put(Message(topic, b"number %d" % number, b"%d" % number))


def test_a_browser_that_connects_again_misses_no_message(
    followed: tuple[RunningConsole, hqueue.Queue],
) -> None:
    site, queue = followed
    with events(site) as found:
        put(queue, 0, 1, 2)
        rows = [next(found) for _ in range(3)]
    put(queue, 3, 4, 5)
    for fields in ({"last": rows[-1].id}, {"reached": rows[-1].id}):
        with events(site, **fields) as found:
            rows_since = [next(found) for _ in range(3)]
        assert sorted(numbers(rows + rows_since)) == list(range(6))
    with events(site, rows[-1].id, partition=1) as found:
        expected = sorted(int(each.value.split()[1]) for each in queue.scan(partitions=[1]))
        shown = [number for number in expected if number > 2]
        assert numbers([next(found) for _ in shown]) == shown


def test_a_browser_that_never_got_a_message_misses_none_either(
    followed: tuple[RunningConsole, hqueue.Queue],
) -> None:
    site, queue = followed
    with (
        httpx.Client(base_url=site.address, timeout=30) as browser,
        browser.stream("GET", STREAM) as stream,
    ):
        begun = next(events_of(stream))
    put(queue, 6)
    with events(site, begun.id) as found:
        assert numbers([next(found)]) == [6]


def test_a_second_with_too_many_messages_is_counted_with_a_link_to_them(
    followed: tuple[RunningConsole, hqueue.Queue],
) -> None:
    site, queue = followed
    with (
        mock.patch.object(following, "ROWS_PER_SECOND_MAX", 3),  # A slow machine puts no more.
        events(site, topic="burst") as found,
    ):
        for number in range(50):
            put(queue, number, topic="burst")
        shown: list[Event] = []
        counted = 0
        while len(shown) + counted < 50:  # Nothing follows that could remind the console.
            row = next(found)
            if 'class="gap"' not in row.data:
                shown.append(row)
                continue
            (count,) = re.findall(r">(\d+) messages were too many to show in a second", row.data)
            counted += int(count)
            (address,) = re.findall(r'href="([^"]+)"', row.data)
            text = httpx.get(site.address + html.unescape(address), timeout=30).text
            missing = set(range(50)) - set(numbers(shown))
            first = min(missing)
            assert f"number {first}<" in text
        assert len(shown) + counted == 50
        assert counted > 0
    with events(site, row.id, topic="burst") as found:
        put(queue, 50, topic="burst")
        assert numbers([next(found)]) == [50]  # What was counted does not come again.


def test_too_many_messages_since_a_browser_was_connected_are_counted(
    followed: tuple[RunningConsole, hqueue.Queue],
) -> None:
    site, queue = followed
    with (
        httpx.Client(base_url=site.address, timeout=30) as browser,
        browser.stream("GET", STREAM) as stream,
    ):
        begun = next(events_of(stream))
    put(queue, *range(60, 90))
    with (
        mock.patch.object(following, "LOOKED_MAX", 29),
        httpx.Client(base_url=site.address, timeout=30) as browser,
        browser.stream("GET", STREAM, headers={"last-event-id": begun.id}) as stream,
    ):
        found = events_of(stream)
        gap, state = next(found), next(found)
        assert "The queue got 30 messages while this page was not connected." in gap.data
        (address,) = re.findall(r'href="([^"]+)"', gap.data)
        text = httpx.get(site.address + html.unescape(address), timeout=30).text
        assert all(f"number {number}<" in text for number in range(60, 90))
        assert state.data == "Following."
        put(queue, 90)
        assert numbers([next(found)]) == [90]


class _Failing(Scanner):
    """A scanner whose servers go away after two messages."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._given = 0

    async def next(self) -> hqueue.ReceivedMessage | None:
        self._given += 1
        if self._given > 2:
            raise StoreUnavailableError("HBase <is away>", outcome=Outcome.UNKNOWN)
        return await super().next()


def test_a_page_says_that_the_servers_are_away_and_continues_where_it_was(
    followed: tuple[RunningConsole, hqueue.Queue],
) -> None:
    site, queue = followed

    def failing(opened: Queue, scans: Any, **options: Any) -> Scanner:
        return _Failing(opened._reader, scans, **options)

    with mock.patch.object(Queue, "combined_partition_scanner", failing), events(site) as found:
        for number in range(6):
            put(queue, number)
        seen = [next(found) for _ in range(10)]
    states = [each.data for each in seen if each.name == "state"]
    assert states == ["HBase &lt;is away&gt;. Trying again.", "Following."] * 2
    assert sorted(numbers([each for each in seen if each.name == "row"])) == list(range(6))


@pytest.mark.parametrize(
    "wrong",
    ["0", "0:", ":1-0", "x:1-0", "0:1-0,", "123456:1-0", "²:1-0", "0:1-0," * 70, "0:nonsense"],
)
def test_a_wrong_id_of_the_last_event_is_refused(
    followed: tuple[RunningConsole, hqueue.Queue], wrong: str
) -> None:
    site, _ = followed
    answer = httpx.get(site.address + STREAM, params={"reached": wrong}, timeout=30)
    assert answer.status_code == 400


def test_positions_that_the_queue_does_not_have_begin_at_its_end(
    followed: tuple[RunningConsole, hqueue.Queue],
) -> None:
    site, queue = followed
    with events(site, f"0:{hqueue.MessageID(2**47)},1:{hqueue.MessageID(2**47)},77:1-0") as found:
        put(queue, 91)
        assert numbers([next(found)]) == [91]


def test_the_stream_of_a_queue_that_is_deleted_ends_with_the_reason() -> None:
    hasty = MemoryBackend().connect(operation_timeout_ms=1_000)
    with hasty as client, running_console(client) as site:
        client.create_queue("short", partitions=1).close()
        with (
            httpx.Client(base_url=site.address, timeout=30) as browser,
            browser.stream("GET", "/queues/short/tail/stream") as stream,
        ):
            found = events_of(stream)
            assert next(found).data == "Following."
            client.delete_queue("short", force=True)
            ended = next(found)
        assert ended.name == "ended"
        assert "short" in ended.data
        assert ended.data.endswith("Press Follow to begin again.")
