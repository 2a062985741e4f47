"""The session with ZooKeeper as a store of records and registrations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hqueue.metadata.ports import Record, Request, SessionState, Watch
from hqueue.runtime.loop import BackgroundLoop
from hqueue.runtime.stepwise import InLoop
from hqueue.settings.connection import Settings
from hqueue.zookeeper.allocation import SESSION_BYTES_MAX
from hqueue.zookeeper.ephemerals import ZooKeeperEphemerals
from hqueue.zookeeper.session import Session
from hqueue.zookeeper.tree_cache import TreeCache
from hqueue.zookeeper.zookeeper_records import ZooKeeperRecords

__all__ = ["ZooKeeperStore"]


class ZooKeeperStore:
    """The `MetadataStore` on ZooKeeper: a key is a node's path. Connects when it is first used.

    Args:
        settings: how to reach ZooKeeper.
        session_bytes_max: how much is present by one session at ZooKeeper, as the length of its
            ephemeral nodes' paths. What needs more is spread over several that live and die as
            one. Only tests need another value.
        loop: as `Session`.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        session_bytes_max: int = SESSION_BYTES_MAX,
        loop: BackgroundLoop | None = None,
    ) -> None:
        self.session = Session(settings, bytes_max=session_bytes_max, loop=loop)
        self.records = ZooKeeperRecords(self.session)
        self.ephemerals = ZooKeeperEphemerals(self.session)
        self._in_loop = _InLoop(self)

    @property
    def state(self) -> SessionState:
        """Like `MetadataStore.state`."""
        return self.session.state

    @property
    def session_id(self) -> int | None:
        """Like `MetadataStore.session_id`."""
        return self.session.id

    @property
    def session_timeout_ms(self) -> int:
        """Like `MetadataStore.session_timeout_ms`: as ZooKeeper grants it."""
        return self.session.timeout_ms

    @property
    def loop(self) -> BackgroundLoop:
        """Like `MetadataStore.loop`."""
        return self.session.loop

    def watch(
        self,
        prefix: str,
        depth: int,
        on_change: Callable[[Mapping[str, Record]], None],
        loop: BackgroundLoop | None = None,
    ) -> Watch:
        """Like `MetadataStore.watch`."""
        return TreeCache(self.session, prefix, depth, on_change, loop)

    def on_state(
        self, on_change: Callable[[SessionState], None], on_close: Callable[[], None] | None = None
    ) -> Watch:
        """Like `MetadataStore.on_state`."""
        return self.session.on_state(on_change, on_close)

    async def answer(self, request: Request) -> Any:
        """Like `MetadataStore.answer`."""
        answer: Any = request.do(self._in_loop)
        return await answer

    def confirm(self) -> float:
        """Like `MetadataStore.confirm`."""
        return self.session.confirm()

    def close(self) -> None:
        """Like `MetadataStore.close`."""
        self.session.close()

    def close_later(self, delay_ms: float) -> None:
        """Like `MetadataStore.close_later`."""
        self.session.close_later(delay_ms)


class _InLoop:
    """A store by its face for event loops, as far as requests are made of it."""

    def __init__(self, store: ZooKeeperStore) -> None:
        self.records = InLoop(store.records)
        self.ephemerals = InLoop(store.ephemerals)
        self.confirm = store.session.confirm.in_loop
        self.close = store.session.close.in_loop
