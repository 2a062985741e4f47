"""A client's cluster, as roles see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from hqueue.client import Client, cluster_of
from hqueue.client import ranges_of as all_ranges_of
from hqueue.engine.open_log import OpenLog
from hqueue.groups.administration import group_names
from hqueue.metadata.managers import LogRange

__all__ = ["Engine"]


class Engine:
    """What a role asks of a cluster, beside what `Client` has. Thread-safe, and usable in a forked
    child. It holds nothing of its own: it is closed with the client.

    Args:
        client: the connection.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._cluster = cluster_of(client)

    def cluster_id(self) -> str:
        """The name of the store's cluster, which is never another's; asked for once.

        Raises:
            StoreUnavailableError: the store stayed away for ``operation_timeout_ms``.
        """
        return self._cluster.cluster_id()

    def group_names(self) -> list[str]:
        """Every name of a consumer group that has, or had, a member or an offset. One request.

        Raises:
            StoreUnavailableError: ZooKeeper stayed away for ``operation_timeout_ms``.
        """
        return group_names(self._cluster, self._client.coordination.store)

    def open(
        self, queue: str, ranges_of: Callable[[str], Sequence[LogRange]] | None = None
    ) -> OpenLog:
        """Open a queue's log.

        Args:
            queue: the queue.
            ranges_of: says where the messages of a topic lie that hubs own; the topics' metadata is
                asked if None.

        Raises:
            InvalidInputError: no queue has such a name.
            QueueNotFoundError, NotAQueueError: there is no such queue.
            StoreUnavailableError: the store stayed away for ``operation_timeout_ms``.
        """
        log = self._cluster.log(queue)
        return OpenLog(
            self._cluster, log, ranges_of or partial(all_ranges_of, self._client, log.name)
        )
