"""A process has worked when it has put, got or served a message, not when it has tried."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter, start_http_server

from .record_files import RecordFile
from .working import SERVING, has_worked


def test_an_outcome_counts_only_if_the_put_succeeded(tmp_path: Path) -> None:
    assert not has_worked(tmp_path, "producer", "single-1", 0)
    file = RecordFile(tmp_path / "single-1.producer.jsonl")
    file.write("invoke", 0, ["a"])
    file.write("complete", 0, "fail", [], 1.0, "")
    assert not has_worked(tmp_path, "producer", "single-1", 0)
    file.write("complete", 1, "ok", [7], 1.0, "")
    assert has_worked(tmp_path, "producer", "single-1", 0)


@pytest.mark.parametrize("record", ["read", "handed", "delivered", "given"])
def test_one_that_reads_has_worked_when_it_got_a_message(tmp_path: Path, record: str) -> None:
    file = RecordFile(tmp_path / "start-1.reader.jsonl")
    file.write("view", [])
    assert not has_worked(tmp_path, "reader", "start-1", 0)
    file.write(record, 1.0, [])
    assert has_worked(tmp_path, "reader", "start-1", 0)


@pytest.mark.parametrize("kind", SERVING)
def test_one_that_serves_has_worked_when_it_counts_a_message(tmp_path: Path, kind: str) -> None:
    registry = CollectorRegistry()
    counter = Counter(SERVING[kind][0].removesuffix("_total"), "-", ("queue",), registry=registry)
    Counter("hqueue_retried_messages", "-", registry=registry).inc()
    server, thread = start_http_server(0, "127.0.0.1", registry)
    try:
        port = server.server_port
        assert not has_worked(tmp_path, kind, "first-1", port)
        counter.labels("q").inc(0)
        assert not has_worked(tmp_path, kind, "first-1", port)
        counter.labels("q").inc(3)
        assert has_worked(tmp_path, kind, "first-1", port)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_one_whose_metrics_do_not_answer_has_not_worked(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        assert not has_worked(tmp_path, "hub", "left-1", free.getsockname()[1])
