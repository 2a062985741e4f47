"""Process several messages at a time as a consumer of a group, and commit them in order.

python examples/concurrent_consumer.py events billing --at-once 10

A message counts as done when its task and the tasks of all messages before it in its partition have
ended. So the group's offset never passes a message that is not done. A message that was under way
when the program died, or whose task failed, comes again. Ctrl-C and SIGTERM let the tasks end,
commit, and leave the group.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import random
import signal
from collections.abc import Collection

import hqueue
import hqueue.aio
from hqueue import ConsumedMessage, MessageID, PartitionKey


async def handle(message: ConsumedMessage) -> None:
    """Process a message: a real program would call another service, for example."""
    await asyncio.sleep(random.random() / 50)
    print(f"{message.partition} {message.topic} {message.value.decode()}", flush=True)


class Tasks:
    """The tasks under way, at most `at_once`, in the order of their messages."""

    def __init__(self, consumer: hqueue.aio.Consumer, at_once: int) -> None:
        self._consumer = consumer
        self._room = asyncio.Semaphore(at_once)
        self._tasks: dict[PartitionKey, collections.deque[tuple[MessageID, asyncio.Task[None]]]]
        self._tasks = collections.defaultdict(collections.deque)

    async def begin(self, message: ConsumedMessage) -> None:
        """Begin a task for a message, as soon as there is room."""
        await self._room.acquire()
        task = asyncio.create_task(handle(message))
        task.add_done_callback(lambda _: self._room.release())
        key = PartitionKey(message.queue, message.partition)
        self._tasks[key].append((message.id.next(), task))

    async def commit(self) -> None:
        """Commit the messages that are done. Raises the error of a task that failed."""
        positions: dict[PartitionKey, MessageID] = {}
        try:
            for key, tasks in self._tasks.items():
                while tasks and tasks[0][1].done():
                    following, task = tasks[0]
                    task.result()
                    positions[key] = following
                    tasks.popleft()
        finally:
            if positions:
                await self._consumer.commit(positions)

    async def finish(self, partitions: Collection[PartitionKey] | None = None) -> None:
        """Let the tasks of these partitions end, or all tasks, and commit."""
        chosen = list(self._tasks) if partitions is None else partitions
        tasks = [task for key in chosen for _, task in self._tasks[key]]
        if tasks:
            await asyncio.wait(tasks)
        await self.commit()

    async def give_up(self, partitions: Collection[PartitionKey]) -> None:
        """Cancel the tasks of partitions that another consumer may have by now; commit nothing."""
        for key in partitions:
            for _, task in self._tasks.pop(key, ()):
                task.cancel()


async def consume(queue: str, group: str, at_once: int, idle_ms: int) -> None:
    stopping = asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, stopping.set)
    async with (
        hqueue.aio.connect() as client,
        hqueue.aio.Consumer(group=group, client=client, auto_commit=False) as consumer,
    ):
        tasks = Tasks(consumer, at_once)
        await consumer.subscribe(queue, on_revoked=tasks.finish, on_lost=tasks.give_up)
        idle = 0
        while not stopping.is_set() and idle < idle_ms:
            messages = await consumer.poll(200, messages_max=at_once)
            idle = 0 if messages else idle + 200
            for message in messages:
                await tasks.begin(message)
            await tasks.commit()
        await tasks.finish()


def main() -> None:
    parser = argparse.ArgumentParser(description="Process several messages at a time.")
    parser.add_argument("queue", help="its name; it must be there")
    parser.add_argument("group", help="the group's name")
    parser.add_argument("--at-once", type=int, default=10, help="tasks under way, at most")
    parser.add_argument("--idle-ms", type=int, default=10_000, help="longest wait for a message")
    arguments = parser.parse_args()
    asyncio.run(consume(arguments.queue, arguments.group, arguments.at_once, arguments.idle_ms))


if __name__ == "__main__":
    main()
