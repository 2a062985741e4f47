"""Reading nodes of others, which lie anywhere: HBase's say where its servers are."""

from __future__ import annotations

import dataclasses

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline
from hqueue.settings.connection import Settings
from hqueue.zookeeper.session import Session

__all__ = ["ZooKeeperNodes"]


class ZooKeeperNodes:
    """Nodes by their absolute paths. Thread-safe, and usable in a forked child.

    Each read is by a session of its own, for there are few: so nothing is kept open meanwhile.

    Args:
        settings: how to reach ZooKeeper. What its connection string is rooted at is left out: it is
            this project's.
    """

    def __init__(self, settings: Settings) -> None:
        hosts, _, _ = settings.zookeeper.partition("/")
        self._settings = dataclasses.replace(settings, zookeeper=hosts)

    def read(self, path: str) -> bytes | None:
        """A node's data; None if there is no such node. One try, bounded by
        ``request_timeout_ms``.

        Raises:
            StoreUnavailableError: ZooKeeper gave no answer.
            RequestRefusedError: it refused.
        """
        session = Session(self._settings)
        deadline = Deadline(SYSTEM_CLOCK, self._settings.request_timeout_ms)

        def get(client: KazooClient) -> object:
            return client.get_async(path)

        try:
            data, _ = session.one(path, get, deadline)
        except NoNodeError:
            return None
        finally:
            session.close()
        return bytes(data)
