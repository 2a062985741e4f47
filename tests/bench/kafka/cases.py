"""What is measured beside Kafka. Each case yields a comparison with each rival."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from hqueue.local.jars import JarSet, ensure_jars

from ..cases import Bench
from ..measure import Comparison, Figures, compare, rate
from ..push import RATE_PER_S, await_condition, publish
from . import goals
from .confluent import Confluent
from .group import CONSUMERS, group_rate
from .group_member import CONFLUENT, HQUEUE
from .kafka_python import KafkaPython
from .keyed import COLUMNS, MESSAGES, keyed_reads, keyed_writes
from .library import A_BATCH, Library, Log, batches
from .loop_cases import loops
from .ours import HQueue
from .payloads import PAYLOADS, Payload

__all__ = ["CASES", "Arena", "Case", "warm"]

PYTHON = "kafka-python"
PYTHON_GOAL = 4.0
WARM_S = 30
GROUP_PARTITIONS = 4
GROUP_TIMES = 10
"""How many times as many messages a group reads as a consumer alone."""
FEW_PAYLOADS = tuple(each for each in PAYLOADS if each.size <= 1_000 and not each.text)
SPARK_PYTHON = Path(__file__).parents[3] / ".venv-spark-4.0" / "bin" / "python"
SPARK_MESSAGES = 5_000_000
SPARK_S_MAX = 1_800
SOURCE_JARS = JarSet(
    "Kafka's source for Spark",
    Path(__file__).with_name("spark.xml").read_bytes(),
    ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2"),
    11,
)


@dataclasses.dataclass(frozen=True)
class Arena:
    """The libraries, each with its server, and how much to do."""

    bench: Bench
    ours: HQueue
    confluent: Confluent
    compressing: Confluent
    python: KafkaPython

    @contextlib.contextmanager
    def logs(self, payload: Payload, *, on_disk: bool) -> Iterator[list[tuple[Library, Log]]]:
        """A fresh log of each library; deleted afterwards."""
        libraries = [self.ours, self.confluent, self.python]
        if payload.text:
            libraries.insert(2, self.compressing)
        with contextlib.ExitStack() as stack:
            opened = []
            for library in libraries:
                log = library.fresh(on_disk=on_disk)
                stack.callback(log.close)
                opened.append((library, log))
            yield opened


@dataclasses.dataclass(frozen=True)
class Case:
    """A kind of work, done with many payloads."""

    title: str
    doc: str
    run: Callable[[Arena, Payload, bool], Iterator[Comparison]]
    payloads: Sequence[Payload] = PAYLOADS
    on_disk: bool = True
    """Whether durability makes a difference."""

    def measure(self, arena: Arena) -> Iterator[Comparison]:
        """Run it with every payload; with the strongest durability with random ones only."""
        for payload in self.payloads:
            yield from self.run(arena, payload, False)
        for payload in self.payloads if self.on_disk else ():
            if not payload.text:
                yield from self.run(arena, payload, True)


def warm(arena: Arena) -> None:
    """Let every library work for half a minute, unmeasured, so that both servers compile."""
    payload = PAYLOADS[0]
    with arena.logs(payload, on_disk=False) as logs:
        for library, log in logs:
            values = _share(library, _values(arena, payload))
            ends_s = time.monotonic() + WARM_S * arena.bench.scale
            while time.monotonic() < ends_s:
                log.put_batches(values)
                log.put_each(values)
                for value in values[:100]:
                    log.put_one(value)
                log.read_last()
                log.read(len(values))


def produce(arena: Arena, payload: Payload, on_disk: bool) -> Iterator[Comparison]:
    """Batches."""
    with arena.logs(payload, on_disk=on_disk) as logs:
        values = _values(arena, payload)
        runs = {_named(library): _rate(library, log.put_batches, values) for library, log in logs}
        runs[COLUMNS] = rate(partial(logs[0][1].put_columns, values))
        figures = compare(runs, arena.bench.rounds)
    aims = goals.batch_goals(payload)
    yield from _against(_title(payload, on_disk), "msg/s", figures, aims)


def produce_each(arena: Arena, payload: Payload, on_disk: bool) -> Iterator[Comparison]:
    """One by one through a buffer."""
    with arena.logs(payload, on_disk=on_disk) as logs:
        values = _values(arena, payload)
        runs = {_named(library): _rate(library, log.put_each, values) for library, log in logs}
        figures = compare(runs, arena.bench.rounds)
    yield from _against(_title(payload, on_disk), "msg/s", figures, {MESSAGES: goals.EACH})


def produce_one(arena: Arena, payload: Payload, on_disk: bool) -> Iterator[Comparison]:
    """One message, and wait; a round is some hundred, one after the other."""
    (value,) = payload.values(1)
    times = arena.bench.many(300)

    def median_ms(log: Log) -> float:
        took_s = []
        for _ in range(times):
            start = time.perf_counter()
            log.put_one(value)
            took_s.append(time.perf_counter() - start)
        return statistics.median(took_s) * 1e3

    with arena.logs(payload, on_disk=on_disk) as logs:
        runs = {_named(library): partial(median_ms, log) for library, log in logs}
        figures = compare(runs, arena.bench.rounds)
    aims = {MESSAGES: goals.ONE}
    yield from _against(_title(payload, on_disk), "ms", figures, aims, at_most=True)


def consume(arena: Arena, payload: Payload, on_disk: bool) -> Iterator[Comparison]:
    """All that is there, from the oldest on."""
    with arena.logs(payload, on_disk=on_disk) as logs:
        values = _values(arena, payload)
        runs = {}
        for library, log in logs:
            share = _share(library, values)
            log.put_batches(share)
            runs[_named(library)] = rate(partial(log.read, len(share)))
        runs[COLUMNS] = rate(partial(logs[0][1].read_columns, len(values)))
        figures = compare(runs, arena.bench.rounds)
    aims = goals.consume_goals(payload)
    yield from _against(_title(payload, on_disk), "msg/s", figures, aims)


def keep_keys(arena: Arena, payload: Payload, _: bool) -> Iterator[Comparison]:
    """Written and read with a key and two headers."""
    values = _values(arena, payload)
    given = (arena.ours, arena.confluent, values, arena.bench.rounds, payload.name)
    yield from keyed_writes(*given)
    yield from keyed_reads(*given)


def consume_in_group(arena: Arena, payload: Payload, _: bool) -> Iterator[Comparison]:
    """All that is there, by the consumers of a group."""
    ours, theirs = arena.ours.fresh(GROUP_PARTITIONS), arena.confluent.fresh(GROUP_PARTITIONS)
    try:
        values = _values(arena, payload)
        share = values[: max(1, len(values) // GROUP_PARTITIONS)]
        for log in (ours, theirs):
            for batch in batches(share, A_BATCH):
                # Each batch goes to the next partition: so all get as many messages.
                for _turn in range(GROUP_TIMES * GROUP_PARTITIONS):
                    log.put_batches(batch)
        count = len(share) * GROUP_TIMES * GROUP_PARTITIONS
        tasks: dict[str, dict[str, object]] = {
            MESSAGES: {
                "library": HQUEUE,
                "name": ours.name,
                "zookeeper": arena.bench.client.settings.zookeeper,
            },
            arena.confluent.name: {
                "library": CONFLUENT,
                "name": theirs.name,
                "address": arena.confluent.address,
            },
        }
        runs = {
            name: partial(group_rate, count, GROUP_PARTITIONS, task) for name, task in tasks.items()
        }
        figures = compare(runs, arena.bench.rounds)
    finally:
        ours.close()
        theirs.close()
    yield from _against(_title(payload, False), "msg/s", figures, {MESSAGES: 1})


def work_in_a_loop(arena: Arena, payload: Payload, _: bool) -> Iterator[Comparison]:
    """The same by an event loop."""
    yield from loops(arena.bench, arena.ours, arena.confluent.address, payload)


def deliver(arena: Arena, payload: Payload, on_disk: bool) -> Iterator[Comparison]:
    """From the call that publishes to the handler, at a fixed rate."""
    number = arena.bench.many(5 * RATE_PER_S)
    figures: Mapping[str, dict[str, list[float]]] = {"p50": {}, "p99": {}, "p99.9": {}}
    with arena.logs(payload, on_disk=on_disk) as logs, contextlib.ExitStack() as stack:
        rounds = {}
        for library, log in logs:
            took_ms: list[float] = []

            def handle(values: Iterable[bytes], took_ms: list[float] = took_ms) -> None:
                now_ns = time.perf_counter_ns()
                took_ms.extend((now_ns - int(value)) / 1e6 for value in values)

            send = stack.enter_context(log.deliver(handle))
            rounds[_named(library)] = partial(_latencies, send, took_ms, number)
        for round_number in range(-1, arena.bench.rounds):
            for name, run in rounds.items():
                centiles = run()
                if round_number >= 0:
                    for what, at in (("p50", 499), ("p99", 989), ("p99.9", 998)):
                        figures[what].setdefault(name, []).append(centiles[at])
    for what, found in figures.items():
        title = f"{what}{', on disk' if on_disk else ''}"
        frozen = {name: tuple(values) for name, values in found.items()}
        aim = goals.DELIVERED_MEDIAN if what == "p50" else goals.DELIVERED_TAIL
        yield from _against(title, "ms", frozen, {MESSAGES: aim}, at_most=True)


def read_into_spark(arena: Arena, payload: Payload, _: bool) -> Iterator[Comparison]:
    """Count and sum of lengths, in the Spark that Kafka's source is available for."""
    if not SPARK_PYTHON.exists():
        raise FileNotFoundError(f"{SPARK_PYTHON}: `make bench-kafka` installs it")
    number = arena.bench.many(SPARK_MESSAGES)
    some = payload.values(min(number, 200_000))
    ours, theirs = arena.ours.fresh(), arena.confluent.fresh()
    try:
        for left in range(number, 0, -len(some)):
            ours.put_batches(some[:left])
            theirs.put_batches(some[:left])
        jars = ensure_jars(SOURCE_JARS)
        reads = {
            "queue": ours.name,
            "zookeeper": arena.bench.client.settings.zookeeper,
            "topic": theirs.name,
            "broker": arena.confluent.address,
            "jars": ",".join(map(str, sorted(jars.glob("*.jar")))),
            "messages": number,
            "bytes": payload.size,
            "rounds": arena.bench.rounds,
        }
        program = [str(SPARK_PYTHON), "-m", f"{__package__}.spark_read", json.dumps(reads)]
        done = subprocess.run(program, check=True, stdout=subprocess.PIPE, timeout=SPARK_S_MAX)
    finally:
        ours.close()
        theirs.close()
    figures = {name: tuple(rates) for name, rates in json.loads(done.stdout).items()}
    aims = {name: goals.SPARK for name in figures if name.startswith("hqueue")}
    yield from _against(_title(payload, False), "msg/s", figures, aims)


def _latencies(
    send: Callable[[bytes], object], took_ms: list[float], number: int
) -> Sequence[float]:
    took_ms.clear()
    publish(send, number)
    await_condition(lambda: len(took_ms) >= number)
    return statistics.quantiles(took_ms, n=1_000, method="inclusive")


def _named(library: Library) -> str:
    return MESSAGES if library.name == "hqueue" else library.name


def _title(payload: Payload, on_disk: bool) -> str:
    return f"{payload.name}{', on disk' if on_disk else ''}"


def _values(arena: Arena, payload: Payload) -> list[bytes]:
    return payload.values(arena.bench.many(payload.messages))


def _share(library: Library, values: Sequence[bytes]) -> Sequence[bytes]:
    return values[: max(1, int(len(values) * library.share))]


def _rate(
    library: Library, work: Callable[[Sequence[bytes]], int], values: Sequence[bytes]
) -> Callable[[], float]:
    return rate(partial(work, _share(library, values)))


def _against(
    title: str, unit: str, figures: Figures, aims: Mapping[str, float], *, at_most: bool = False
) -> Iterator[Comparison]:
    """Each contender, with its goal, against each of the others."""
    for contender, goal in aims.items():
        for rival in figures:
            if rival not in aims:
                of_python = 1 / PYTHON_GOAL if at_most else PYTHON_GOAL
                yield Comparison(
                    title, contender, rival, unit, figures[contender], figures[rival],
                    of_python if rival == PYTHON else goal, at_most,
                )  # fmt: skip


CASES: Mapping[str, Case] = {
    "produce": Case(
        "Produce batches",
        "A program has many values and writes them in batches of 10,000, or of 2 MB, with a "
        "`flush` at the end. hqueue: `Producer.send_batch` with `Messages`, or with a record "
        "batch. confluent-kafka: `produce_batch`. kafka-python has no batches: `send`. The time "
        "includes making the messages from the values.",
        produce,
    ),
    "each": Case(
        "Produce message by message, through a buffer",
        "hqueue: `Producer.send_value`. confluent-kafka: `produce`. kafka-python: `send`. Each "
        "calls `flush` at the end, and has a linger time of 5 ms.",
        produce_each,
    ),
    "one": Case(
        "One message, and wait until it is durable",
        "The median of 300 messages in each round, one after the other. Kafka's `linger.ms` is 0.",
        produce_one,
    ),
    "consume": Case(
        "Consume from the oldest message on",
        "The program looks at every value. hqueue: as `Message` objects or as Arrow batches. "
        "confluent-kafka: with `consume`, 10,000 messages a call. kafka-python: with `poll`. "
        "Kafka's consumers connect before the clock starts.",
        consume,
        on_disk=False,
    ),
    "keyed": Case(
        "Keys and headers",
        "Each message has a key and two headers, 66 bytes together. Writing: hqueue calls "
        "`send_batch` with 10,000 `Messages`, or with record batches that were made before the "
        "clock started; confluent-kafka calls `produce`, because its batches have no headers. "
        "Reading: as in the case above, and the program looks at keys and headers, too. Other "
        "rows show the same values without keys and headers.",
        keep_keys,
        FEW_PAYLOADS,
        on_disk=False,
    ),
    "group": Case(
        f"Consume in a group of {CONSUMERS}",
        f"{CONSUMERS} processes share {GROUP_PARTITIONS} partitions, read them from the oldest "
        "message on, and look at each value. hqueue: iterating a `Consumer`. confluent-kafka: "
        "`consume`, 10,000 messages a call. The processes join their group before the clock "
        "starts. A round lasts until the slower process has read its last message.",
        consume_in_group,
        FEW_PAYLOADS,
        on_disk=False,
    ),
    "asyncio": Case(
        "In an event loop",
        "One loop calls `hqueue.aio`, aiokafka and `confluent_kafka.aio`. Batches: hqueue and "
        "aiokafka have `send_batch`; confluent-kafka's asyncio producer has none, so it calls "
        "`produce`. One by one: `send`, and `flush` at the end. 1,000 puts at once: a task for "
        "each message, which waits for its acknowledgement. One message: the median of 300, one "
        "after the other. Other rows compare with the blocking calls of hqueue.",
        work_in_a_loop,
        FEW_PAYLOADS,
        on_disk=False,
    ),
    "latency": Case(
        f"From publishing to the handler, {RATE_PER_S:,} messages a second",
        "One process is both publisher and handler. hqueue: a `Producer` without lingering, a "
        "worker that pushes, and a subscriber's listener. Kafka: a producer without lingering, "
        "and a loop that polls as a member of a group.",
        deliver,
        PAYLOADS[:1],
    ),
    "spark": Case(
        "Read into Spark",
        f"Spark counts {SPARK_MESSAGES:,} messages and sums up their lengths on two cores: "
        'by `spark.read.format("hqueue")`, by this package\'s own `read`, and by `format("kafka")`.'
        " All run on PySpark 4.0, because Kafka's source is not available here for later versions.",
        read_into_spark,
        PAYLOADS[:2],
        on_disk=False,
    ),
}
