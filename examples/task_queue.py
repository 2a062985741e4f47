"""Call functions later, in any number of worker processes, as Celery does. Whatever is killed, a
call that was enqueued is made until it succeeds, or becomes a dead letter after three failures.

python examples/task_queue.py jobs work &
python examples/task_queue.py jobs call greet '"Hello"' '"Ada"' --in 5
hqueue dead-letters jobs --group tasks
"""

import argparse
import datetime
import json
import signal

import hqueue


def greet(greeting: str, name: str) -> None:
    print(f"{greeting}, {name}!", flush=True)


def append(path: str, text: str) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write(f"{text}\n")


TASKS = {"greet": greet, "append": append}
TRIES = 3


def enqueue(queue: hqueue.Queue, name: str, *arguments: object, delay_s: float = 0) -> None:
    """Have a function called. Once this returns, the call is durable."""
    call = hqueue.Message(name, json.dumps(arguments).encode())
    queue.put(call.delayed(datetime.timedelta(seconds=delay_s)) if delay_s else call)


def work(queue: str, lock_ms: int) -> None:
    """Make calls until SIGTERM; finish the call under way."""
    with hqueue.ShareConsumer(
        queue, group="tasks", lock_ms=lock_ms, auto_renew=True, deliveries_max=TRIES
    ) as consumer:
        signal.signal(signal.SIGTERM, lambda *_: consumer.request_stop())
        for call in consumer.messages(prefetch=1):
            try:
                TASKS[call.topic](*json.loads(call.value))
            except Exception as exc:
                if call.deliveries < TRIES:
                    consumer.release(call, until=datetime.timedelta(seconds=2**call.deliveries))
                else:
                    consumer.reject(call, reason=repr(exc)[:1_000])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Call functions later, in worker processes.")
    parser.add_argument("queue", help="its name; it must be there")
    parser.add_argument("command", choices=("work", "call"))
    parser.add_argument("task", nargs="?", choices=TASKS, help="the function to call")
    parser.add_argument("arguments", nargs="*", type=json.loads, help="in JSON")
    parser.add_argument("--in", dest="delay_s", type=float, default=0, help="seconds from now")
    parser.add_argument("--lock-ms", type=int, default=30_000, help="a worker's")
    given = parser.parse_args()
    if given.command == "work":
        work(given.queue, given.lock_ms)
    else:
        with hqueue.connect() as client:
            enqueue(client.queue(given.queue), given.task, *given.arguments, delay_s=given.delay_s)
