"""HQueue for asyncio: the nouns of `hqueue`, with calls that are awaited.

async def main():
    async with hqueue.aio.connect() as client:
        queue = await client.queue("events")
        await queue.put(hqueue.Message("clicks", b"hello"))
        async with queue.scan() as messages:
            async for message in messages:
                print(message.id, message.topic, message.value)

Messages, IDs, errors and options are those of `hqueue`, and so are the guarantees: the same code
decides what is asked of HBase. Objects of this package belong to the event loop in which they are
used; a program with several loops connects in each.
"""

from hqueue.aio.client import Client, connect
from hqueue.aio.delivery import Delivery
from hqueue.aio.producer import Producer
from hqueue.aio.queue import Queue
from hqueue.aio.scanner import Scanner

__all__ = ["Client", "Delivery", "Producer", "Queue", "Scanner", "connect"]
