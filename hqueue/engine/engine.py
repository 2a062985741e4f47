"""A client's cluster, for roles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from hqueue.client import Client, cluster_of, groups_of
from hqueue.client import ranges_of as all_ranges_of
from hqueue.engine.open_log import OpenLog
from hqueue.groups.standalone import StandaloneOffsets
from hqueue.metadata.managers import LogRange
from hqueue.runtime.loop import blocking

__all__ = ["Engine"]


class Engine:
    """The operations of a cluster that roles need beside those of `Client`. Thread-safe, and usable
    in a forked child. It holds no resources of its own: it is closed with the client.

    Args:
        client: the connection.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._cluster = cluster_of(client)

    def cluster_id(self) -> str:
        """The unique ID of the store's cluster. It is requested once.

        Raises:
            StoreUnavailableError: the store was unavailable for ``operation_timeout_ms``.
        """
        return self._cluster.cluster_id()

    def group_names(self) -> list[str]:
        """The name of every consumer group that has, or had, a member or an offset. Sends one
        request.

        Raises:
            StoreUnavailableError: ZooKeeper was unavailable for ``operation_timeout_ms``.
        """
        return groups_of(self._client).names()

    def standalone_offsets(self, group: str, queue: str) -> StandaloneOffsets:
        """The offsets of a consumer group in a queue, for a program that keeps its own positions
        and commits them for others to see. Sends no request.

        Raises:
            InvalidInputError: the group's or the queue's name is not valid.
        """
        return groups_of(self._client).standalone(group, queue)

    def open(
        self, queue: str, ranges_of: Callable[[str], Sequence[LogRange]] | None = None
    ) -> OpenLog:
        """Open a queue's log.

        Args:
            queue: the queue.
            ranges_of: returns the ranges of the log that hold the messages of a topic that hubs
                own. It may block: with an event loop, it is called in a thread. If None, the
                topics' metadata is read.

        Raises:
            InvalidInputError: the name is not a valid queue name.
            QueueNotFoundError, NotAQueueError: there is no such queue.
            StoreUnavailableError: the store was unavailable for ``operation_timeout_ms``.
        """
        log = self._cluster.log(queue)
        if ranges_of is None:
            return OpenLog(self._cluster, log, all_ranges_of(self._client, log.name))
        known = ranges_of
        return OpenLog(self._cluster, log, lambda topic: blocking(partial(known, topic)))
