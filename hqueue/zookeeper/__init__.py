"""The only user of kazoo: subscriptions, checkpoints, workers, claims and keys in ZooKeeper.

It provides the ports of `hqueue.metadata`. Every error is translated here, and every wait
bounded.
"""

from __future__ import annotations

from collections.abc import Callable

from hqueue.metadata import SessionState, Watch
from hqueue.settings.connection import Settings
from hqueue.zookeeper.allocation import SESSION_BYTES_MAX
from hqueue.metadata.append_key_record import AppendKeyRecord
from hqueue.metadata.checkpoints import Checkpoints
from hqueue.zookeeper.ephemerals import Ownership
from hqueue.metadata.paths import Paths
from hqueue.zookeeper.session import Session
from hqueue.metadata.subscriptions import Subscriptions
from hqueue.metadata.workers import Workers

__all__ = ["ZooKeeperCoordination"]


class ZooKeeperCoordination:
    """The `Coordination` on ZooKeeper. Connects when it is first used.

    In a forked child it begins a session of its own: what is present by the parent's stays the
    parent's, and the parent's watches tell nothing in the child.

    Args:
        settings: how to reach ZooKeeper.
        session_bytes_max: how much is present by one session at ZooKeeper, as the length of its
            ephemeral nodes' paths. What needs more is spread over several that live and die as
            one. Only tests need another value.
    """

    def __init__(self, settings: Settings, *, session_bytes_max: int = SESSION_BYTES_MAX) -> None:
        self._session = Session(settings, bytes_max=session_bytes_max)
        paths = Paths(settings.zookeeper_root)
        self.subscriptions = Subscriptions(self._session, paths)
        self.checkpoints = Checkpoints(self._session, paths)
        self.workers = Workers(self._session, paths)
        self.owners = Ownership(self._session, paths)
        self.append_keys = AppendKeyRecord(self._session, paths)

    @property
    def state(self) -> SessionState:
        """As `Coordination.state`."""
        return self._session.state

    def on_state(self, listener: Callable[[SessionState], None]) -> Watch:
        """As `Coordination.on_state`."""
        return self._session.on_state(listener)

    def confirm(self) -> float:
        """As `Coordination.confirm`."""
        return self._session.confirm()

    def close(self) -> None:
        """As `Coordination.close`."""
        self._session.close()
