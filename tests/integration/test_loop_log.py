"""An open log in an event loop, over each way to a store: what it writes and reads is what the
blocking face reads and writes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import hqueue
from hqueue import Message, Scan
from hqueue.engine import Engine, LoopLog, messages_of

MakeQueue = Callable[..., hqueue.Queue]

TASKS = 8
PUTS = 12


def open_log(client: hqueue.Client, queue: hqueue.Queue) -> LoopLog:
    return Engine(client).open(queue.name).in_loop()


async def read(log: LoopLog, partition: int) -> list[bytes]:
    cursor = log.reader.cursor(partition, Scan(), 100_000)
    values: list[bytes] = []
    while not cursor.at_tail:
        for batch in await log.reader.read(cursor):
            values += [message.value for message in messages_of(batch)]
    return values


def test_many_tasks_put_and_read_and_threads_see_the_same(
    client: hqueue.Client, make_queue: MakeQueue
) -> None:
    queue = make_queue(2)
    queue.put(Message("t", b"by a thread"), partition=1)

    async def run() -> list[bytes]:
        log = open_log(client, queue)

        async def put(task: int) -> None:
            for number in range(PUTS):
                value = b"%d %d" % (task, number)
                await log.appender.put(Message("t", value), partition=task % 2)

        await asyncio.gather(*map(put, range(TASKS)))
        (found,) = await log.reader.offsets([1])
        assert found.count == TASKS // 2 * PUTS + 1
        return await read(log, 0) + await read(log, 1)

    values = asyncio.run(run())
    assert Counter(values) == Counter(message.value for message in queue.scan())
    for task in range(TASKS):
        mine = [value for value in values if value.startswith(b"%d " % task)]
        assert mine == [b"%d %d" % (task, number) for number in range(PUTS)]


def test_what_is_cancelled_anywhere_is_put_again_by_its_key_and_is_there_once(
    client: hqueue.Client, make_queue: MakeQueue
) -> None:
    queue = make_queue(1)
    given = [b"%d" % number for number in range(PUTS)]

    async def run() -> list[bytes]:
        log = open_log(client, queue)
        for turns, value in enumerate(given):
            cut = True
            while True:
                key = value.decode()
                put = log.appender.put(Message("t", value), partition=0, idempotency_key=key)
                task = asyncio.ensure_future(put)
                if cut:  # After a few turns of the loop: at ever other places of the put.
                    for _ in range(turns):
                        await asyncio.sleep(0)
                    task.cancel()
                    cut = False
                try:
                    await task
                except asyncio.CancelledError:
                    continue
                break
        return await read(log, 0)

    assert asyncio.run(run()) == given


def test_an_owner_in_a_loop_is_fenced_by_one_in_a_thread(
    client: hqueue.Client, make_queue: MakeQueue
) -> None:
    queue = make_queue(1)
    opened = Engine(client).open(queue.name)
    fenced: list[tuple[str, int]] = []

    async def run() -> None:
        owned = opened.in_loop().own(0, lambda *fence: fenced.append(fence))
        await owned.open()
        await owned.close_ranges({"t": 1})
        owned.own("t", 1)
        assert await owned.append(lambda: ([Message("t", b"mine")], 0, {"t": 1})) is not None
        later = opened.own(0, lambda *fence: None)
        later.open()
        later.close_ranges({"t": 2})
        try:
            await owned.append(lambda: ([Message("t", b"late")], 0, {"t": 1}))
        except hqueue.errors.TopicFencedError:
            fenced.append(("refused", 0))

    asyncio.run(run())
    assert fenced == [("t", 2), ("refused", 0)]
    assert [message.value for message in queue.scan()] == [b"mine"]
