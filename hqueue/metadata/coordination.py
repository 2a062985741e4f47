"""All that is kept beside the log but groups, on a metadata store."""

from __future__ import annotations

from collections.abc import Callable

from hqueue.metadata.append_key_record import AppendKeyRecord
from hqueue.metadata.brokers import Brokers
from hqueue.metadata.checkpoints import Checkpoints
from hqueue.metadata.owners import Owners
from hqueue.metadata.paths import Paths
from hqueue.metadata.ports import MetadataStore, SessionState, Watch
from hqueue.metadata.steps import Confirm, OnStore, Work
from hqueue.metadata.subscriptions import Subscriptions
from hqueue.metadata.workers import Workers
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock
from hqueue.runtime.stepwise import stepwise

__all__ = ["Coordination"]


class Coordination(OnStore):
    """A session with a coordination service. Thread-safe.

    Args:
        store: the session with the store; closed with this.
        root: what all keys begin with.
        clock: measures how long one who may be dead is waited for.
    """

    def __init__(self, store: MetadataStore, root: str, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(store, clock)
        paths = Paths(root)
        self.paths = paths
        """Where all of it lies."""
        self.subscriptions = Subscriptions(store, paths, clock)
        self.checkpoints = Checkpoints(store, paths)
        self.workers = Workers(store, paths, clock)
        self.owners = Owners(store, paths)
        self.append_keys = AppendKeyRecord(store, paths)
        self.brokers = Brokers(store, paths)

    @property
    def state(self) -> SessionState:
        """As `MetadataStore.state`."""
        return self.store.state

    def on_state(self, listener: Callable[[SessionState], None]) -> Watch:
        """As `MetadataStore.on_state`."""
        return self.store.on_state(listener)

    @stepwise
    def confirm(self) -> Work[float]:
        """As `MetadataStore.confirm`."""
        until_ms: float = yield Confirm()
        return until_ms

    def close(self) -> None:
        """As `MetadataStore.close`."""
        self.store.close()
