"""All metadata beside the log except that of groups, in a metadata store."""

from __future__ import annotations

from collections.abc import Callable

from hqueue.metadata.access_record import AccessRecord
from hqueue.metadata.append_key_record import AppendKeyRecord
from hqueue.metadata.brokers import Brokers
from hqueue.metadata.checkpoints import Checkpoints
from hqueue.metadata.owners import Owners
from hqueue.metadata.paths import Paths
from hqueue.metadata.ports import MetadataStore, SessionState, Watch
from hqueue.metadata.steps import Close, Confirm, OnStore, Work
from hqueue.metadata.subscriptions import Subscriptions
from hqueue.metadata.workers import Workers
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock
from hqueue.runtime.loop import BackgroundLoop
from hqueue.runtime.stepwise import stepwise

__all__ = ["Coordinate", "Coordination"]


class Coordination(OnStore):
    """A session with a coordination service. Thread-safe.

    Args:
        store: the session with the store, which `close` closes.
        root: the prefix of all keys.
        clock: measures the wait for a client that may be dead.
    """

    def __init__(self, store: MetadataStore, root: str, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(store, clock)
        paths = Paths(root)
        self.paths = paths
        """The paths of all records."""
        self.subscriptions = Subscriptions(store, paths, clock)
        self.checkpoints = Checkpoints(store, paths)
        self.workers = Workers(store, paths, clock)
        self.owners = Owners(store, paths)
        self.append_keys = AppendKeyRecord(store, paths)
        self.access_rules = AccessRecord(store, paths)
        self.brokers = Brokers(store, paths)

    @property
    def state(self) -> SessionState:
        """Like `MetadataStore.state`."""
        return self.store.state

    def on_state(self, listener: Callable[[SessionState], None]) -> Watch:
        """Like `MetadataStore.on_state`."""
        return self.store.on_state(listener)

    @stepwise
    def confirm(self) -> Work[float]:
        """Like `MetadataStore.confirm`."""
        until_ms: float = yield Confirm()
        return until_ms

    @stepwise
    def close(self) -> Work[None]:
        """Like `MetadataStore.close`."""
        yield Close()


Coordinate = Callable[[BackgroundLoop | None], Coordination]
"""Opens a session with the coordination service, which connects when it is used first. It belongs
to the loop that is given, as `MetadataStore.loop` says; if None, threads use it."""
