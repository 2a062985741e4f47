"""Each kind of event loop over a real HBase without gateways: all that goes through its sockets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence

import pytest

import hqueue
import hqueue.aio
from hqueue import Message, ReceivedMessage, local
from tests.support.hubs import HubThread

EACH = 50
LARGE = b"a large one " * 200_000


@pytest.fixture
def hub(server: local.LocalServer, queue_name: str) -> Iterator[HubThread]:
    settings = server.settings(hbase="native", gateways=())
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(hqueue.connect(settings))
        client.create_queue(queue_name, partitions=2)
        yield stack.enter_context(HubThread(client, queue_name))
    with hqueue.connect(settings) as client:
        client.delete_queue(queue_name, force=True)


@pytest.mark.usefixtures("each_loop")
def test_messages_are_put_scanned_consumed_published_and_heard(
    hub: HubThread, queue_name: str
) -> None:
    values = [b"%d" % number for number in range(EACH)] + [LARGE]
    heard: list[bytes] = []

    async def put(queue: hqueue.aio.Queue) -> None:
        await asyncio.gather(*(queue.put(Message("t", value)) for value in values[:EACH]))
        async with queue.producer() as producer:
            sent = await producer.send(Message("t", LARGE), partition=0)
        assert (await sent) == sent.result()

    async def scan(queue: hqueue.aio.Queue) -> None:
        async with queue.scan(topics=["t"]) as messages:
            assert sorted([message.value async for message in messages]) == sorted(values)
        async with queue.scan(topics=["t"]) as messages:
            columns = [each async for each in messages.arrow_batches()]
        assert sum(each.num_rows for each in columns) == len(values)

    async def consume(client: hqueue.aio.Client) -> None:
        async with hqueue.aio.Consumer(queue_name, group=queue_name, client=client) as consumer:
            found: list[bytes] = []
            async for message in consumer.messages():
                found.append(message.value)
                if len(found) == len(values):
                    break
            await consumer.commit()
            lags = await consumer.lag()
        assert sorted(found) == sorted(values)
        assert [lag.messages for lag in lags.values()] == [0, 0]

    async def hear(messages: Sequence[ReceivedMessage]) -> None:
        heard.extend(message.value for message in messages)

    async def publish() -> None:
        async with hqueue.aio.connect_hubs([hub.address], queue=queue_name) as client:
            topic = client.topic("published")
            async with await topic.subscribe("s", hear):
                await asyncio.gather(*map(topic.publish, values))
                while len(heard) < len(values):
                    await asyncio.sleep(0.01)
        assert sorted(heard) == sorted(values)

    async def run() -> None:
        client = hqueue.aio.Client(hub.client)
        queue = await client.queue(queue_name)
        await put(queue)
        await scan(queue)
        await consume(client)
        await publish()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())
