"""What can happen to a session with ZooKeeper."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from hqueue.settings.addresses import zookeeper_servers
from hqueue.zookeeper import ZooKeeperStore
from tests.support.proxy import Fate, Proxy
from tests.support.waiting import wait_for

__all__ = ["cut", "expire", "zookeeper_proxy"]


@contextlib.contextmanager
def zookeeper_proxy(zookeeper: str) -> Iterator[Proxy]:
    """A proxy before a ZooKeeper; its own connection string is ``127.0.0.1:<port>``."""
    proxy = Proxy("127.0.0.1", zookeeper_servers(zookeeper)[0], thrift=False)
    try:
        yield proxy
    finally:
        proxy.close()


@contextlib.contextmanager
def cut(proxy: Proxy) -> Iterator[None]:
    """Nothing comes through, for the time of the block."""
    proxy.fate = lambda method: Fate.LOSE_REQUEST
    proxy.break_connections()
    try:
        yield
    finally:
        proxy.fate = lambda method: Fate.PASS


def expire(store: ZooKeeperStore, member: int = 0) -> None:
    """Let ZooKeeper end one of the sessions that make up a session: another client takes it over,
    and closes it.

    When this returns, the session's owner has another one.
    """
    session = store.session

    def connected() -> tuple[int, Any] | None:
        before, members = session.id, list(session.members)
        if before is None or len(members) <= member:
            return None
        return before, members[member].client.client_id

    before, stolen = wait_for(connected, "there is a session")

    def ended() -> bool:
        if session.id not in (None, before):
            return True
        if session.id is not None:
            thief = KazooClient(
                hosts=session.settings.zookeeper,
                client_id=stolen,
                timeout=session.timeout_ms / 1e3,
            )
            with contextlib.suppress(KazooException, KazooTimeoutError):
                thief.start(5)
                thief.stop()
                thief.close()
        return False

    wait_for(ended, "the session has ended, and there is another")
