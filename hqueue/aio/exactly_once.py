"""Exactly-once processing from queue to queue in an event loop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hqueue.aio.client import Client, blocking_client, connect
from hqueue.aio.consumer import Consumer
from hqueue.errors import ClosedError, InvalidInputError
from hqueue.exactly_once_steps import Bridge, Plan, ProcessInLoop
from hqueue.groups.consumer_options import ConsumerOptions
from hqueue.groups.paths import GroupPaths
from hqueue.settings.keyword_options import Unpack
from hqueue.settings.kinds import check_kind

__all__ = ["ExactlyOnceProcessor"]


class ExactlyOnceProcessor:
    """Processes each message of a queue and puts the results into another queue exactly once, in an
    event loop. Like `hqueue.ExactlyOnceProcessor`, with the same guarantees and conditions. `run`
    opens the queues, and `process` may be a coroutine function.

    Args:
        source, target, group: as for `hqueue.ExactlyOnceProcessor`.
        process: returns the results of a message, or awaits them.
        client: the connection, which stays open when the processor is closed. If None, the
            processor calls `connect` without arguments, and `close` closes that connection.
        messages_max: how many messages are taken at a time, 1 to 10,000.
        options: see `ConsumerOptions`; ``auto_commit`` is refused.

    Raises:
        InvalidInputError: an argument is out of range.
        SettingsError: no client is given, and a setting is wrong.
    """

    def __init__(
        self,
        source: str,
        target: str,
        group: str,
        process: ProcessInLoop,
        *,
        client: Client | None = None,
        messages_max: int = 500,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        self._plan = Plan(group, process, messages_max, options)
        self._source, self._target = source, target
        self._stopping = self._closed = self._running = False
        self._consumer: Consumer | None = None
        if client is not None:
            check_kind(client, Client, "client")
        self._own_client = connect() if client is None else None
        self._client = client or self._own_client
        try:
            GroupPaths(self._connected().settings.zookeeper_root, group)
        except BaseException:
            if self._own_client is not None:
                blocking_client(self._own_client).close()
            raise

    async def __aenter__(self) -> ExactlyOnceProcessor:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def run(self, *, idle_ms_max: float | None = None) -> int:
        """Join the group, and process messages until a stop is requested. Like
        `hqueue.ExactlyOnceProcessor.run`.

        If the caller is cancelled, results may have been put whose offset was not committed. They
        are not put twice: the processor that has the partition next finds them.

        Args:
            idle_ms_max: end after this long without a message; None for never.

        Returns:
            How many messages were processed, with their results put and committed.
        """
        idle_ms = self._plan.idle_ms(idle_ms_max)
        with self._alone("wait until its run has returned, or make another processor"):
            if self._closed:
                raise ClosedError("the processor was closed; make another one")
            return await self._run(idle_ms)

    async def _run(self, idle_ms: float) -> int:
        if self._stopping:
            return 0
        client = self._connected()
        source, target = await client.queue(self._source), await client.queue(self._target)
        # The group has put nothing before that: the target is searched from there on.
        since = await target.claim_epoch(self._plan.producer(source.name))
        processed, is_over = 0, False
        while not is_over:
            async with self._consumer_of_group() as consumer:
                bridge = Bridge(
                    self._plan,
                    client=client,
                    consumer=consumer,
                    source=source,
                    target=target,
                    since=since,
                    stopping=lambda: self._stopping,
                )
                self._consumer = consumer
                try:
                    await consumer.subscribe(source.name, on_assigned=bridge.begin.in_loop)
                    is_over = await bridge.run.in_loop(idle_ms)
                finally:
                    self._consumer = None
            processed += bridge.processed
        return processed

    def _consumer_of_group(self) -> Consumer:
        return Consumer(group=self._plan.group, client=self._client, **self._plan.options)

    def request_stop(self) -> None:
        """Make `run` return when the messages that it has taken are processed, put and committed.
        Every later `run` of this processor returns at once. Other tasks, other threads and signal
        handlers may call it.
        """
        self._stopping = True
        consumer = self._consumer
        if consumer is not None:
            consumer.request_stop()

    async def close(self) -> None:
        """Free all resources. Every later `run` raises `ClosedError`.

        Raises:
            InvalidInputError: `run` has not returned. Nothing was closed; call `request_stop`, and
                close the processor afterwards.
        """
        with self._alone("call request_stop, and close it when its run has returned"):
            self._closed = True
            if self._own_client is not None:
                await self._own_client.close()

    def _connected(self) -> Client:
        assert self._client is not None
        return self._client

    @contextmanager
    def _alone(self, advice: str) -> Iterator[None]:
        """Holds the processor for one call."""
        if self._running:
            raise InvalidInputError(f"the processor is running: {advice}")
        self._running = True
        try:
            yield
        finally:
            self._running = False
