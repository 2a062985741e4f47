"""The queues that a worker has open, over a store in memory and in stepped time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from hqueue import Client, Message, Scan
from hqueue.metadata import PartitionKey
from hqueue_workers import WorkerSettings
from hqueue_workers.delivery.queues import OpenQueues
from tests.support.backends import MemoryBackend
from tests.support.worker_doubles import SteppedRuntime, settle

FRESH_MS, UNOWNED_MS, RETRY_MS = 30_000, 2_000, 5_000


class Scene:
    """A worker's queues, and the cluster on which they are."""

    def __init__(self) -> None:
        self.backend = MemoryBackend()
        self.client: Client = self.backend.connect()
        self.runtime = SteppedRuntime()
        self.queues = OpenQueues(self.client, self.runtime, WorkerSettings(name="w"))

    async def hosts(self, name: str, partitions: int = 3, *, unowned: bool = False) -> list[object]:
        """The hosts of the partitions that exist."""
        wanted = [PartitionKey(name, number) for number in range(partitions)]
        found = await self.queues.regions(wanted, {name} if unowned else set())
        assert list(found) == wanted[: len(found)]
        return list(found.values())

    def move(self, name: str, host: str) -> None:
        self.backend.raw.move(name, 0, host, 1)

    def wait(self, duration_ms: float) -> None:
        self.runtime.stepped.now_ms += duration_ms


def played(play: Callable[[Scene], Awaitable[None]]) -> None:
    async def run() -> None:
        scene = Scene()
        with scene.client:
            await play(scene)
            await scene.queues.regions([], [])  # Ends what polls.

    asyncio.run(asyncio.wait_for(run(), 30))


def test_partitions_that_exist_have_the_hosts_of_their_regions() -> None:
    async def play(scene: Scene) -> None:
        scene.client.create_queue("q", partitions=2)
        scene.move("q", "there")
        assert await scene.hosts("q") == ["there", "memory.test"]
        assert await scene.hosts("nosuch") == []

    played(play)


@pytest.mark.parametrize(("unowned", "fresh_ms"), [(False, FRESH_MS), (True, UNOWNED_MS)])
def test_where_regions_are_is_asked_again_after_a_while(unowned: bool, fresh_ms: int) -> None:
    async def play(scene: Scene) -> None:
        scene.client.create_queue("q", partitions=1)
        for host in ("one", "two", "three"):
            scene.move("q", host)
            assert await scene.hosts("q", unowned=unowned) == [host]
            scene.move("q", "elsewhere")
            scene.wait(fresh_ms - 1)
            assert await scene.hosts("q", unowned=unowned) == [host]
            scene.wait(1)

    played(play)


def test_a_queue_that_can_not_be_opened_is_tried_again_after_a_while() -> None:
    async def play(scene: Scene) -> None:
        assert await scene.hosts("q") == []
        scene.client.create_queue("q", partitions=1)
        scene.wait(RETRY_MS - 1)
        assert await scene.hosts("q") == []
        scene.wait(1)
        assert await scene.hosts("q") == ["memory.test"]

    played(play)


def test_a_queue_that_can_not_be_located_keeps_what_is_known() -> None:
    async def play(scene: Scene) -> None:
        scene.client.create_queue("q", partitions=1)
        scene.move("q", "before")
        assert await scene.hosts("q") == ["before"]
        scene.backend.raw.drop("q")
        scene.wait(FRESH_MS)
        assert await scene.hosts("q") == ["before"]
        scene.client.create_queue("q", partitions=1)
        scene.wait(RETRY_MS - 1)
        assert await scene.hosts("q") == ["before"]
        scene.wait(1)
        assert await scene.hosts("q") == ["memory.test"]

    played(play)


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1)])
def test_a_queue_that_was_made_again_has_the_partitions_that_it_has_now(
    before: int, after: int
) -> None:
    async def play(scene: Scene) -> None:
        scene.client.create_queue("q", partitions=before)
        assert len(await scene.hosts("q")) == before
        opened = scene.queues["q"]
        reader, poller = opened.queue.reader(0, Scan(), 1), opened.poller
        scene.backend.raw.drop("q")
        scene.client.create_queue("q", partitions=after).put(Message("t", b"new"), partition=0)
        scene.wait(FRESH_MS)
        assert len(await scene.hosts("q")) == after
        scene.queues["q"].queue.reader(after - 1, Scan(), 1)
        # What is served of it goes on.
        assert scene.queues["q"].poller is poller
        assert not opened.polling.done()
        assert reader.read(opened.queue.deadline())
        opened.queue.reader(0, Scan(), 1)

    played(play)


def test_a_queue_that_nobody_wants_any_more_is_polled_and_known_no_longer() -> None:
    async def play(scene: Scene) -> None:
        scene.client.create_queue("q", partitions=1)
        await scene.hosts("q")
        opened = scene.queues["q"]
        assert await scene.hosts("other") == []
        await settle()
        assert opened.polling.cancelled()
        with pytest.raises(KeyError):
            scene.queues["q"]
        opened.queue.put(Message("t", b"x"))  # As what still ends puts a dead letter.

    played(play)
