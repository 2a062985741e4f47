"""Has a consumer, a subscriber, a producer that notifies a worker, a topic of a hub, and topics'
metadata that is moved, in an event loop, and prints the names of the threads that there are then.

Usage: aio_threads.py HUB QUEUE
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
from typing import Any

import hqueue.aio
from hqueue import Message, Settings, Subscription
from hqueue.client import Client
from hqueue.metadata import Address, PartitionKey, WorkerRecord
from hqueue.metadata.encoding import encode_worker
from hqueue.metadata.managers import HubInfo
from hqueue.metadata.steps import Create
from hqueue.zookeeper import ZooKeeperCoordination
from tests.support.memory.cluster import MemoryCluster
from tests.support.memory.memory_store import MemoryStore
from tests.support.memory.zookeeper import MemoryZooKeeper

HUB, QUEUE = sys.argv[1:]


async def nothing(messages: Any) -> None:
    """A listener."""


async def notification(client: Client) -> None:
    """Be the worker that serves the queue, until it is notified of an append."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        address = Address("127.0.0.1", listener.getsockname()[1])
        coordination, worker = client.coordination, WorkerRecord("w", address, "")
        record = {coordination.paths.worker("w"): encode_worker(worker)}
        await coordination.store.answer(Create(record))
        await coordination.owners.claim.in_loop("w", [PartitionKey(QUEUE, 0)])
        loop = asyncio.get_running_loop()
        notifier, _ = await loop.sock_accept(listener)
        with notifier:
            assert await loop.sock_recv(notifier, 1)


async def move(metadata: hqueue.aio.TopicMetadata, moving: hqueue.aio.MetadataMigration) -> None:
    """Be a hub that owns a topic, while its metadata is moved."""
    known = asyncio.Event()
    hub = HubInfo(Address("127.0.0.1", 4_080), "i")
    watch = metadata.hubs.watch(lambda hubs: known.set() if hub.address in hubs else None)
    await metadata.hubs.register(hub)
    await known.wait()
    watch.close()
    for store in ("hbase", "zookeeper"):
        assert (await metadata.election.acquire("t", hub)).won
        await moving.move(store)
        while await metadata.store() != store:
            await asyncio.sleep(0.01)


async def main(client: Client) -> list[str]:
    aio = hqueue.aio.Client(client)
    queue = await aio.create_queue(QUEUE, partitions=1)
    async with (
        hqueue.aio.Consumer(QUEUE, group="g", client=aio) as consumer,
        queue.subscriber(Subscription("s"), nothing, host="127.0.0.1"),
        queue.producer() as producer,
        hqueue.aio.connect_hubs(HUB, queue=QUEUE) as hubs,
        aio.topic_metadata(QUEUE) as metadata,
    ):
        await move(metadata, aio.metadata_migration(QUEUE))
        await producer.send(Message("t", b"v"))
        await hubs.topic("t").publish(b"v")
        notified = asyncio.get_running_loop().create_task(notification(client))
        while not notified.done():
            await producer.send(Message("t", b"v"))
            await producer.flush()
        async with await hubs.topic("t").subscribe("s", nothing, host="127.0.0.1"):
            while not await consumer.poll(100):
                pass
            await consumer.commit()
            return [each.name for each in threading.enumerate()]


with MemoryZooKeeper() as keeper:
    settings = Settings(zookeeper=f"127.0.0.1:{keeper.port}", notify_workers=True)
    store = MemoryStore(MemoryCluster(), settings)
    with Client(
        settings, store, lambda loop: ZooKeeperCoordination(settings, loop=loop)
    ) as connected:
        print(json.dumps(asyncio.run(main(connected))))
