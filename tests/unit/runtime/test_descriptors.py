"""A process that has no file descriptors left learns so, in whichever way it opens connections, and
goes on when there are some again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import socket
from collections.abc import Callable, Iterator

import pytest

import hqueue
from hqueue import GatewayAddress, Settings
from hqueue.errors import HubUnavailableError, Outcome, StoreUnavailableError
from hqueue.hbase.native.async_servers import AsyncServers
from hqueue.hbase.native.exchanges import Request
from hqueue.hbase.native.servers import Servers
from hqueue.hbase.thrift.connection import Service
from hqueue.hbase.thrift.gateways import Gateways
from hqueue.runtime import sockets
from hqueue.runtime.alarm import needed_loop
from hqueue.runtime.loop import in_thread
from hqueue.runtime.seldom import FaultLog
from hqueue.runtime.sockets import NO_DESCRIPTORS, open_connection
from hqueue.settings.addresses import Address
from hqueue.zookeeper import ZooKeeperStore
from hqueue.zookeeper.nodes import ZooKeeperNodes

SOON_S = 30.0


@pytest.fixture
def port() -> Iterator[int]:
    """Where something listens, and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        found: int = listening.getsockname()[1]
        yield found


@pytest.fixture(autouse=True)
def _begun() -> None:
    """There is a loop, and a thread for it."""
    needed_loop().start(in_thread, int).result(SOON_S)


@contextlib.contextmanager
def none_left() -> Iterator[None]:
    """This process has no descriptors left."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/dev/fd"))) + 8, hard))
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for each in taken:
            os.close(each)


def _settings(host: str, port: int) -> Settings:
    return Settings(
        gateways=(GatewayAddress(host, port, port),),
        zookeeper=f"{host}:{port}",
        request_timeout_ms=1_000,
        operation_timeout_ms=1_000,
    )


def _natively(settings: Settings) -> object:
    return Servers(settings).ask(_request(settings), "q")


def _natively_in_a_loop(settings: Settings) -> object:
    servers = AsyncServers(settings)
    return needed_loop().start(servers.ask, _request(settings), "q").result(SOON_S)


def _request(settings: Settings) -> Request:
    (gateway,) = settings.gateways
    return Request(Address(gateway.host, gateway.thrift1_port), b"Get", b"")


def _by_gateways(settings: Settings) -> object:
    return Gateways(settings).call(Service.THRIFT2, "get", "q")


def _a_session(settings: Settings) -> object:
    with contextlib.closing(ZooKeeperStore(settings)) as store:
        return store.records.read(["/hqueue"])


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("ask", [_natively, _natively_in_a_loop, _by_gateways, _a_session])
def test_a_store_that_can_t_be_asked_for_want_of_descriptors_is_unavailable_and_that_is_said(
    ask: Callable[[Settings], object], host: str, port: int
) -> None:
    settings = _settings(host, port)
    with none_left(), pytest.raises(StoreUnavailableError) as caught:
        ask(settings)
    assert caught.value.text == NO_DESCRIPTORS
    assert caught.value.outcome is Outcome.NOT_APPLIED


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_what_is_asked_of_several_names_the_want_of_descriptors_as_the_reason(
    host: str, port: int
) -> None:
    nodes = ZooKeeperNodes(_settings(host, port))
    with none_left(), pytest.raises(StoreUnavailableError, match="no file descriptors left"):
        nodes.read("/hqueue")
    with (
        hqueue.connect_hubs(f"{host}:{port}", queue="q", operation_timeout_ms=1_000) as client,
        none_left(),
        pytest.raises(HubUnavailableError, match="no file descriptors left") as caught,
    ):
        client.topic("t").publish(b"v")
    assert caught.value.outcome is Outcome.NOT_APPLIED


def test_the_want_of_descriptors_is_logged_at_once_and_its_end_too(
    port: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "_faults", FaultLog(sockets.logger))
    with caplog.at_level(logging.WARNING, sockets.__name__):
        with none_left():
            for _ in range(3):
                with pytest.raises(OSError, match="no file descriptors left"):
                    open_connection(("127.0.0.1", port), 1.0)
        open_connection(("127.0.0.1", port), 1.0).close()
    lines = [record.getMessage() for record in caplog.records]
    assert [NO_DESCRIPTORS in line for line in lines] == [True, False]
    assert "again" in lines[1]
