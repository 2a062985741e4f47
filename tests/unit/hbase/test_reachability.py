"""A plain program says that HBase does not answer, and that it answers again."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator

import pytest

import hqueue
from hqueue import Message, StoreUnavailableError
from hqueue.client import Client
from hqueue.hbase import reachability
from hqueue.runtime.seldom import FaultLog
from hqueue.settings.addresses import Address
from tests.support.backends import GatewayBackend
from tests.support.interrupted import natively
from tests.support.memory.cluster import MemoryCluster
from tests.support.memory.gateway import GatewayPair

SERVER = Address("region-server", 16020)
NOWHERE = {
    "gateways": {"gateways": "127.0.0.1:1/1"},
    "natively": {"hbase": "native", "hbase_masters": "127.0.0.1:1"},
}


@contextlib.contextmanager
def by_gateways() -> Iterator[Client]:
    cluster = MemoryCluster()
    with (
        contextlib.closing(GatewayPair(cluster)) as pair,
        GatewayBackend(pair, cluster).connect() as client,
    ):
        yield client


@pytest.fixture
def said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Callable[[], list[str]]:
    """The lines so far."""
    monkeypatch.setattr(reachability, "_faults", FaultLog(reachability.logger))
    caplog.set_level(logging.WARNING, reachability.__name__)
    return lambda: [each.message for each in caplog.records if each.name == reachability.__name__]


def test_one_line_says_that_a_server_is_away_and_one_that_it_is_back(
    said: Callable[[], list[str]],
) -> None:
    reachability.answered(SERVER)
    for _ in range(3):
        reachability.unanswered(SERVER, ConnectionRefusedError("refused"))
    reachability.answered(Address("another", 16020))
    assert said() == [
        "HBase does not answer at region-server:16020: ConnectionRefusedError: refused"
    ]
    for _ in range(3):
        reachability.answered(SERVER)
    assert len(said()) == 2
    assert said()[1].startswith("HBase answers again at region-server:16020, after ")


@pytest.mark.parametrize("where", NOWHERE.values(), ids=NOWHERE)
def test_where_nobody_answers_is_said(where: dict[str, str], said: Callable[[], list[str]]) -> None:
    with (
        hqueue.connect(**where, operation_timeout_ms=300) as client,
        pytest.raises(StoreUnavailableError) as raised,
    ):
        client.queue("q")
    assert raised.value.outcome is hqueue.Outcome.NOT_APPLIED
    (line,) = said()
    assert line.startswith("HBase does not answer at 127.0.0.1:1")


@pytest.mark.parametrize("connect", [natively, by_gateways])
def test_what_is_answered_is_seen(
    connect: Callable[[], contextlib.AbstractContextManager[Client]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[object] = []
    monkeypatch.setattr(reachability, "answered", seen.append)
    with connect() as client:
        client.create_queue("interrupted", partitions=1).put(Message("t", b""))
    assert seen
