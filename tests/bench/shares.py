"""What is measured of share groups, beside other work queues."""

from __future__ import annotations

import contextlib
import os
import statistics
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from hqueue import Message, Messages, Queue, ShareConsumer

from .cases import VALUE_BYTES, Bench
from .measure import WARM_ROUNDS, Comparison, compare, interleave
from .push import RATE_PER_S, publish
from .report import comparisons, origin, stolen
from .share_processes import CONSUMERS, WAIT_S, ConsumerProcesses
from .share_rivals import Rivals, running_rivals

__all__ = ["SHARE_CASES", "share_part"]

A_BATCH = 10_000
HELD_MAX = 9_900
"""How many messages of a partition are unfinished where its state is large: with 10,000 the group
would get no further ones."""
LONG_MS = 86_400_000


def shares(bench: Bench) -> Iterator[Comparison]:
    """A share group works off a queue, beside a share group of Kafka, a quorum queue of RabbitMQ,
    and a table of PostgreSQL whose rows are locked; how long a message takes to a consumer; and
    what the group's state costs. Each consumer is a process.
    """
    with running_rivals() as rivals, ConsumerProcesses() as processes:
        yield from _rates(bench, processes, rivals)
        yield from _latency(bench, processes, rivals)
    yield from _state(bench)


def _rates(bench: Bench, processes: ConsumerProcesses, rivals: Rivals) -> Iterator[Comparison]:
    count = max(1, bench.many(100_000) // A_BATCH) * A_BATCH
    rivals_count = bench.many(20_000)
    values = [os.urandom(VALUE_BYTES) for _ in range(A_BATCH)]
    rivals_values = [os.urandom(VALUE_BYTES) for _ in range(rivals_count)]
    queues = {number: bench.queue(f"shares-{number}", partitions=number) for number in (1, 8)}
    for queue in queues.values():
        for number in range(8 * count // A_BATCH):
            part = values[: A_BATCH // 8]
            queue.put(Messages("topic", part), partition=number % queue.partitions)

    def share(queue: Queue, how: str, consumers: int) -> float:
        given = _given(bench, queue, how)
        return count / processes.run(consumers, count, given)[0]

    def rival(system: str, consumers: int, **how: str) -> float:
        rivals.fill(system, rivals_values)
        given = {**rivals.given(system), **how}
        return rivals_count / processes.run(consumers, rivals_count, given)[0]

    def kafka(number: int, consumers: int) -> float:
        given = rivals.kafka.given(number)
        fill = partial(rivals.kafka.fill, given, values * (count // A_BATCH))
        return count / processes.run(consumers, count, given, before=fill)[0]

    for consumers in (1, CONSUMERS):
        runs: dict[Any, Callable[[], float]] = {
            (how, number): partial(share, queue, how, consumers)
            for how in ("iterated", "polled")
            for number, queue in queues.items()
        }
        for how in ("each", "batches"):
            runs[how] = partial(rival, "rabbitmq", consumers, how=how)
        for number in queues:
            runs["kafka", number] = partial(kafka, number, consumers)
        runs["table"] = partial(rival, "postgres", consumers)
        figures = compare(runs, bench.rounds)
        title = f"work off, {consumers} consumer{'s' * (consumers > 1)}"
        for how, against in (("iterated", "each"), ("polled", "batches")):
            for number in queues:
                what = f"{how}, {number} partition{'s' * (number > 1)}"
                for rival_name, key in (
                    ("Kafka, ShareConsumer", ("kafka", number)),
                    (f"RabbitMQ, acknowledged {_ACKNOWLEDGED[against]}", against),
                    ("PostgreSQL, SKIP LOCKED", "table"),
                ):
                    yield Comparison(
                        title, f"ShareConsumer, {what}", rival_name, "msg/s",
                        figures[how, number], figures[key], 1,
                    )  # fmt: skip


_ACKNOWLEDGED = {"each": "one by one", "batches": "in batches"}


def _given(bench: Bench, queue: Queue, how: str, start: str = "earliest") -> dict[str, str]:
    """What a consumer of a new group is made of."""
    return {
        "system": "hqueue",
        "address": bench.client.settings.zookeeper,
        "queue": queue.name,
        "group": f"bench-{uuid.uuid4().hex[:12]}",
        "how": how,
        "start": start,
    }


def _latency(bench: Bench, processes: ConsumerProcesses, rivals: Rivals) -> Iterator[Comparison]:
    """From the sending to the consumer, at 1,000 messages a second in one partition."""
    number = bench.many(2 * RATE_PER_S)
    queue = bench.queue("shares-latency", partitions=1)

    def share(consumers: int) -> list[float]:
        with queue.producer(linger_ms=0, appends_max=1) as producer:
            send = partial(publish, lambda value: producer.send(Message("topic", value)), number)
            given = _given(bench, queue, "iterated", "latest")
            return processes.run(consumers, number, given, send)[1]

    def rabbitmq(consumers: int) -> list[float]:
        with rivals.channel() as channel:
            send = partial(publish, partial(rivals.send, channel), number)
            given = {**rivals.given("rabbitmq"), "how": "each"}
            return processes.run(consumers, number, given, send)[1]

    def kafka(consumers: int) -> list[float]:
        given = rivals.kafka.given(1)
        with rivals.kafka.sender(given) as send:
            return processes.run(consumers, number, given, partial(publish, send, number))[1]

    for consumers in (1, 4):
        p99: dict[str, list[float]] = {"share": [], "rabbitmq": [], "kafka": []}

        def p50(
            name: str,
            work: Callable[[int], list[float]],
            consumers: int = consumers,
            p99: dict[str, list[float]] = p99,
        ) -> float:
            centiles = statistics.quantiles(work(consumers), n=100)
            p99[name].append(centiles[98])
            return centiles[49]

        runs = {
            "share": partial(p50, "share", share),
            "rabbitmq": partial(p50, "rabbitmq", rabbitmq),
            "kafka": partial(p50, "kafka", kafka),
        }
        figures = compare(runs, bench.rounds)
        for what, found in (
            ("p50", figures),
            ("p99", {name: tuple(each[WARM_ROUNDS:]) for name, each in p99.items()}),
        ):
            for rival_name, key in (("Kafka, ShareConsumer", "kafka"), ("RabbitMQ", "rabbitmq")):
                yield Comparison(
                    f"put to hand-out at {RATE_PER_S:,} msg/s, {consumers} consumer"
                    f"{'s' * (consumers > 1)}, {what}",
                    "ShareConsumer, iterated", rival_name, "ms",
                    found["share"], found[key], 2, at_most=True,
                )  # fmt: skip


def _state(bench: Bench) -> Iterator[Comparison]:
    """What an exchange costs, a poll of one message that acknowledges the one before, while others
    have many messages.
    """
    times = bench.many(50)
    with contextlib.ExitStack() as stack:
        steps: dict[str, Callable[[], object]] = {
            name: partial(_exchange, stack.enter_context(_group(bench, name, hold, partitions)))
            for name, hold, partitions in (
                ("nothing", None, 1),
                ("runs", _hold_runs, 1),
                ("scattered", _hold_scattered, 1),
                ("spread", _hold_runs, 11),
            )
        }
        figures = interleave(
            steps,
            times=times,
            rounds=bench.rounds,
            prepare=lambda: None,
            figure=lambda seconds: statistics.median(seconds) * 1e3,
        )
    for name, what, goal in (
        ("runs", f"{HELD_MAX:,} acquired in a row", 1.5),
        ("scattered", f"{HELD_MAX:,} acquired, every second one", 3.0),
        ("spread", f"{11 * HELD_MAX:,} acquired over 11 partitions", 1.5),
    ):
        yield Comparison(
            "a poll of 1, which acknowledges 1", what, "nothing acquired", "ms",
            figures[name], figures["nothing"], goal, at_most=True,
        )  # fmt: skip


@contextlib.contextmanager
def _group(
    bench: Bench, name: str, hold: Callable[[ShareConsumer, int], None] | None, partitions: int
) -> Iterator[ShareConsumer]:
    """A consumer of a group in which another one has many messages."""
    queue = bench.queue(f"shares-{name}", partitions=partitions)
    for number in range(partitions):
        queue.put(Messages("topic", [bytes(VALUE_BYTES)] * 3 * A_BATCH), partition=number)
    given = {"group": f"bench-{uuid.uuid4().hex[:12]}", "client": bench.client}
    with (
        ShareConsumer(queue.name, **given, lock_ms=LONG_MS, auto_acknowledge=False) as other,
        ShareConsumer(queue.name, **given) as consumer,
    ):
        if hold is not None:
            hold(other, partitions)
        yield consumer


def _hold_runs(other: ShareConsumer, partitions: int) -> None:
    """Have as many as there may be of each partition."""
    for _ in range(partitions):
        other.poll(WAIT_S * 1e3, HELD_MAX)


def _hold_scattered(other: ShareConsumer, partitions: int) -> None:
    """Have as many: no two follow one another."""
    left = partitions * HELD_MAX
    while left > 1:
        messages = other.poll(WAIT_S * 1e3, left)
        other.acknowledge(*messages[::2])
        other.commit()
        left -= len(messages[1::2])


def _exchange(consumer: ShareConsumer) -> None:
    if not consumer.poll(WAIT_S * 1e3, 1):
        raise TimeoutError("the consumer got no message")


SHARE_CASES: dict[str, Callable[[Bench], Iterator[Comparison]]] = {"shares": shares}


def share_part(command: str, results: Sequence[Comparison]) -> str:
    """The part of a page that says what was measured.

    Args:
        command: what writes it.
        results: what this case yielded.
    """
    return f"""{origin(command)}, the standalone local
server, Kafka, RabbitMQ and PostgreSQL of Debian, each with its defaults, all on the same cores.

Messages have {VALUE_BYTES} bytes. The systems take turns, round by round. A ratio is the median of
the rounds, with the lowest and the highest. Absolute figures are medians on this machine.
{stolen()}

{comparisons(results)}
"""
