"""What a client needs of a whole store: its queues, and the records beside them."""

from __future__ import annotations

from typing import Any, Protocol

from hqueue.log.table_ports import (
    AsyncLogPort,
    LocationPort,
    LogPort,
    SizePort,
    SnapshotPort,
    TablePort,
)
from hqueue.metadata.fields import ClearableRecords
from hqueue.net.tokens import DelegationToken
from hqueue.runtime.steps import Work
from hqueue.runtime.stepwise import stepwise

__all__ = ["StorePort", "TokenPort"]


class TokenPort(Protocol):
    """Gets and uses a store's delegation tokens, by which processes without keys of their own prove
    themselves. Thread-safe.
    """

    def use(self, token: DelegationToken) -> None:
        """Use a token for connections from now on, unless the one that is used expires later.

        Raises:
            SettingsError: this client proves itself in another way.
        """

    @stepwise
    def get(self) -> Work[Any, DelegationToken]:
        """Get a new one; the one that is used if this client proves itself by one.

        Raises:
            RequestRefusedError: the store gives none to this client.
            SettingsError: this client does not prove itself.
            StoreUnavailableError: there was no answer within the operation's bound.
        """


class StorePort(Protocol):
    """A connection to a store. Thread-safe, and usable in a forked child.

    Methods that are `stepwise` have a face for event loops; what `log` gives blocks, and of
    `fields` all but `clear`.
    """

    @property
    def tables(self) -> TablePort: ...

    @property
    def locations(self) -> LocationPort: ...

    @property
    def tokens(self) -> TokenPort | None:
        """None if the store has no such tokens."""

    @property
    def snapshots(self) -> SnapshotPort | None:
        """None if this way to the store can't take snapshots."""

    @property
    def sizes(self) -> SizePort | None:
        """None if this way to the store can't say how much room queues take."""

    @stepwise
    def cluster_id(self) -> Work[Any, str]:
        """What names the cluster: another one for each, and the same for good. One small request,
        repeated until there is an answer.

        Raises:
            StoreUnavailableError: there was no answer within the operation's bound.
        """

    def log(self, queue: str) -> LogPort:
        """The log of a queue. Asks nothing of the store: the queue need not be there."""

    def async_log(self, queue: str) -> AsyncLogPort:
        """Like `log`, for event loops."""

    def fields(self) -> ClearableRecords:
        """Records of fields, which lie beside the queues; always the same ones. Asks nothing of
        the store.
        """

    def close(self) -> None:
        """Close all connections. Every later request raises `ClosedError`. Never raises."""
