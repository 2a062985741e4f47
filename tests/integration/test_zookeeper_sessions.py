"""What of sessions only a real ZooKeeper decides: who may do what, and how long one is kept."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator

import pytest

from hqueue import HQueueError, MessageID, RequestRefusedError, local
from hqueue.metadata import Address, PartitionKey, Presence, SubscriptionKey
from hqueue.runtime.clock import SYSTEM_CLOCK
from hqueue.zookeeper import ZooKeeperCoordination

HERE = Address("127.0.0.1", 5_001)
KEY = SubscriptionKey("q", 0, "s")

Open = Callable[..., ZooKeeperCoordination]


@pytest.fixture
def open_session(server: local.LocalServer) -> Iterator[Open]:
    """Opens sessions below one root; they are closed after the test."""
    opened: list[ZooKeeperCoordination] = []
    root = f"/hqueue-{uuid.uuid4().hex[:12]}"

    def open_one(**changes: object) -> ZooKeeperCoordination:
        settings = server.settings(zookeeper_root=root, operation_timeout_ms=20_000, **changes)
        opened.append(ZooKeeperCoordination(settings))
        return opened[-1]

    yield open_one
    for coordination in opened:
        coordination.close()


def fail(error: HQueueError) -> None:
    raise AssertionError(f"a registration failed: {error}")


def test_nodes_have_the_access_rights_that_were_set(open_session: Open) -> None:
    owner = {"zookeeper_auth": "digest:owner:secret", "zookeeper_acl": "auth::cdrwa"}
    one, same, stranger = open_session(**owner), open_session(**owner), open_session()
    one.checkpoints.create({KEY: MessageID(0)})
    one.subscriptions.register("q", "s", Presence(HERE), [0], fail)
    assert same.subscriptions.list("q")[KEY]
    for operation in (
        lambda: stranger.checkpoints.read(KEY),
        lambda: stranger.checkpoints.create({SubscriptionKey("q", 0, "s2"): MessageID(0)}),
        lambda: stranger.owners.claim("w", [PartitionKey("q", 0)]),
    ):
        with pytest.raises(RequestRefusedError):
            operation()


def test_credentials_that_zookeeper_knows_no_scheme_of_are_refused_at_once(
    open_session: Open,
) -> None:
    one = open_session(zookeeper_auth="nonsense:x")
    for _ in range(2):
        began = time.monotonic()
        with pytest.raises(RequestRefusedError):
            one.subscriptions.list()
        assert time.monotonic() - began < 10


@pytest.mark.thorough("a ZooKeeper of its own")
@pytest.mark.parametrize("asked_ms", [100, 3_600_000])
def test_the_session_time_out_that_counts_is_the_one_that_zookeeper_grants(
    open_session: Open, caplog: pytest.LogCaptureFixture, asked_ms: int
) -> None:
    one = open_session(zookeeper_session_timeout_ms=asked_ms)
    one.workers.list()
    granted_ms = one.store.session_timeout_ms
    assert 2_000 <= granted_ms <= 60_000, "as the local server has it"
    assert one.confirm() - SYSTEM_CLOCK.monotonic_ms() <= granted_ms
    assert f"keeps a session for {granted_ms} ms, not for {asked_ms}" in caplog.text
