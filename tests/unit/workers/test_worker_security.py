"""A worker with certificates on both sides, over memory: whom it calls, and who may call it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import socket
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

import hqueue
from hqueue import Subscription
from hqueue.errors import UnsupportedFormatError
from hqueue.metadata.access_rules import AccessRule, Operation
from hqueue.metadata.ports import NEW, Change
from hqueue.net.contexts import TlsContexts
from hqueue.net.tls_files import TlsFiles
from hqueue.push.append_notifier import WORKER_SERVICE
from hqueue.rpc.connection import Connection
from hqueue.rpc.messages import encode_call
from hqueue_workers.delivery.queues import OpenQueues
from hqueue_workers.node.settings import WorkerSettings
from hqueue_workers.worker import Worker
from tests.integration.pushing import Received, WorkerThread, put_numbers
from tests.support.backends import MemoryBackend
from tests.support.certificates import Certificates
from tests.support.subscriber_faces import LoopedSubscriber
from tests.support.waiting import wait_for


class Scene:
    """A worker, and clients of one store."""

    def __init__(self, stack: contextlib.ExitStack, certificates: Certificates) -> None:
        self.stack = stack
        self.certificates = certificates
        self.backend = MemoryBackend().apart(2_000)
        self.metrics_port = 0
        looked_for = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.zookeeper = f"127.0.0.1:{looked_for.getsockname()[1]}"
        """Producers see first whether anything listens there."""

    def connect(self, name: str, **settings: Any) -> hqueue.Client:
        own = {"delivery_principals": "worker", "zookeeper": self.zookeeper, **settings}
        given = {**self.certificates.of(name), **own}
        return self.stack.enter_context(self.backend.connect(notify_workers=True, **given))

    def worker(self, **settings: Any) -> WorkerThread:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.metrics_port = free.getsockname()[1]
        given = {"checkpoint_ms": 20, "metrics_port": self.metrics_port, **settings}
        return self.stack.enter_context(WorkerThread(self.connect("worker"), **given))

    def metrics(self) -> str:
        context = self.context("prometheus")
        url = f"https://127.0.0.1:{self.metrics_port}/metrics"
        with urllib.request.urlopen(url, timeout=20, context=context.current()) as answer:
            return str(answer.read().decode())

    def context(self, name: str) -> TlsContexts:
        found = self.certificates.of(name)
        return TlsContexts(TlsFiles(found["tls_ca"], found["tls_certificate"]))


@pytest.fixture
def scene(certificates: Certificates) -> Iterator[Scene]:
    with contextlib.ExitStack() as stack:
        yield Scene(stack, certificates)


@pytest.mark.parametrize("in_loop", [False, True], ids=["threads", "asyncio"])
def test_a_worker_delivers_to_a_subscriber_and_is_notified_by_producers(
    scene: Scene, in_loop: bool
) -> None:
    client = scene.connect("billing")
    queue = client.create_queue("q", partitions=2)
    scene.worker(poll_ms_max=60_000)
    got, subscription = Received(), Subscription("billing")
    with (
        LoopedSubscriber(client, "q", subscription, got, host="127.0.0.1")
        if in_loop
        else queue.subscriber(subscription, got, host="127.0.0.1")
    ):
        got.await_values(put_numbers(queue, range(20)))

        def is_notified() -> bool:  # From the first append on, once there is a connection.
            put_numbers(queue, range(20, 22))
            return 'hqueue_append_notifications_total{authenticated="yes"' in scene.metrics()

        wait_for(is_notified, "batches come along")
        wait_for(
            lambda: got.values.count(b"21") >= 1, "what nobody notified of would take a minute"
        )
    assert 'hqueue_refused_connections_total{port="notifications"' not in scene.metrics()


@pytest.mark.parametrize("in_loop", [False, True], ids=["threads", "asyncio"])
@pytest.mark.parametrize(
    ("worker_mode", "mode"),
    [
        ("off", "optional"),
        ("optional", "off"),
        ("optional", "optional"),
        ("optional", "required"),
        ("required", "optional"),
    ],
)
def test_a_worker_and_programs_that_are_a_step_apart_on_the_way_to_tls_serve_each_other(
    scene: Scene, in_loop: bool, worker_mode: str, mode: str
) -> None:
    def given(mode: str) -> dict[str, Any]:
        if mode == "off":
            return {"tls": False, "tls_ca": None, "tls_certificate": None}
        believed = "worker,anonymous" if mode == "optional" else "worker"
        return {"tls_optional": mode == "optional", "delivery_principals": believed}

    client = scene.connect("billing", **given(mode))
    queue = client.create_queue("q", partitions=1)
    worker = WorkerThread(
        scene.connect("worker", **given(worker_mode)),
        checkpoint_ms=20,
        metrics_port=0,
        poll_ms_max=60_000,
    )
    got, subscription = Received(), Subscription("billing")
    with (
        worker,
        LoopedSubscriber(client, "q", subscription, got, host="127.0.0.1")
        if in_loop
        else queue.subscriber(subscription, got, host="127.0.0.1"),
    ):
        got.await_values(put_numbers(queue, range(20)))

        def is_notified() -> bool:
            put_numbers(queue, range(20, 22))
            return got.values.count(b"21") >= 1

        wait_for(is_notified, "what nobody notified of would take a minute")


def test_a_subscriber_takes_messages_of_workers_alone(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    queue = scene.connect("billing", delivery_principals="another-*").create_queue(
        "q", partitions=1
    )
    scene.worker()
    got = Received()
    with (
        caplog.at_level(logging.WARNING, "hqueue.audit"),
        queue.subscriber(Subscription("billing"), got, host="127.0.0.1") as subscriber,
    ):
        put_numbers(queue, range(3))
        refused = 'who="worker" from="127.0.0.1" action="connect" port="subscriber" allowed="no"'
        wait_for(lambda: refused in caplog.text, "the worker is refused")
        assert subscriber.address is not None
        with contextlib.closing(socket.create_connection(subscriber.address, 20)) as stranger:
            stranger.sendall(b"\x80\x01\x00\x01\x00\x00\x00\x0fconsumeMessages")
            with contextlib.suppress(ConnectionError):
                while stranger.recv(100):
                    pass
        wait_for(lambda: 'who="anonymous"' in caplog.text, "the stranger is refused")
    assert not got.messages


def test_a_subscriber_that_isnt_told_whom_to_believe_does_not_start(scene: Scene) -> None:
    queue = scene.connect("billing", delivery_principals=None).create_queue("q", partitions=1)
    with pytest.raises(hqueue.SettingsError, match="name them in delivery_principals"):
        queue.subscriber(Subscription("billing"), print, host="127.0.0.1").start()


@pytest.mark.parametrize(("name", "reason"), [("loader", None), ("reader", "principal")])
def test_only_producers_notify(scene: Scene, name: str, reason: str | None) -> None:
    queue = scene.connect("loader").create_queue("q", partitions=1)
    scene.worker(notification_principals="loader")
    with queue.subscriber(Subscription("billing"), Received(), host="127.0.0.1"):
        coordination = scene.connect("loader").coordination
        address = wait_for(
            lambda: next(iter(coordination.workers.list().values()), None), "it is registered"
        ).address
        opened = Connection(WORKER_SERVICE, *address, 20, tls=scene.context(name))
        with contextlib.closing(opened) as connection:
            call = encode_call(WORKER_SERVICE, "appended", "q", [0], [])
            connection.socket.settimeout(20)
            connection.socket.write(len(call).to_bytes(4, "big") + call)
            if reason is not None:
                with pytest.raises(OSError, match=r"closed|reset"):
                    connection.socket.read(1)
    counted = f'hqueue_refused_connections_total{{port="notifications",reason="{reason}"}} 1.0'
    assert (counted in scene.metrics()) == (reason is not None)


def grant(scene: Scene, principal: str, operations: str, **scope: Any) -> None:
    rule = AccessRule(principal, frozenset(map(Operation, operations.split(","))), **scope)
    record = scene.connect("ops").coordination.access_rules
    record.change(lambda rules: rules.granted(rule))


def test_with_rules_a_worker_calls_those_alone_that_may_consume(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    grant(scene, "billing", "consume,publish", queue="q")
    grant(scene, "audit-*", "consume", queue="q", topic="t*", name="audit")
    queues = {
        name: scene.connect(name).create_queue("q", partitions=1, exist_ok=True)
        for name in ("billing", "audit-1", "thief")
    }
    scene.worker(authorizer="rules", administrators="ops")
    got = {name: Received() for name in queues}
    refused = "it has the certificate of 'thief', and no access rule allows it to consume 'q'"
    with contextlib.ExitStack() as stack:
        for name, subscription in (
            ("billing", Subscription("billing")),
            ("audit-1", Subscription("audit", topics=["t"])),
            ("thief", Subscription("thief")),
        ):
            made = queues[name].subscriber(subscription, got[name], host="127.0.0.1")
            stack.enter_context(made)
        expected = put_numbers(queues["billing"], range(20))
        got["billing"].await_values(expected)
        wait_for(lambda: refused in caplog.text, "the thief is not called")
        grant(scene, "thief", "consume", queue="q")
        got["thief"].await_values(expected)
        got["audit-1"].await_values(expected)
        rule = AccessRule("thief", frozenset({Operation.CONSUME}), "q")
        record = scene.connect("ops").coordination.access_rules
        record.change(lambda rules: rules.revoked(rule))

        def reaches(number: int) -> bool:
            value = b"%d" % number
            put_numbers(queues["billing"], [number])
            wait_for(lambda: value in got["billing"].values, "the others get it")
            return value in got["thief"].values

        numbers = itertools.count(20)
        # The call that was under way may still be made.
        wait_for(lambda: not any(reaches(next(numbers)) for _ in range(3)), "the right is gone")
        grant(scene, "thief", "consume", queue="q")
        got["thief"].await_values([b"%d" % number for number in range(next(numbers))])


def test_with_rules_only_those_notify_that_may_publish_to_the_queue(
    scene: Scene, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    notified: list[str] = []
    refused = 'who="reader" from="127.0.0.1" action="notify" queue="other"'
    monkeypatch.setattr(OpenQueues, "notify", lambda self, queue, *_: notified.append(queue))
    grant(scene, "loader", "publish", queue="q", topic="t")
    scene.worker(authorizer="rules")
    workers = scene.connect("ops").coordination.workers
    address = wait_for(lambda: next(iter(workers.list().values()), None), "it is there").address
    for name in ("reader", "loader"):
        opened = Connection(WORKER_SERVICE, *address, 20, tls=scene.context(name))
        with contextlib.closing(opened) as connection:
            connection.socket.settimeout(20)
            for queue in ("other", "q"):
                call = encode_call(WORKER_SERVICE, "appended", queue, [0], [])
                connection.socket.write(len(call).to_bytes(4, "big") + call)
            if name == "reader":
                wait_for(lambda: refused in caplog.text, "it is refused")
            else:
                wait_for(lambda: notified, "it is notified")
    assert notified == ["q"]


def test_a_worker_that_cannot_read_the_rules_does_not_start(scene: Scene) -> None:
    coordination = scene.connect("ops").coordination
    path = coordination.paths.access_rules
    coordination.store.records.write({path: Change(b"?", NEW)})
    settings = WorkerSettings(authorizer="rules", metrics_port=0)

    async def run() -> None:
        await Worker(scene.connect("worker"), settings).run(asyncio.Event())

    with pytest.raises(UnsupportedFormatError):
        asyncio.run(run())
    with pytest.raises(hqueue.SettingsError, match="authorizer must be all or rules"):
        WorkerSettings(authorizer="acl")


def test_a_client_whose_certificate_cant_be_read_is_not_made(
    scene: Scene, certificates: Certificates
) -> None:
    given = {**certificates.of("worker"), "tls_certificate": str(certificates.folder / "no.pem")}
    with pytest.raises(hqueue.SettingsError, match="tls_certificate can't be used"):
        scene.stack.enter_context(scene.backend.connect(**given))
