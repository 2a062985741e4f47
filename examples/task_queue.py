"""Call functions later, in any number of worker processes, as Celery does. Whatever is killed, a
call that was enqueued is made until it succeeds, or becomes a dead letter after three failures.

python examples/task_queue.py jobs work &
python examples/task_queue.py jobs call greet '"Ada"' --in 5
hqueue dead-letters jobs --group tasks
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import signal
from collections.abc import Callable
from typing import Any

import hqueue
import hqueue.aio
from hqueue.typing import AcquiredMessage

TRIES = 3
TASKS: dict[str, Callable[..., Any]] = {}


def task(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let workers call this function. A call that was cut off is made again."""
    TASKS[function.__name__] = function
    return function


@task
def greet(name: str) -> None:
    print(f"Hello, {name}!", flush=True)


@task
def append(path: str, text: str) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write(f"{text}\n")


def enqueue(queue: hqueue.Queue, name: str, *args: Any, delay_s: float = 0) -> None:
    """Have a function called. Once this returns, the call is durable."""
    call = hqueue.Message(name, json.dumps(args).encode())
    queue.put(call.delayed(datetime.timedelta(seconds=delay_s)) if delay_s else call)


def make(call: AcquiredMessage) -> None:
    TASKS[call.topic](*json.loads(call.value))


async def work(queue: str, lock_ms: int) -> None:
    """Make calls until SIGTERM; finish the call under way."""
    async with hqueue.aio.ShareConsumer(
        queue, group="tasks", lock_ms=lock_ms, deliveries_max=TRIES, auto_acknowledge=False
    ) as consumer:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, consumer.request_stop)
        async for call in consumer.messages(prefetch=1):
            made = asyncio.create_task(asyncio.to_thread(make, call))
            while not (await asyncio.wait([made], timeout=lock_ms / 3e3))[0]:
                consumer.renew(call)  # The call takes long: keep other workers from getting it.
                await consumer.commit()
            if (error := made.exception()) is None:
                consumer.acknowledge(call)
            elif call.deliveries < TRIES:
                pause = datetime.timedelta(seconds=2**call.deliveries)
                consumer.release(call, until=pause)
            else:
                consumer.reject(call, reason=repr(error)[:1_000])
            await consumer.commit()


def main() -> None:
    parser = argparse.ArgumentParser(description="Call functions later, in worker processes.")
    parser.add_argument("queue", help="its name; it must be there")
    commands = parser.add_subparsers(dest="command", required=True)
    worker = commands.add_parser("work", help="make calls, as one of any number of workers")
    worker.add_argument("--lock-ms", type=int, default=30_000)
    call = commands.add_parser("call", help="have a function called")
    call.add_argument("task", choices=TASKS)
    call.add_argument("arguments", nargs="*", type=json.loads, help="in JSON")
    call.add_argument("--in", dest="delay_s", type=float, default=0, help="seconds from now")
    given = parser.parse_args()
    if given.command == "work":
        asyncio.run(work(given.queue, given.lock_ms))
    else:
        with hqueue.connect() as client:
            enqueue(client.queue(given.queue), given.task, *given.arguments, delay_s=given.delay_s)


if __name__ == "__main__":
    main()
