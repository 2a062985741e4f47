"""The only user of kazoo: versioned records and ephemeral registrations in ZooKeeper.

It provides the ports of `hqueue.metadata`, and knows nothing that is made of them; it reads nodes
of others (`ZooKeeperNodes`), closes its own (`NodeAccess`), and can `probe` what this client may
do. Every error is translated here, and every wait bounded.
"""

from __future__ import annotations

from hqueue.metadata import Coordination
from hqueue.runtime.loop import BackgroundLoop
from hqueue.settings.connection import Settings
from hqueue.zookeeper.allocation import SESSION_BYTES_MAX
from hqueue.zookeeper.node_access import NodeAccess
from hqueue.zookeeper.nodes import ZooKeeperNodes
from hqueue.zookeeper.probing import ZooKeeperProbe, probe
from hqueue.zookeeper.zookeeper_store import ZooKeeperStore

__all__ = [
    "NodeAccess", "ZooKeeperCoordination", "ZooKeeperNodes", "ZooKeeperProbe", "ZooKeeperStore",
    "probe",
]  # fmt: skip


class ZooKeeperCoordination(Coordination):
    """The `Coordination` on ZooKeeper. Connects when it is first used.

    In a forked child it begins a session of its own: what is present by the parent's stays the
    parent's, and the parent's watches tell nothing in the child.

    Args:
        settings: how to reach ZooKeeper, and below which node everything lies.
        session_bytes_max, loop: as `ZooKeeperStore`.
    """

    store: ZooKeeperStore

    def __init__(
        self,
        settings: Settings,
        *,
        session_bytes_max: int = SESSION_BYTES_MAX,
        loop: BackgroundLoop | None = None,
    ) -> None:
        super().__init__(
            ZooKeeperStore(settings, session_bytes_max=session_bytes_max, loop=loop),
            settings.zookeeper_root,
        )
