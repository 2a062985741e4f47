"""Workers whole, over memory: who serves what when one comes, goes, or loses its session."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import urllib.request
from collections.abc import Callable, Iterator

import pytest

import hqueue
from hqueue import Message, Subscription
from hqueue.cli.app import _log_to_stderr
from hqueue.runtime.clock import SYSTEM_CLOCK
from hqueue_workers import Worker, WorkerSettings
from tests.integration.pushing import Received, Stuck, WorkerThread, put_numbers
from tests.support.apache_thrift import ApacheClient, apache_module
from tests.support.backends import MemoryBackend
from tests.support.unreadable import BAD, put_unreadable
from tests.support.waiting import wait_for

API = apache_module()
Start = Callable[..., WorkerThread]


@pytest.fixture
def cluster() -> MemoryBackend:
    return MemoryBackend(SYSTEM_CLOCK).apart(session_timeout_ms=500)


@pytest.fixture
def queue(cluster: MemoryBackend) -> Iterator[hqueue.Queue]:
    with cluster.connect(notify_workers=True) as client:
        yield client.create_queue("q", partitions=2)


@pytest.fixture
def start_worker(cluster: MemoryBackend) -> Iterator[Start]:
    with contextlib.ExitStack() as started:

        def start(**settings: object) -> WorkerThread:
            client = started.enter_context(cluster.connect(notify_workers=True))
            return started.enter_context(WorkerThread(client, checkpoint_ms=20, **settings))

        yield start


def test_one_whose_session_ended_sends_nothing_more_until_it_has_another(
    queue: hqueue.Queue, start_worker: Start
) -> None:
    first = start_worker()
    got = Received()
    with queue.subscriber(Subscription("s"), got):
        values = put_numbers(queue, range(20))
        got.await_values(values)
        session = first.client.coordination.store
        session.suspend()  # type: ignore[attr-defined]
        second = start_worker()
        wait_for(lambda: second.owns(queue) == {0, 1}, "the second took over")
        more = put_numbers(queue, range(20, 40))
        got.await_values(more)
        session.resume()  # type: ignore[attr-defined]
        wait_for(lambda: len(first.owns(queue)) == 1, "they share the partitions")
        assert second.terminate() == 0
        wait_for(lambda: first.owns(queue) == {0, 1}, "the first has them again")
        last = put_numbers(queue, range(40, 60))
        got.await_values(last)
    got.check_order()
    assert set(got.values) == {*values, *more, *last}


def test_one_that_ends_leaves_nothing_behind_and_what_it_delivered_does_not_come_again(
    cluster: MemoryBackend, queue: hqueue.Queue, start_worker: Start
) -> None:
    got = Received()
    with queue.subscriber(Subscription("s"), got), cluster.connect() as looking:
        for first in range(0, 50, 10):
            worker = start_worker()
            values = put_numbers(queue, range(first, first + 10))
            got.await_values(values)
            assert worker.terminate() == 0
            assert looking.coordination.workers.list() == {}
            assert looking.coordination.owners.list() == {}
    assert sorted(map(int, got.values)) == list(range(50))


@pytest.mark.parametrize(("topics", "wanted"), [((), b"a b a b last"), (("b",), b"b b last")])
def test_one_who_comes_while_another_is_stuck_misses_nothing_of_its_own_topics(
    queue: hqueue.Queue, start_worker: Start, topics: tuple[str, ...], wanted: bytes
) -> None:
    start_worker()
    for topic in "abab":
        queue.put(Message(topic, topic.encode()), partition=0)
    stuck, late = Stuck(), Received()
    with queue.subscriber(Subscription("stuck", topics=["a"]), stuck):
        wait_for(lambda: stuck.calls, "what it wants was read")
        with queue.subscriber(Subscription("late", topics=topics), late):
            queue.put(Message("b", b"last"), partition=0)
            late.await_values([b"last"])
            stuck.released.set()
            stuck.await_values([b"a"])
    assert b" ".join(late.values) == wanted


def test_its_health_and_its_metrics_say_what_it_does(
    queue: hqueue.Queue, start_worker: Start
) -> None:
    port = free_port()
    worker = start_worker(metrics_port=port)
    got = Received()
    with queue.subscriber(Subscription("s"), got):
        got.await_values(put_numbers(queue, range(10)))
        health = json.loads(page(port, "health"))
        assert health == {"status": "delivering", "partitions": 2, "deliveries": 2}
        metrics = page(port, "metrics").decode()
        assert 'queue="q"' in metrics
    assert worker.terminate() == 0
    with pytest.raises(OSError, match="refused"):
        page(port, "health")


def test_its_metrics_say_what_it_passed_by(queue: hqueue.Queue, start_worker: Start) -> None:
    port = free_port()
    start_worker(metrics_port=port)
    row = put_unreadable(queue, [Message("t", b"", None, [(BAD, b"")])] * 3, partition=1)
    queue.skipped_batches.add(row)
    got = Received()
    with queue.subscriber(Subscription("s"), got):
        queue.put(Message("t", b"behind"), partition=1)
        got.await_values([b"behind"])
    metrics = page(port, "metrics").decode()
    assert 'hqueue_skipped_messages_total{partition="1",queue="q"} 3.0' in metrics


def test_the_api_alone_needs_no_zookeeper_and_shows_its_calls(
    cluster: MemoryBackend, queue: hqueue.Queue
) -> None:
    port = free_port()
    with cluster.connect() as client:
        client.coordination.store.suspend()  # type: ignore[attr-defined]
        with WorkerThread(client, push=False, api_port=0, metrics_port=port) as worker:
            host, served = worker.api_address()
            with ApacheClient(host, served) as caller:
                caller.putMessage("q", API.TMessage(topic=b"t", value=b"v"))
                caller.messageScannerOpen("q", 0, API.TMessageScan())
                with pytest.raises(API.TIllegalArgument):
                    caller.messageScannerOpen("q", 2, API.TMessageScan())
                health = json.loads(page(port, "health"))
                assert health == {"status": "serving", "api": f"{host}:{served}", "scanners": 1}
                metrics = page(port, "metrics").decode()
            with cluster.connect() as looking:
                assert looking.coordination.workers.list() == {}
    for line in (
        'hqueue_api_calls_total{method="putMessage",result="ok"} 1.0',
        'hqueue_api_calls_total{method="messageScannerOpen",result="illegal_argument"} 1.0',
        'hqueue_api_call_seconds_count{method="messageScannerOpen"} 2.0',
        "hqueue_api_scanners 1.0",
        "hqueue_api_scanners_expired_total 0.0",
    ):
        assert line in metrics
    with pytest.raises(ConnectionRefusedError), socket.create_connection((host, served), 10):
        pass


def test_the_apis_port_that_is_taken_is_an_error_that_names_the_settings(
    cluster: MemoryBackend,
) -> None:
    async def run(taken: int) -> None:
        with cluster.connect() as client:
            settings = WorkerSettings(push=False, api_port=taken, metrics_port=0)
            await Worker(client, settings).run(asyncio.Event())

    with (
        contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken,
        pytest.raises(hqueue.SettingsError) as raised,
    ):
        asyncio.run(run(taken.getsockname()[1]))
    assert "api_port" in raised.value.text


def free_port() -> int:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as probe:
        return int(probe.getsockname()[1])


def page(port: int, name: str) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{name}", timeout=20) as answer:
        return bytes(answer.read())


def test_a_worker_says_when_it_is_ready_and_where(
    start_worker: Start, caplog: pytest.LogCaptureFixture
) -> None:
    logger = "hqueue_workers.ready"
    caplog.set_level("INFO", logger)
    started = start_worker(api_port=0)
    said = wait_for(
        lambda: (
            len(lines := [e.getMessage() for e in caplog.records if e.name == logger]) == 2
            and lines
        ),
        "it is ready",
    )
    assert said[0].startswith("the Thrift API is served at ")
    assert said[1].startswith(
        f"worker {started.name} is ready; it takes notifications at 127.0.0.1:"
    )


def test_the_command_line_shows_that_a_role_is_ready_but_no_other_information() -> None:
    names = ("hqueue_workers.ready", "hqueue_workers", "hqueue")
    _log_to_stderr(0)
    shown = [logging.getLogger(name).isEnabledFor(logging.INFO) for name in names]
    assert shown == [True, False, False]
