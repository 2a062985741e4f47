"""What a search reads, how far it looks, and where it goes on."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Iterator
from typing import Any
from unittest import mock

import pytest

import hqueue
import hqueue.aio
from hqueue_workers.console import reading
from hqueue_workers.console.reading import Filter, Found
from tests.support.backends import MemoryBackend

Search = Callable[[hqueue.aio.Queue], Coroutine[Any, Any, Found]]


def search(backend: MemoryBackend, name: str, work: Search) -> Found:
    async def run() -> Found:
        async with (
            hqueue.aio.Client(backend.connect()) as client,
            await client.queue(name) as queue,
        ):
            return await work(queue)

    return asyncio.run(run())


@pytest.fixture(autouse=True)
def _no_hurry() -> Iterator[None]:
    """A busy machine may take longer than a page does."""
    with mock.patch.object(reading, "SECONDS_MAX", 120.0):
        yield


@pytest.fixture(scope="module")
def filled() -> MemoryBackend:
    """A cluster whose queues have messages that come at the same time in all partitions."""
    backend = MemoryBackend()
    with backend.connect() as client:
        for name, partitions in (("one", 1), ("many", 8)):
            with client.create_queue(name, partitions=partitions) as queue:
                for number in range(160):
                    topic = "rare" if number == 20 else "common"
                    message = hqueue.Message(topic, b"value %d" % number, b"%d" % (number % 40))
                    queue.put(message, partition=number % partitions)
        client.create_queue("empty", partitions=3).close()
    return backend


def onwards(
    start: hqueue.MessageID, rows: int, queue: hqueue.aio.Queue
) -> Coroutine[Any, Any, Found]:
    return reading.read_onwards(queue, None, start, Filter(), rows)


def backwards(
    before: hqueue.MessageID | None, rows: int, queue: hqueue.aio.Queue
) -> Coroutine[Any, Any, Found]:
    return reading.read_newest(queue, None, before, Filter(), rows)


def values(found: Found) -> list[bytes]:
    return [message.value for message in found.messages]


ALL = sorted(b"value %d" % number for number in range(160))


@pytest.mark.parametrize("name", ["one", "many"])
@pytest.mark.parametrize("rows", [3, 25, 200])
def test_pages_onwards_have_every_message_once(filled: MemoryBackend, name: str, rows: int) -> None:
    start, seen = hqueue.MessageID(0), []
    for _ in range(200):
        work = functools.partial(onwards, start, rows)
        found = search(filled, name, work)
        seen += values(found)
        if found.next is None:
            break
        assert found.stopped == "rows"
        start = found.next
    assert sorted(seen) == ALL


@pytest.mark.parametrize("name", ["one", "many"])
@pytest.mark.parametrize("rows", [3, 25, 200])
def test_pages_backwards_have_every_message_once(
    filled: MemoryBackend, name: str, rows: int
) -> None:
    before, seen = None, []
    for _ in range(200):
        work = functools.partial(backwards, before, rows)
        found = search(filled, name, work)
        seen += values(found)
        before = found.older
        if before is None:
            break
    assert sorted(seen) == ALL


def test_the_newest_are_the_newest_of_all_partitions(filled: MemoryBackend) -> None:
    found = search(
        filled, "many", lambda queue: reading.read_newest(queue, None, None, Filter(), 8)
    )
    assert set(values(found)) >= {b"value %d" % number for number in range(152, 160)}


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Filter(topic="rare"), [b"value 20"]),
        (Filter(text="VALUE 15"), [b"value 15", *(b"value %d" % n for n in range(150, 160))]),
        (Filter(key="3"), [b"value %d" % number for number in (3, 43, 83, 123)]),
        (Filter(topic="rare", key="3"), []),
    ],
)
@pytest.mark.parametrize("newest", [True, False])
def test_a_search_finds_what_is_wanted(
    filled: MemoryBackend, wanted: Filter, expected: list[bytes], newest: bool
) -> None:
    def work(queue: hqueue.aio.Queue) -> Coroutine[Any, Any, Found]:
        if newest:
            return reading.read_newest(queue, None, None, wanted, 100)
        return reading.read_onwards(queue, None, hqueue.MessageID(0), wanted, 100)

    found = search(filled, "many", work)
    assert sorted(values(found)) == sorted(expected)
    assert found.looked >= len(expected)
    assert (found.stopped, found.next, found.older) == ("", None, None)


def test_a_search_ends_at_its_bounds(filled: MemoryBackend) -> None:
    nothing = Filter(text="no such text")

    def on(queue: hqueue.aio.Queue) -> Coroutine[Any, Any, Found]:
        return reading.read_onwards(queue, None, hqueue.MessageID(0), nothing, 10)

    def back(queue: hqueue.aio.Queue) -> Coroutine[Any, Any, Found]:
        return reading.read_newest(queue, None, None, nothing, 10)

    for name, bound, stopped in (
        ("LOOKED_MAX", 30, "messages"),
        ("BYTES_MAX", 300, "bytes"),
        ("SECONDS_MAX", 0.0, "seconds"),
    ):
        with (
            mock.patch.object(reading, name, bound),
            mock.patch.object(reading, "SEARCHED_FIRST", 8),
        ):
            found = search(filled, "many", on)
            assert found.stopped == stopped
            assert found.next is not None
            assert found.looked < 160
            found = search(filled, "many", back)
            assert found.stopped == stopped
            assert found.older is not None
            assert found.looked < 160


def test_the_newest_of_large_messages_are_shown_rather_than_the_oldest(
    filled: MemoryBackend,
) -> None:
    with mock.patch.object(reading, "BYTES_MAX", 300):
        found = search(
            filled, "one", lambda queue: reading.read_newest(queue, None, None, Filter(), 100)
        )
    assert values(found)[-1] == b"value 159"
    assert found.older is not None


def test_a_search_that_waits_goes_on_where_it_was(filled: MemoryBackend) -> None:
    """A store that gives nothing for longer than the bound loses no message."""

    async def never(self: object) -> None:
        await asyncio.sleep(3_600)

    with (
        mock.patch.object(reading, "SECONDS_MAX", 0.6),
        mock.patch("hqueue.aio.Scanner.next", never),
    ):
        found = search(
            filled,
            "many",
            lambda queue: reading.read_onwards(queue, None, hqueue.MessageID(0), Filter(), 10),
        )
    assert (found.stopped, found.looked) == ("seconds", 0)
    assert found.next == hqueue.MessageID(0)


def test_an_empty_queue_has_no_messages(filled: MemoryBackend) -> None:
    for work in (
        lambda queue: reading.read_newest(queue, None, None, Filter(), 10),
        lambda queue: reading.read_onwards(queue, None, hqueue.MessageID(0), Filter(), 10),
    ):
        found = search(filled, "empty", work)
        assert (found.messages, found.stopped, found.next, found.older) == ([], "", None, None)


def test_a_page_reads_a_bounded_number_of_partitions(filled: MemoryBackend) -> None:
    with (
        mock.patch.object(reading, "PARTITIONS_MAX", 7),
        pytest.raises(hqueue.InvalidInputError, match="choose one"),
    ):
        search(filled, "many", lambda queue: reading.read_newest(queue, None, None, Filter(), 10))


def test_one_message_is_found_or_not_there(filled: MemoryBackend) -> None:
    async def run() -> None:
        async with (
            hqueue.aio.Client(filled.connect()) as client,
            await client.queue("one") as queue,
        ):
            newest = await reading.read_newest(queue, 0, None, Filter(), 1)
            (message,) = newest.messages
            assert await reading.read_one(queue, 0, message.id) == message
            assert await reading.read_one(queue, 0, message.id + 1) is None

    asyncio.run(run())
