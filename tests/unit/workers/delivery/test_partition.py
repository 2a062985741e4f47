"""A partition that is served, over a store in memory and in stepped time."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from hqueue import Message, MessageID
from hqueue.metadata import (
    Address,
    Checkpoints,
    DeliveryOptions,
    PartitionKey,
    Presence,
    SubscriptionKey,
)
from hqueue_workers import WorkerSettings
from hqueue_workers.delivery.partition import ConnectionPools, Deliveries, ServedPartition
from hqueue_workers.delivery.queues import OpenQueues
from hqueue_workers.node.lease import Lease
from hqueue_workers.node.metrics import Metrics
from hqueue_workers.node.runtime import Runtime
from tests.support.backends import MemoryBackend
from tests.support.worker_doubles import SteppedRuntime

KEY = PartitionKey("q", 0)
PRESENCE = Presence(Address("127.0.0.1", 1))


def test_a_subscriber_that_goes_as_it_comes_ends_in_order_and_is_no_error() -> None:
    async def play() -> None:
        runtime, settings = SteppedRuntime(), WorkerSettings(name="w")
        with MemoryBackend().connect() as client:
            client.create_queue("q", partitions=1)
            checkpoints = client.coordination.checkpoints
            checkpoints.create({SubscriptionKey("q", 0, "s"): MessageID(0)})
            queues = OpenQueues(client, runtime, settings)
            await queues.regions([KEY], [])
            lease = Lease(client.coordination, runtime, lambda: None)
            pools, metrics = ConnectionPools(lease, 1), Metrics()
            shared = Deliveries(runtime, lease, checkpoints, pools, metrics, settings)
            opened = queues["q"]
            served = ServedPartition(KEY, opened.queue, opened.poller, shared, lambda: 1_000)
            served.assign({"s": PRESENCE})
            await asyncio.sleep(0)  # It reads the checkpoint.
            await queues.regions([], [])  # It is gone, and this partition is still to be stopped.
            for _ in range(2_000):  # The store's answer may come by a thread.
                if any(served.senders):
                    break
                await asyncio.sleep(0.005)
            assert len(list(served.senders)) == 1
            await served.stop()
            assert not runtime.failed.done()
            lease.close()
            await runtime.close()

    asyncio.run(play())


class Certain:
    """A lease that holds."""

    holds = True

    async def wait(self) -> None:
        pass


async def until_counted(checkpoints: Checkpoints, key: SubscriptionKey) -> None:
    """Wait until a call without an answer is stored."""
    while True:
        kept = checkpoints.read(key)
        if kept is not None and kept.unanswered is not None:
            break
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("stops", [False, True])
def test_a_call_that_hangs_counts_though_its_subscribers_session_ended_unless_the_worker_stops(
    stops: bool,
) -> None:
    async def play() -> None:
        called = asyncio.Event()

        async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readexactly(10)
            called.set()
            await reader.read()
            writer.close()

        server = await asyncio.start_server(hang, "127.0.0.1", 0)
        address = Address(*server.sockets[0].getsockname()[:2])
        presence = Presence(address, delivery=DeliveryOptions(timeout_ms=400))
        runtime, settings = Runtime(1), WorkerSettings(name="w", drain_ms=50)
        with MemoryBackend().connect() as client:
            client.create_queue("q", partitions=1).put(Message("t", b"v"))
            checkpoints, key = client.coordination.checkpoints, SubscriptionKey("q", 0, "s")
            checkpoints.create({key: MessageID(0)})
            queues = OpenQueues(client, runtime, settings)
            await queues.regions([KEY], [])
            lease = cast(Lease, Certain())
            pools, metrics = ConnectionPools(lease, 1), Metrics()
            shared = Deliveries(runtime, lease, checkpoints, pools, metrics, settings)
            opened = queues["q"]
            served = ServedPartition(KEY, opened.queue, opened.poller, shared, lambda: 100_000)
            served.assign({"s": presence})
            await asyncio.wait_for(called.wait(), 30)
            if not stops:
                served.assign({})
                await asyncio.wait_for(until_counted(checkpoints, key), 30)
            await served.stop()
            kept = checkpoints.read(key)
            assert kept is not None
            assert (kept.unanswered and kept.unanswered.count) == (None if stops else 1)
            await runtime.close()
        server.close()

    asyncio.run(play())
