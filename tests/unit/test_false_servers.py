"""Callers of each of HQueue's ports, and a server there that is another than it should be: it gets
no byte of a call. HQueue's own hubs, workers and subscribers do not start as such a server.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
import re
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hqueue import Message, NotAllowedError, Outcome, SettingsError, Subscription
from hqueue.net.contexts import TlsContexts
from hqueue.net.guard import PortGuard
from hqueue.net.principals import PrincipalRules
from hqueue.net.security import PortSecurity
from hqueue.net.tls_files import TlsFiles
from hqueue.rpc.server import ThriftServer
from hqueue.rpc.services import load
from hqueue.settings.addresses import Address
from hqueue_workers import Worker, WorkerSettings
from hqueue_workers.hub.hub import Hub
from hqueue_workers.hub.settings import HubSettings
from tests.integration.pushing import Received, WorkerThread, put_numbers
from tests.support.backends import MemoryBackend
from tests.support.certificates import Certificates
from tests.support.hub_faces import connected
from tests.support.hubs import HubThread
from tests.support.secured_hubs import SecuredHubs
from tests.support.waiting import wait_for
from tests.support.watched_ports import WatchedPorts, watched

TOMORROW = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=1)
WRONG: dict[str, dict[str, Any]] = {
    "another host": {"names": "DNS:elsewhere.example"},
    "another authority": {"authority": "others"},
    "expired": {"days": -1},
    "not yet valid": {"begins": TOMORROW},
    "for clients only": {"usage": "clientAuth"},
}
"""What is wrong with the certificates of servers."""
NOT_ACCEPTED = "the server's certificate was not accepted: compare its authority with tls_ca"

both_faces = pytest.mark.parametrize("in_loop", [False, True], ids=["threads", "asyncio"])


class Of:
    """Settings of processes; those of servers with a wrong certificate."""

    def __init__(self, certificates: Certificates, wrong: str) -> None:
        self._certificates = certificates
        self._made = WRONG[wrong]
        self._file = f"false-{wrong.replace(' ', '-')}"
        certificates.authority("others")

    def good(self, name: str) -> dict[str, Any]:
        return self._certificates.of(name)

    def false(self, name: str) -> dict[str, Any]:
        return self._certificates.of(name, file=f"{self._file}-{name}", **self._made)


@pytest.fixture(params=WRONG)
def of(request: pytest.FixtureRequest, certificates: Certificates) -> Of:
    return Of(certificates, request.param)


@pytest.fixture
def no_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hubs, workers and subscribers start with any certificate, as a forger's server does."""

    def check_nothing(security: PortSecurity, host: str = "") -> None:
        """Take any certificate."""

    monkeypatch.setattr(PortSecurity, "check_shown", check_nothing)


@pytest.fixture
def seen() -> Iterator[WatchedPorts]:
    with watched() as ports:
        yield ports


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as made:
        yield made


class NamesApi:
    """Names a Thrift API, as a hub does."""

    def __init__(self, api: Address) -> None:
        self._api = api

    def apiAddress(self) -> str:  # noqa: N802  (the IDL's)
        return str(self._api)


def _hub_at(stack: contextlib.ExitStack, of: Of, api: Address) -> Address:
    """A true hub whose Thrift API is elsewhere."""
    found = of.good("hub")
    contexts = TlsContexts(TlsFiles(found["tls_ca"], found["tls_certificate"]), serves=True)
    listener = socket.create_server(("127.0.0.1", 0))
    server = ThriftServer(
        load("hub").HQueueHubService,
        NamesApi(api),
        listener,
        threads=2,
        connections_max=8,
        call_bytes_max=10_000,
        idle_ms_max=10_000,
        guard=PortGuard("hub", contexts, PrincipalRules()),
    )
    stack.callback(server.close, 0)
    server.start()
    return Address("127.0.0.1", listener.getsockname()[1])


def test_our_roles_do_not_start(stack: contextlib.ExitStack, of: Of) -> None:
    backend = MemoryBackend().apart(2_000)
    given = {**of.false("role"), "delivery_principals": "worker"}
    client = stack.enter_context(backend.connect(**given))
    subscriber = client.create_queue("q", partitions=1).subscriber(
        Subscription("role"), Received(), host="localhost"
    )
    ports: dict[str, Any] = {"host": "localhost", "metrics_port": 0}

    async def make_hub() -> None:
        Hub(client, ["q"], HubSettings(port=0, **ports))

    async def make_worker() -> None:
        Worker(client, WorkerSettings(**ports))

    for start in (
        subscriber.start,
        lambda: asyncio.run(make_hub()),
        lambda: asyncio.run(make_worker()),
    ):
        with pytest.raises(SettingsError, match="others would not accept this tls_certificate"):
            start()


@pytest.mark.usefixtures("no_check")
@both_faces
def test_a_hub_and_its_thrift_api(
    stack: contextlib.ExitStack, of: Of, seen: WatchedPorts, in_loop: bool
) -> None:
    backend = MemoryBackend().apart(2_000)
    stack.enter_context(backend.connect()).create_queue("q", partitions=1)
    own = stack.enter_context(backend.connect(**of.false("hub")))
    false = stack.enter_context(HubThread(own, "q", api_port=0))
    assert false.hub.api is not None
    true = _hub_at(stack, of, false.hub.api.address)
    given = {**of.good("loader"), "queue": "q", "delivery_principals": "hub"}
    for hub, calls in (
        (false.address, ["publish", "subscribe", "put"]),
        (true, ["put"]),
    ):
        client = stack.enter_context(connected([hub], in_loop=in_loop, **given))
        topic = client.topic("t")
        known: dict[str, Callable[[], object]] = {
            "publish": lambda topic=topic: topic.publish(b"v"),  # type: ignore[misc]
            "subscribe": lambda topic=topic: topic.subscribe("loader", print),  # type: ignore[misc]
            "put": lambda client=client: client.queue().put([Message("t", b"v")]),  # type: ignore[misc]
        }
        for name in calls:
            with pytest.raises(NotAllowedError, match=NOT_ACCEPTED) as caught:
                known[name]()
            assert caught.value.outcome is Outcome.NOT_APPLIED
    assert [name for name in seen.served if name != "loader"] == []
    assert seen.served.count("loader") <= 2  # Of the true hub, which API it has.


@pytest.mark.usefixtures("no_check")
def test_a_subscriber(
    stack: contextlib.ExitStack, of: Of, seen: WatchedPorts, caplog: pytest.LogCaptureFixture
) -> None:
    backend = MemoryBackend().apart(2_000)
    given = {**of.false("billing"), "delivery_principals": "worker"}
    queue = stack.enter_context(backend.connect(**given)).create_queue("q", partitions=1)
    stack.enter_context(WorkerThread(stack.enter_context(backend.connect(**of.good("worker")))))
    got = Received()
    with (
        caplog.at_level(logging.INFO),
        queue.subscriber(Subscription("billing"), got, host="127.0.0.1"),
    ):
        put_numbers(queue, range(3))
        wait_for(lambda: NOT_ACCEPTED in caplog.text, "the worker says why")
    assert not got.messages
    assert "worker" not in seen.served


@pytest.mark.parametrize("wrong", ["another host", "for clients only"])
def test_a_client_of_hubs(
    stack: contextlib.ExitStack,
    certificates: Certificates,
    wrong: str,
    seen: WatchedPorts,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With the other certificates it could not subscribe."""
    hubs = SecuredHubs(stack, certificates)
    hubs.hub(authorizer="all")
    topic = hubs.connect("reader", **Of(certificates, wrong).false("reader")).topic("t")
    got: list[Any] = []
    with caplog.at_level(logging.INFO), topic.subscribe("reader", got.extend):
        topic.publish(b"v")
        wait_for(lambda: re.search(NOT_ACCEPTED, caplog.text), "the hub says why")
    assert not got
    assert "hub" not in seen.served


@pytest.mark.usefixtures("no_check")
def test_a_worker(stack: contextlib.ExitStack, of: Of, seen: WatchedPorts) -> None:
    backend = MemoryBackend().apart(2_000)
    looked_for = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    given = {
        **of.good("loader"),
        "zookeeper": f"127.0.0.1:{looked_for.getsockname()[1]}",
        "notify_workers": True,
        "delivery_principals": "worker",
    }
    client = stack.enter_context(backend.connect(**given))
    queue = client.create_queue("q", partitions=1)
    false = stack.enter_context(backend.connect(**of.false("worker")))
    worker = stack.enter_context(WorkerThread(false))
    subscriber = queue.subscriber(Subscription("loader"), Received(), host="127.0.0.1")
    with subscriber:
        wait_for(lambda: worker.owns(queue), "the worker serves the partition")
        refused = len(seen.refused)

        def is_called() -> bool:
            put_numbers(queue, range(1))
            return any(port == "notifications" for port, *_ in seen.refused[refused:])

        wait_for(is_called, "the producer does not go on with the handshake")
    assert "loader" not in seen.served
