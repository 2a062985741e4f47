"""A partition that is served, over a store in memory and in stepped time."""

from __future__ import annotations

import asyncio

from hqueue import MessageID
from hqueue.metadata import Address, PartitionKey, Presence, SubscriptionKey
from hqueue_workers import WorkerSettings
from hqueue_workers.delivery.partition import ConnectionPools, Deliveries, ServedPartition
from hqueue_workers.delivery.queues import OpenQueues
from hqueue_workers.node.lease import Lease
from hqueue_workers.node.metrics import Metrics
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
