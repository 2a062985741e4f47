"""Administrative calls that are cancelled at each of their awaits: the call that repeats one does
what it left undone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

import hqueue
import hqueue.aio
from hqueue import Message, MessageID, PartitionKey
from hqueue.errors import ClosedError, GroupNotFoundError, QueueNotFoundError
from hqueue.groups.offsets import GroupOffsets
from hqueue.groups.paths import GroupPaths
from hqueue.metadata.managers import TopicMetadata
from hqueue.metadata.ports import NEW
from tests.support.backends import MemoryBackend
from tests.support.cancelling import each_await
from tests.support.doubles import SteppedClock
from tests.support.metadata_kinds import ranges

BEGINNING = MessageID(0, 1)
Cut = Callable[..., Any]


class Scene:
    """A queue with a message and a topic of hubs, and a group with an offset."""

    def __init__(self, client: hqueue.Client, metadata: TopicMetadata) -> None:
        self.blocking = client
        self.client = hqueue.aio.Client(client)
        self.metadata = metadata
        self.queue = client.create_queue("q", partitions=2, ttl="1d")
        self.queue.put(Message("t", b"v"), partition=0)
        offsets = GroupOffsets(client.coordination.store, GroupPaths("/hqueue", "g"))
        offsets.take_over("a consumer that has left", [PartitionKey("q", 0)])
        metadata.persistence.write_topic_persistence_info("t", ranges(1), NEW).result(10)

    def values(self) -> list[bytes]:
        return [message.value for message in self.queue.scan()]


async def create(scene: Scene, cut: Cut) -> None:
    await cut(scene.client.create_queue("other", partitions=3))
    again = await scene.client.create_queue("other", partitions=3, exist_ok=True)
    assert again.partitions == 3


async def alter(scene: Scene, cut: Cut) -> None:
    await cut(scene.client.alter_queue("q", ttl="2d"))
    assert (await scene.client.describe_queue("q")).ttl_seconds in (86_400, 172_800)
    assert (await scene.client.alter_queue("q", ttl="2d")).ttl_seconds == 172_800


async def disable_and_enable(scene: Scene, cut: Cut) -> None:
    await cut(scene.client.disable_queue("q"))
    await scene.client.disable_queue("q")
    await cut(scene.client.enable_queue("q"))
    await scene.client.enable_queue("q")
    assert scene.values() == [b"v"]


async def truncate(scene: Scene, cut: Cut) -> None:
    was_cut = await cut(scene.client.truncate_queue("q"))
    if was_cut and (await scene.client.describe_queue("q")).enabled:
        assert scene.values() in ([b"v"], [])
    await scene.client.truncate_queue("q")
    assert scene.values() == []


async def delete(scene: Scene, cut: Cut) -> None:
    await cut(scene.client.delete_queue("q", force=True))
    with contextlib.suppress(QueueNotFoundError):
        await scene.client.delete_queue("q", force=True)
    assert await scene.client.list_queues() == []
    assert [*scene.metadata.entries()] == []


async def look(scene: Scene, cut: Cut) -> None:
    for ask in (
        scene.client.list_queues,
        lambda: scene.client.queue("q"),
        lambda: scene.client.locations("q"),
        scene.client.list_groups,
        lambda: scene.client.describe_group("g"),
    ):
        await cut(ask())
    assert (await scene.client.describe_group("g")) == scene.blocking.describe_group("g")
    assert (await scene.client.list_groups()) == scene.blocking.list_groups()


async def reset_group(scene: Scene, cut: Cut) -> None:
    await cut(scene.client.reset_group("g", "q", "earliest"))
    partitions = (await scene.client.describe_group("g")).partitions
    assert {PartitionKey(each.queue, each.partition) for each in partitions} <= {
        PartitionKey("q", 0),
        PartitionKey("q", 1),
    }
    again = await scene.client.reset_group("g", "q", "earliest")
    assert again == {0: BEGINNING, 1: BEGINNING}


async def delete_group(scene: Scene, cut: Cut) -> None:
    await cut(scene.client.delete_group("g"))
    with contextlib.suppress(GroupNotFoundError):
        await scene.client.delete_group("g")
    assert await scene.client.list_groups() == []


async def close(scene: Scene, cut: Cut) -> None:
    await cut(scene.client.close())
    await scene.client.close()
    with pytest.raises(ClosedError):
        await scene.client.list_queues()
    with pytest.raises(ClosedError):
        await scene.client.list_groups()


@pytest.mark.parametrize(
    "use",
    [create, alter, disable_and_enable, truncate, delete, look, reset_group, delete_group, close],
)
def test_what_is_cancelled_can_be_repeated(use: Callable[[Scene, Cut], Any]) -> None:
    unhandled: list[dict[str, Any]] = []

    async def once(cut: Cut) -> None:
        clock = SteppedClock(1_700_000_000_000)
        backend = MemoryBackend(clock)
        with (
            backend.connect(clock) as client,
            backend.connect() as hub,
            hub.topic_metadata("q") as metadata,
        ):
            await use(Scene(client, metadata), cut)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    async def run() -> int:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: unhandled.append(context))
        return await each_await(once)

    assert asyncio.run(run()) >= 1
    assert unhandled == []
