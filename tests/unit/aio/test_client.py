"""Administration in an event loop says what administration in threads says."""

from __future__ import annotations

import asyncio

import pytest

import hqueue
import hqueue.aio
from hqueue import Message
from hqueue.errors import SubscriberExistsError, SubscriberNotFoundError
from tests.support.backends import MemoryBackend


def test_subscribers_are_added_moved_listed_and_deleted() -> None:
    async def run(client: hqueue.Client) -> None:
        asynchronous = hqueue.aio.Client(client)
        queue = await asynchronous.create_queue("q", partitions=2)
        await queue.put([Message("t", b"a"), Message("t", b"b")], partition=1)
        await asynchronous.add_subscriber("q", "s")
        with pytest.raises(SubscriberExistsError):
            await asynchronous.add_subscriber("q", "s", start="latest")
        listed = await asynchronous.list_subscribers("q")
        assert listed == client.list_subscribers("q")
        assert [(each.partition, each.lag) for each in listed] == [(0, 0), (1, 2)]
        moved = await asynchronous.seek_subscriber("q", "s", "latest", partitions=[1])
        assert list(moved) == [1]
        assert [each.lag for each in await asynchronous.list_subscribers("q")] == [0, 0]
        await asynchronous.delete_subscriber("q", "s")
        assert await asynchronous.list_subscribers("q") == []
        with pytest.raises(SubscriberNotFoundError):
            await asynchronous.seek_subscriber("q", "s", "latest")

    with MemoryBackend().connect() as client:
        asyncio.run(run(client))
        asyncio.run(hqueue.aio.Client(client).delete_queue("q", force=True))
