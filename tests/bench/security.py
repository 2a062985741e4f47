"""What Kerberos and TLS cost: at one server that takes all of them, and a hub beside a hub."""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import hqueue
from hqueue import Message, Messages, Queue, local
from hqueue.local.certificates import make_authority, make_certificate
from hqueue.local.lifecycle import PROFILES
from tests.support.secure_profile import SECURE_OR_UNPROVEN

from .cases import Bench
from .hubs import running_hub
from .measure import WARM_ROUNDS, Comparison, compare, interleave, rate
from .publishers import TOPIC, VALUE

__all__ = ["SECURITY_CASES"]

PLAIN, KERBEROS, TLS, INTEGRITY, PRIVACY = "plain", "Kerberos", "TLS", "integrity", "privacy"
"""TLS is TLS 1.3 with Kerberos in it, as the secure profile is reached; all others but plain are
Kerberos in clear, with that protection.
"""

IN_CLEAR: Mapping[str, Any] = {
    "hbase_tls": False, "tls": False, "tls_ca": None, "tls_certificate": None,
}  # fmt: skip
WAYS: Mapping[str, Mapping[str, Any]] = {
    PLAIN: {**IN_CLEAR, "hbase_authentication": "simple", "hbase_principal": "hbase/_HOST"},
    KERBEROS: {**IN_CLEAR, "hbase_protection": "authentication"},
    TLS: {"hbase_protection": "authentication"},
    INTEGRITY: {**IN_CLEAR, "hbase_protection": "integrity"},
    PRIVACY: {**IN_CLEAR, "hbase_protection": "privacy"},
}  # fmt: skip
MB = 1_000_000
VALUE_BYTES, A_BATCH, BATCHES = 1_000, 2_000, 50
GOALS = {KERBEROS: 0.95, TLS: 0.5, INTEGRITY: 0.3, PRIVACY: 0.15}
"""Of rates, where client and server share the processors: what SASL's protections take is MIT's
library's work and Java's.
"""
GOALS_MS = {KERBEROS: 0.1, TLS: 1.5, INTEGRITY: 2.5, PRIVACY: 5.0}
"""Of what each adds to the client's processor time for a megabyte."""


def hbase(bench: Bench) -> Iterator[Comparison]:
    """One message, batches and scans, over each protection."""
    with contextlib.ExitStack() as opened:
        queues = {}
        home = opened.enter_context(tempfile.TemporaryDirectory(prefix="hqueue-bench-"))
        opened.enter_context(mock.patch.dict(PROFILES, {"secure": SECURE_OR_UNPROVEN}))
        server = opened.enter_context(local.start("secure", home=home))
        for name, settings in WAYS.items():
            client = opened.enter_context(hqueue.connect(server.settings(**settings)))
            queues[name] = client.create_queue(f"bench-{name.lower()}", partitions=1)
        yield from _one(bench, queues)
        yield from _batches(bench, queues)


def _one(bench: Bench, queues: Mapping[str, Queue]) -> Iterator[Comparison]:
    message = Message("topic", bytes(100))
    figures = interleave(
        {name: partial(queue.put, message, partition=0) for name, queue in queues.items()},
        times=bench.many(300),
        rounds=bench.rounds,
        prepare=lambda: None,
        figure=lambda seconds: statistics.median(seconds) * 1e3,
    )
    for name, goal in ((KERBEROS, 1.05), (TLS, 1.15), (INTEGRITY, 1.15), (PRIVACY, 1.15)):
        yield Comparison(
            "one message, p50", name, PLAIN, "ms", figures[name], figures[PLAIN], goal,
            at_most=True,
        )  # fmt: skip


def _batches(bench: Bench, queues: Mapping[str, Queue]) -> Iterator[Comparison]:
    messages = Messages("topic", [os.urandom(VALUE_BYTES) for _ in range(A_BATCH)])
    count = bench.many(BATCHES)
    megabytes = count * A_BATCH * VALUE_BYTES / MB

    def put(queue: Queue) -> int:
        for _ in range(count):
            queue.put(messages, partition=0)
        return count * A_BATCH

    def scan(queue: Queue) -> int:
        """As many messages as one round writes: those of the first one."""
        with queue.scan(partition=0, stop=queue.id_at(0, count * A_BATCH)) as scanner:
            return sum(batch.num_rows for batch in scanner.arrow_batches())

    for title, work in {"batches": put, "scan": scan}.items():
        yield from _compared(bench, f"{title}, 1,000 bytes", queues, work, megabytes)


def _compared(
    bench: Bench,
    title: str,
    queues: Mapping[str, Queue],
    work: Callable[[Queue], int],
    megabytes: float,
) -> Iterator[Comparison]:
    """The rates, and the processor time of this process that each protection adds."""
    costs_ms: dict[str, list[float]] = {name: [] for name in queues}

    def run(name: str) -> float:
        began_s = time.process_time()
        figure = rate(lambda: work(queues[name]))()
        costs_ms[name].append((time.process_time() - began_s) * 1e3 / megabytes)
        return figure

    rates = compare({name: partial(run, name) for name in queues}, bench.rounds)
    for name, goal in GOALS.items():
        yield Comparison(title, name, PLAIN, "msg/s", rates[name], rates[PLAIN], goal)
    for name, goal_ms in GOALS_MS.items():
        pairs = zip(costs_ms[name][WARM_ROUNDS:], costs_ms[PLAIN][WARM_ROUNDS:], strict=True)
        yield Comparison(
            f"{title}: processor time that it adds to a megabyte", name, "the aim", "ms",
            tuple(one - plain for one, plain in pairs), (goal_ms,) * bench.rounds, 1.0,
            at_most=True,
        )  # fmt: skip


def hub(bench: Bench) -> Iterator[Comparison]:
    """A publish to a hub that speaks TLS, and to one that does not."""
    with contextlib.ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="hqueue-bench-")))
        make_authority(folder)
        make_certificate(folder, "bench", hosts="IP:127.0.0.1")
        tls = {"tls_ca": f"{folder}/ca.pem", "tls_certificate": f"{folder}/bench.pem"}
        steps: dict[str, Callable[[], object]] = {}
        for name, settings in {PLAIN: {}, TLS: {"tls": True, **tls}}.items():
            queue = bench.queue(f"hub-{name.lower()}")
            running = opened.enter_context(running_hub(bench, queue, **settings))
            client = hqueue.connect_hubs(running.address, queue=queue.name, **settings)
            topic = opened.enter_context(client).topic(TOPIC)
            steps[name] = partial(topic.publish, VALUE)
        figures = interleave(
            steps,
            times=bench.many(300),
            rounds=bench.rounds,
            prepare=lambda: None,
            figure=lambda seconds: statistics.median(seconds) * 1e3,
        )
    yield Comparison(
        "publish to a hub, p50", TLS, PLAIN, "ms", figures[TLS], figures[PLAIN], 1.15, at_most=True
    )


SECURITY_CASES: dict[str, Callable[[Bench], Iterator[Comparison]]] = {
    "security": hbase,
    "security-hub": hub,
}
