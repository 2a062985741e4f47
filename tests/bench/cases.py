"""What is measured."""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import happybase
import pyarrow as pa

import hqueue
from hqueue import GatewayAddress, Message, Messages, Queue, Settings
from hqueue.settings.connection import NATIVE

from .bare import BarePuts, one_message_rows, scan_rows
from .measure import Comparison, compare, interleave, rate

__all__ = ["CASES", "Bench"]

VALUE_BYTES = 100


class Bench:
    """A client with queues for the benchmarks, and how much to do.

    Args:
        client: the client: natively, as is every other process that is measured.
        gateway: a gateway of the same HBase, for rivals, if it has one.
        rounds: measured rounds of each comparison.
        scale: 1 for the full amount of work; less for a quick look.
    """

    def __init__(
        self, client: hqueue.Client, gateway: GatewayAddress | None, rounds: int, scale: float
    ) -> None:
        self.client = client
        self.gateways: tuple[GatewayAddress, ...] = () if gateway is None else (gateway,)
        self.rounds = rounds
        self.scale = scale

    def happybase(self) -> happybase.Connection:
        """A new connection to the gateway, which ends one that is idle for a minute."""
        (gateway,) = self.gateways
        return happybase.Connection(gateway.host, gateway.thrift1_port)

    def messages(self, number: int) -> list[Message]:
        """Messages of one topic, each with a value of its own."""
        return [Message("topic", os.urandom(VALUE_BYTES)) for _ in range(number)]

    def queue(self, name: str, partitions: int = 4, **attributes: object) -> Queue:
        """A fresh queue."""
        name = f"bench-{name}"
        if any(d.name == name for d in self.client.list_queues()):
            self.client.disable_queue(name)
            self.client.delete_queue(name)
        return self.client.create_queue(name, partitions=partitions, **attributes)

    def settings(self, hbase: str = NATIVE, **given: object) -> Settings:
        """The settings of another client, by this way to HBase."""
        zookeeper = self.client.settings.zookeeper
        return Settings(hbase=hbase, gateways=self.gateways, zookeeper=zookeeper, **given)  # type: ignore[arg-type]

    def environment(self, hbase: str = NATIVE, **given: object) -> dict[str, str]:
        """The environment of a process of its own, which finds HBase by this way."""
        settings = {
            "hbase": hbase,
            "gateways": ",".join(map(str, self.gateways)),
            "zookeeper": self.client.settings.zookeeper,
            **given,
        }
        return {
            **os.environ,
            **{f"HQUEUE_{name.upper()}": str(value) for name, value in settings.items()},
        }

    def rows_table(self, name: str) -> str:
        """A fresh table for a row a message."""
        name = f"bench-rows-{name}"
        with contextlib.closing(self.happybase()) as connection:
            if name.encode() in connection.tables():
                connection.delete_table(name, disable=True)
            connection.create_table(name, {"m": {"max_versions": 1}})
        return name

    def many(self, number: int) -> int:
        """An amount of work, scaled."""
        return max(1, int(number * self.scale))


def append(bench: Bench) -> Iterator[Comparison]:
    """Batches from one process, against the bare puts and against a row a message."""
    for a_batch, batches in ((1_000, 150), (10_000, 40)):
        queue = bench.queue(f"append-{a_batch}")
        messages = bench.messages(a_batch)
        values = [message.value for message in messages]
        columns = pa.record_batch([["topic"] * a_batch, values], names=["topic", "value"])
        times = bench.many(batches)
        bare = BarePuts(bench.client.settings, queue.name, partition=1)
        table = bench.rows_table(f"append-{a_batch}")
        figures = interleave(
            {
                "messages": partial(queue.put, messages, partition=0),
                "values": partial(queue.put, Messages("topic", values), partition=3),
                "bare": bare.send,
                "columns": partial(queue.put, columns, partition=2),
                "rows": partial(one_message_rows, bench.happybase(), table, messages),
            },
            times=times,
            rounds=bench.rounds,
            prepare=partial(bare.build, messages, times),
            figure=partial(_rate, a_batch),
        )
        title = f"append, {a_batch:,} messages a batch"
        for contender, name in (
            ("Queue.put, Messages", "values"),
            ("Queue.put, a list of Message", "messages"),
            ("Queue.put, a record batch", "columns"),
        ):
            yield Comparison(
                title, contender, "bare conditional puts", "msg/s",
                figures[name], figures["bare"], 0.9,
            )  # fmt: skip
            yield Comparison(
                title, contender, "happybase, a row a message", "msg/s",
                figures[name], figures["rows"], 4,
            )  # fmt: skip


def append_prefetched(bench: Bench) -> Iterator[Comparison]:
    """Batches from one process that does not wait for each, against the bare puts."""
    for a_batch, batches in ((1_000, 400), (10_000, 60)):
        queue = bench.queue(f"ahead-{a_batch}")
        beside = bench.queue(f"ahead-bare-{a_batch}")
        bare = BarePuts(bench.client.settings, beside.name, partition=0)
        messages = bench.messages(a_batch)
        batch = Messages("topic", [message.value for message in messages])
        times = bench.many(batches)
        figures = compare(
            {
                "ahead": rate(partial(_send_batches, queue, batch, times)),
                "bare": partial(_send_bare, bare, messages, times),
            },
            bench.rounds,
        )
        yield Comparison(
            f"append, {a_batch:,} messages a batch", "Producer.send_batch", "bare conditional puts",
            "msg/s", figures["ahead"], figures["bare"], 0.9,
        )  # fmt: skip


def _send_batches(queue: Queue, batch: Messages, times: int) -> int:
    with queue.producer() as sender:
        sent = [sender.send_batch(batch) for _ in range(times)]
    for delivery in sent:
        delivery.result()
    return times * len(batch)


def _send_bare(bare: BarePuts, messages: Sequence[Message], times: int) -> float:
    bare.build(messages, times)
    start = time.perf_counter()
    for _ in range(times):
        bare.send()
    return times * len(messages) / (time.perf_counter() - start)


def _rate(messages: int, seconds: Sequence[float]) -> float:
    return messages * len(seconds) / sum(seconds)


def scan(bench: Bench) -> Iterator[Comparison]:
    """Reading a partition, as messages and as Arrow, against a row a message."""
    queue = bench.queue("scan", partitions=1)
    batches = bench.many(200)
    written = bench.messages(10_000)
    for _ in range(batches):
        queue.put(written)
    table = bench.rows_table("scan")
    connection = bench.happybase()
    for _ in range(bench.many(60)):
        one_message_rows(connection, table, written[:5_000])

    def messages() -> int:
        with queue.scan(partition=0) as scanner:
            return sum(1 for _ in scanner)

    def arrow() -> int:
        with queue.scan(partition=0) as scanner:
            return sum(batch.num_rows for batch in scanner.arrow_batches())

    def rows() -> int:
        return sum(1 for _ in scan_rows(connection, table, 5_000))

    figures = compare(
        {"messages": rate(messages), "arrow": rate(arrow), "rows": rate(rows)}, bench.rounds
    )
    title = "scan, written as 10,000 a batch"
    rival = "happybase scan, a row a message, 5,000 a call"
    yield Comparison(title, "messages", rival, "msg/s", figures["messages"], figures["rows"], 3)
    yield Comparison(title, "Arrow", rival, "msg/s", figures["arrow"], figures["rows"], 10)


def one_message(bench: Bench) -> Iterator[Comparison]:
    """The latency of putting one message, against one bare conditional put."""
    queue = bench.queue("one")
    message = bench.messages(1)[0]
    bare = BarePuts(bench.client.settings, queue.name, partition=1)
    times = bench.many(2_000)
    figures = interleave(
        {"put": partial(queue.put, message, partition=0), "bare": bare.send},
        times=times,
        rounds=bench.rounds,
        prepare=partial(bare.build, [message], times),
        figure=lambda seconds: statistics.median(seconds) * 1e3,
    )
    yield Comparison(
        "one message, p50", "Queue.put", "bare conditional put", "ms",
        figures["put"], figures["bare"], 1.3, at_most=True,
    )  # fmt: skip


def producer(bench: Bench) -> Iterator[Comparison]:
    """Message by message through a `Producer`, against bare puts of as many a batch."""
    queue = bench.queue("producer")
    bare = BarePuts(bench.client.settings, bench.queue("producer-bare").name, partition=0)
    messages = bench.messages(10_000)
    values = [message.value for message in messages]
    batches = bench.many(60)

    def send() -> int:
        with queue.producer() as sender:
            for _ in range(batches):
                for message in messages:
                    last = sender.send(message)
        last.result()
        return batches * len(messages)

    def send_value() -> int:
        with queue.producer() as sender:
            for _ in range(batches):
                for value in values:
                    last = sender.send_value("topic", value)
        last.result()
        return batches * len(messages)

    contenders = {"send": rate(send), "send_value": rate(send_value)}
    bare_puts = partial(_send_bare, bare, messages, batches)
    figures = compare({**contenders, "bare": bare_puts}, bench.rounds)
    goal = min(0.7, 200_000 / statistics.median(figures["bare"]))
    for name in contenders:
        yield Comparison(
            "message by message", f"Producer.{name}", "bare conditional puts, 10,000 a batch",
            "msg/s", figures[name], figures["bare"], goal,
        )  # fmt: skip


def memory(bench: Bench) -> Iterator[Comparison]:
    """The peak of a process that scans or produces a small amount, and ten times as much."""
    queue = bench.queue("memory", partitions=1)
    small, large = bench.many(20), bench.many(200)

    def peak(program: str, batches: int) -> float:
        code = _MEMORY.format(queue=queue.name, batches=batches, program=program)
        done = subprocess.run(
            [sys.executable, "-c", code],
            check=True, stdout=subprocess.PIPE, text=True, timeout=300,
            env=bench.environment(),
        )  # fmt: skip
        return float(done.stdout)

    for title, program in (("a producer's memory", _SEND), ("a scan's memory", _SCAN)):
        figures = [(peak(program, large), peak(program, small)) for _ in range(3)]
        yield Comparison(
            title, f"{large * 1_000_000:,} bytes", f"{small * 1_000_000:,} bytes", "MiB",
            tuple(f[0] for f in figures), tuple(f[1] for f in figures), 1.2, at_most=True,
        )  # fmt: skip


_MEMORY = """
import hqueue
queue = hqueue.connect().queue({queue!r})
message = hqueue.Message("topic", bytes(100))
batches = {batches}
{program}
# Not ru_maxrss: a process begins with its parent's there.
with open("/proc/self/status") as status:
    peak = next(line for line in status if line.startswith("VmHWM:"))
print(int(peak.split()[1]) / 1024)
"""
_SEND = """
with queue.producer(buffer_bytes_max=8 * 1024 * 1024) as producer:
    for _ in range(batches * 10_000):
        producer.send(message)
"""
_SCAN = """
import itertools
for _ in itertools.islice(queue.scan(), batches * 10_000):
    pass
"""

CASES: dict[str, Callable[[Bench], Iterator[Comparison]]] = {
    case.__name__: case for case in (append, append_prefetched, scan, one_message, producer, memory)
}
