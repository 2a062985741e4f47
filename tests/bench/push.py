"""What is measured of push delivery: worker, producer and subscriber on the servers' machine."""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import psutil

import hqueue
from hqueue import DeliveryOptions, Message, Queue, ReceivedMessage, Subscription
from hqueue.settings.connection import NATIVE

from .cases import VALUE_BYTES, Bench
from .measure import Comparison

__all__ = [
    "PUSH_CASES",
    "RATE_PER_S",
    "await_claims",
    "await_condition",
    "publish",
    "running_worker",
]

RATE_PER_S = 1_000
WAIT_S = 120


@contextlib.contextmanager
def running_worker(
    bench: Bench,
    client: hqueue.Client | None = None,
    *,
    hbase: str = NATIVE,
    **settings: object,
) -> Iterator[psutil.Process]:
    """A worker of its own process; killed at the end if it is still there.

    Args:
        bench: where HBase is.
        client: sees the worker come; the benchmark's if None.
        hbase: the worker's way to HBase.
        settings: the worker's besides.
    """
    workers = (client or bench.client).coordination.workers
    before = set(workers.list())
    given = {"worker_metrics_port": 0, "worker_host": "127.0.0.1", **settings}
    environment = bench.environment(hbase, **given)
    process = subprocess.Popen([sys.executable, "-m", "hqueue.cli", "worker"], env=environment)
    try:
        await_condition(lambda: set(workers.list()) - before)
        yield psutil.Process(process.pid)
    finally:
        process.kill()
        process.wait()


def await_condition(condition: Callable[[], object]) -> None:
    """Wait until it holds; after two minutes give up with an error."""
    ends = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > ends:
            raise TimeoutError("the benchmark did not come to its end")
        time.sleep(0.01)


def await_claims(client: hqueue.Client, queue: Queue) -> None:
    """Wait until every partition of a queue has a worker."""
    owners = client.coordination.owners
    await_condition(
        lambda: sum(key.queue == queue.name for key in owners.list()) == queue.partitions
    )


def publish(send: Callable[[bytes], object], number: int, rate_per_s: int = RATE_PER_S) -> None:
    """Send the time, in nanoseconds, so often, so many times a second."""
    began_s = time.perf_counter()
    for sent in range(1, number + 1):
        send(b"%d" % time.perf_counter_ns())
        time.sleep(max(0, began_s + sent / rate_per_s - time.perf_counter()))


def push_latency(bench: Bench) -> Iterator[Comparison]:
    """From `Producer.send` to the listener, at 1,000 messages a second, none held back for others.

    One append is under way at a time: what is sent meanwhile goes together, so that the busier the
    machine is, the less there is to do.
    """
    queue = bench.queue("push-latency")
    took_ms: list[float] = []

    def listen(messages: Sequence[ReceivedMessage]) -> None:
        now_ns = time.perf_counter_ns()
        took_ms.extend((now_ns - int(message.value)) / 1e6 for message in messages)

    p50, p99 = [], []
    number = bench.many(10 * RATE_PER_S)
    with running_worker(bench), queue.subscriber(Subscription("bench", start="latest"), listen):
        await_claims(bench.client, queue)
        for _ in range(bench.rounds + 2):
            took_ms.clear()
            with queue.producer(linger_ms=0, appends_max=1) as producer:
                publish(lambda value: producer.send(Message("topic", value)), number)
            await_condition(lambda: len(took_ms) >= number)
            centiles = statistics.quantiles(took_ms, n=100)
            p50.append(centiles[49])
            p99.append(centiles[98])
    for what, figures, goal_ms in (("p50", p50, 4.0), ("p99", p99, 25.0)):
        yield Comparison(
            f"append to listener at {RATE_PER_S:,} msg/s, {what}", "push", "goal", "ms",
            tuple(figures[2:]), (goal_ms,) * bench.rounds, 1, at_most=True,
        )  # fmt: skip


def push_throughput(bench: Bench) -> Iterator[Comparison]:
    """Sustained delivery from one worker to one subscriber, of what lies in the log."""
    queue = bench.queue("push-throughput")
    number = bench.many(1_000_000)
    figures = []
    with running_worker(bench):
        for _ in range(bench.rounds + 2):
            start = max(each.end for each in queue.offsets())
            with queue.producer() as producer:
                for message in [Message("topic", os.urandom(VALUE_BYTES))] * number:
                    producer.send(message)
            got, all_there = [0], threading.Event()
            times: list[float] = []

            def listen(
                messages: Sequence[Message],
                got: list[int] = got,
                times: list[float] = times,
                all_there: threading.Event = all_there,
            ) -> None:
                times.append(time.perf_counter())
                got[0] += len(messages)
                if got[0] >= number:
                    times.append(time.perf_counter())
                    all_there.set()

            options = DeliveryOptions(batch_messages_max=5_000)
            subscription = Subscription("bench", start=start, reset=True, delivery=options)
            with queue.subscriber(subscription, listen):
                all_there.wait(WAIT_S)
            figures.append(got[0] / (times[-1] - times[0]))
    yield Comparison(
        "delivery by one worker to one subscriber", "push", "goal", "msg/s",
        tuple(figures[2:]), (100_000.0,) * bench.rounds, 1,
    )  # fmt: skip


def push_idle(bench: Bench) -> Iterator[Comparison]:
    """A worker with 1,000 idle subscriptions."""
    queue = bench.queue("push-idle", partitions=bench.many(1_000))
    subscription = Subscription("bench", start="latest")
    figures = []
    with running_worker(bench) as process, queue.subscriber(subscription, lambda _: None):
        await_claims(bench.client, queue)
        time.sleep(10)  # The pauses between polls grow to their full length.
        for _ in range(bench.rounds):
            process.cpu_percent()
            time.sleep(10)
            figures.append(process.cpu_percent())
    yield Comparison(
        f"CPU time of a worker with {queue.partitions:,} idle subscriptions", "push", "goal",
        "% of a core", tuple(figures), (5.0,) * bench.rounds, 1, at_most=True,
    )  # fmt: skip


def push_take_over(bench: Bench) -> Iterator[Comparison]:
    """From the kill of a worker until another has delivered from every partition."""
    session_ms = 6_000
    queue = bench.queue("push-take-over")
    arrived: set[int | None] = set()
    figures = []
    subscription = Subscription("bench", start="latest")
    with queue.subscriber(subscription, lambda messages: arrived.add(messages[0].partition)):
        for _ in range(bench.rounds):
            with running_worker(bench, zookeeper_session_timeout_ms=session_ms) as first:
                await_claims(bench.client, queue)
                with running_worker(bench, zookeeper_session_timeout_ms=session_ms):
                    first.kill()
                    began_s = time.perf_counter()
                    arrived.clear()
                    for partition in range(queue.partitions):
                        queue.put(Message("topic", b""), partition=partition)
                    await_condition(lambda: len(arrived) == queue.partitions)
                    figures.append((time.perf_counter() - began_s) * 1e3)
                    await_claims(bench.client, queue)
            await_condition(lambda: not bench.client.coordination.workers.list())
    yield Comparison(
        "take-over after a kill", "push", "session time-out and 2 s", "ms",
        tuple(figures), (session_ms + 2_000.0,) * bench.rounds, 1, at_most=True,
    )  # fmt: skip


PUSH_CASES: dict[str, Callable[[Bench], Iterator[Comparison]]] = {
    case.__name__: case for case in (push_latency, push_throughput, push_idle, push_take_over)
}
