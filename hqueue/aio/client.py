"""Connecting in an event loop; administering queues, and opening them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar

from hqueue.aio.queue import Queue
from hqueue.client import Client as BlockingClient
from hqueue.client import Ttl, cluster_of, open_log, ranges_of
from hqueue.connecting import connect as connect_blocking
from hqueue.handle import QueueLog
from hqueue.message_id import MessageID
from hqueue.metadata import PartitionKey
from hqueue.position import EARLIEST, Start
from hqueue.push.administration import SubscriberAdministration, SubscriberState
from hqueue.runtime.loop import in_thread
from hqueue.settings.attributes import check_queue_name
from hqueue.settings.connection import Settings
from hqueue.settings.keyword_options import ConnectOptions, QueueAttributes, Unpack

__all__ = ["Client", "blocking_client", "connect"]


def connect(settings: Settings | None = None, **given: Unpack[ConnectOptions]) -> Client:
    """Connect to the HBase that the settings name. Like `hqueue.connect`. Sends no request, and may
    be called outside of an event loop.
    """
    return Client(connect_blocking(settings, **given))


def blocking_client(client: Client) -> BlockingClient:
    """The connection below a client, whose calls block."""
    return client._client


Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def _by_thread(
    method: Callable[Concatenate[BlockingClient, Parameters], Result],
) -> Callable[Concatenate[Client, Parameters], Coroutine[Any, Any, Result]]:
    """A method of the blocking client, called by a thread of the library, with its signature."""

    @functools.wraps(method)
    async def call(self: Client, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        return await in_thread(method, self._client, *args, **kwargs)

    return call


class Client:
    """A connection to a cluster, for event loops. Like `hqueue.Client`. Made by `connect`.

    The event loop itself puts and reads messages, with connections of its own. A few threads of the
    library do the rare administration of queues. Use it as an asynchronous context manager, or
    `close` it.

    Args:
        client: the connection below, which is closed with this client.
    """

    def __init__(self, client: BlockingClient) -> None:
        self._client = client

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    @property
    def settings(self) -> Settings:
        """The settings of the connection."""
        return self._client.settings

    async def close(self) -> None:
        """Close all connections. Like `hqueue.Client.close`: close producers first."""
        await in_thread(self._client.close)

    async def queue(self, name: str) -> Queue:
        """Open a queue. Like `hqueue.Client.queue`."""
        log, client = await self._log(name), self._client
        return Queue(
            log, cluster_of(client).coordinate, functools.partial(ranges_of, client, log.name)
        )

    async def create_queue(
        self,
        name: str,
        *,
        partitions: int,
        ttl: Ttl = "7d",
        exist_ok: bool = False,
        **attributes: Unpack[QueueAttributes],
    ) -> Queue:
        """Create a queue with all its partitions, and open it. Like
        `hqueue.Client.create_queue`.
        """
        await in_thread(
            self._client.create_queue,
            name,
            partitions=partitions,
            ttl=ttl,
            exist_ok=exist_ok,
            **attributes,
        )
        return await self.queue(name)

    def skipped_messages(self) -> Mapping[PartitionKey, int]:
        """The number of messages of each partition that this process could not read and skipped.
        Like `hqueue.Client.skipped_messages`.
        """
        return self._client.skipped_messages()

    async def list_subscribers(self, queue: str) -> list[SubscriberState]:
        """Every subscriber of a queue in every partition: whether it is connected, and its lag.
        Like `hqueue.Client.list_subscribers`.
        """
        return await self._subscribers.list.in_loop(await self._log(queue))

    async def add_subscriber(
        self,
        queue: str,
        name: str,
        *,
        start: Start = EARLIEST,
        partitions: Collection[int] | None = None,
    ) -> None:
        """Register a subscriber that will connect later, at a position that is fixed now. Like
        `hqueue.Client.add_subscriber`. If the caller is cancelled, it may be registered in some of
        the partitions.
        """
        log = await self._log(queue)
        await self._subscribers.add.in_loop(log, name, start, partitions)

    async def delete_subscriber(self, queue: str, name: str) -> None:
        """Delete a subscriber that is not connected, with its checkpoints. Like
        `hqueue.Client.delete_subscriber`. If the caller is cancelled, call it again.
        """
        await self._subscribers.delete.in_loop(check_queue_name(queue), name)

    async def seek_subscriber(
        self, queue: str, name: str, start: Start, *, partitions: Collection[int] | None = None
    ) -> dict[int, MessageID]:
        """Move the checkpoints of a subscriber that is not connected. Like
        `hqueue.Client.seek_subscriber`. If the caller is cancelled, some of them may be moved.
        """
        log = await self._log(queue)
        return await self._subscribers.seek.in_loop(log, name, start, partitions)

    @property
    def _subscribers(self) -> SubscriberAdministration:
        return SubscriberAdministration(self._client.coordination)

    async def _log(self, queue: str) -> QueueLog:
        return await in_thread(open_log, self._client, queue)

    queue_exists = _by_thread(BlockingClient.queue_exists)
    list_queues = _by_thread(BlockingClient.list_queues)
    describe_queue = _by_thread(BlockingClient.describe_queue)
    alter_queue = _by_thread(BlockingClient.alter_queue)
    enable_queue = _by_thread(BlockingClient.enable_queue)
    disable_queue = _by_thread(BlockingClient.disable_queue)
    delete_queue = _by_thread(BlockingClient.delete_queue)
    truncate_queue = _by_thread(BlockingClient.truncate_queue)
    locations = _by_thread(BlockingClient.locations)
    list_groups = _by_thread(BlockingClient.list_groups)
    describe_group = _by_thread(BlockingClient.describe_group)
    reset_group = _by_thread(BlockingClient.reset_group)
    delete_group = _by_thread(BlockingClient.delete_group)
