"""Consumers of share groups, in an event loop."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from functools import partial

from hqueue.aio.client import Client
from hqueue.aio.loop_consumer import LoopConsumer
from hqueue.consume.scan import Scan
from hqueue.errors import HQueueError
from hqueue.groups.catalog import Selection
from hqueue.handle import Cluster
from hqueue.metadata import PartitionKey
from hqueue.runtime.iteration import Iteration
from hqueue.runtime.program_loop import ProgramLoop
from hqueue.settings.keyword_options import Unpack
from hqueue.settings.numbers import check_number, check_whole
from hqueue.sharing.acquired_message import AcquiredMessage
from hqueue.sharing.membership import ShareMembership
from hqueue.sharing.share_calls import ShareCalls, idle_ms_of
from hqueue.sharing.share_options import ShareOptions, ShareSettings
from hqueue.sharing.shared_consumption import SharedConsumption

__all__ = ["ShareConsumer"]

OTHERS_CALL = "acknowledge, release, reject, renew and request_stop"


class ShareConsumer(LoopConsumer[SharedConsumption]):
    """Reads messages of queues in an event loop, as one of the consumers of a share group. Like
    `hqueue.ShareConsumer`, with the same guarantees, and with these differences:

    * Make the consumer in the event loop that uses it. The first call joins the group.
    * One task at a time may ask for messages, commit and close. Any task, and any thread, may
      answer for messages.
    * A task may be cancelled at every await. Messages that a cancelled `poll` or iteration would
      have returned are delivered again, and the cancelled delivery does not count.

    Args:
        queues, group, topics: as for `hqueue.ShareConsumer`.
        client: the connection, which stays open when the consumer is closed. If None, the consumer
            calls `connect` without arguments, and closes that connection.
        options: see `ShareOptions`.

    Raises:
        InvalidInputError: an argument is out of range, or no event loop runs.
        SettingsError: no client is given, and a setting is wrong.
    """

    def __init__(
        self,
        queues: str | Iterable[str],
        *,
        group: str,
        topics: Iterable[str] = (),
        client: Client | None = None,
        **options: Unpack[ShareOptions],
    ) -> None:
        self._settings = settings = ShareSettings.of(options)
        names = sorted(Selection.chosen(queues, None).names)
        wanted = frozenset(Scan(topics=topics).topics)
        self.group = group
        """The group's name."""

        def consume(cluster: Cluster, loop: ProgramLoop) -> SharedConsumption:
            membership = ShareMembership(cluster, group, names, wanted, settings, loop=loop)
            return SharedConsumption(membership)

        super().__init__(client, "an asynchronous share consumer", consume, OTHERS_CALL)
        self._calls = ShareCalls(self._consumption, settings)

    async def __aenter__(self) -> ShareConsumer:
        try:
            with self._turn():
                await self._begin()
        except BaseException:
            await self.close(acknowledge=False)
            raise
        return self

    async def __aexit__(self, kind: object, *exc: object) -> None:
        await self.close(acknowledge=self._settings.auto_acknowledge and kind is None)

    @property
    def consumer_id(self) -> str:
        """The consumer's ID in its group, of the form ``hostname:uuid``."""
        return self._consumption.consumer_id

    def assignment(self) -> set[PartitionKey]:
        """The partitions of its queues. Empty before the first call."""
        return set(self._consumption.partitions)

    async def poll(self, timeout_ms: float = 0, messages_max: int = 500) -> list[AcquiredMessage]:
        """Acquire messages, and return them: all of one partition, and first those that were
        delivered before. The list is empty if none came in time. Like `hqueue.ShareConsumer.poll`.

        Args:
            timeout_ms: how long to wait for the first message.
            messages_max: how many messages to return at most, 1 to 10,000.
        """
        most = check_whole(messages_max, 1, 10_000, option="messages_max")
        wait_ms = check_number(timeout_ms, 0, float("inf"), option="timeout_ms")
        with self._turn():
            await self._begin()
            with self._calls.handing_out():
                messages = await self._calls.poll.in_loop(wait_ms, most, most)
        if not messages:
            await asyncio.sleep(0)  # So that a task that polls again and again lets others run.
        return messages

    def __aiter__(self) -> AsyncIterator[AcquiredMessage]:
        """Iterate over all messages as they come, without an end. Like `messages`."""
        return self.messages()

    def messages(
        self, *, idle_ms_max: float | None = None, prefetch: int = 100
    ) -> AsyncIterator[AcquiredMessage]:
        """Iterate over messages one by one, until `request_stop` or `close`. Like
        `hqueue.ShareConsumer.messages`.

        Args:
            idle_ms_max: end after this long without a message; None for never.
            prefetch: how many messages to acquire at a time, 1 to 10,000. Messages that wait for
                half of their lock's time are given back to the group.
        """
        acquire_max = check_whole(prefetch, 1, 10_000, option="prefetch")
        return Iteration(partial(self._messages, idle_ms_of(idle_ms_max), acquire_max))

    async def _messages(
        self, idle_ms: float, acquire_max: int
    ) -> AsyncGenerator[AcquiredMessage, None]:
        self._check_usable()
        while not self._closed:
            with self._turn():
                await self._begin()
                with self._calls.handing_out():
                    messages = await self._calls.poll.in_loop(idle_ms, 1, acquire_max)
            if not messages:
                return
            yield messages[0]

    def acknowledge(self, *messages: AcquiredMessage) -> bool:
        """Answer that these messages were processed. Like `hqueue.ShareConsumer.acknowledge`."""
        return self._calls.acknowledge(messages)

    def release(
        self,
        *messages: AcquiredMessage,
        until: datetime.datetime | datetime.timedelta | int | None = None,
        counts: bool = True,
    ) -> bool:
        """Have these messages delivered again. Like `hqueue.ShareConsumer.release`.

        Args:
            messages: the messages.
            until: when to deliver them, at the earliest; None for at once.
            counts: whether this delivery counts towards `deliveries_max`.
        """
        return self._calls.release(messages, until, counts)

    def reject(
        self, *messages: AcquiredMessage, reason: str = "rejected", exhausted: bool = False
    ) -> bool:
        """Make these messages dead letters of the group. Like `hqueue.ShareConsumer.reject`.

        Args:
            messages: the messages.
            reason: why the messages are rejected, for operators who look at the dead letters; at
                most 1,000 characters.
            exhausted: whether the messages failed too often.
        """
        return self._calls.reject(messages, reason, exhausted)

    def renew(self, *messages: AcquiredMessage) -> bool:
        """Keep these messages for another `lock_ms`. Like `hqueue.ShareConsumer.renew`."""
        return self._calls.renew(messages)

    async def commit(self) -> None:
        """Write all answers that were given. Like `hqueue.ShareConsumer.commit`. If the caller is
        cancelled, the answers may have been written, and the next call writes them again.
        """
        with self._turn():
            await self._begin()
            await self._calls.commit.in_loop()

    async def close(self, *, acknowledge: bool | None = None) -> None:
        """Write all answers, settle messages that have none, and free all resources. Like
        `hqueue.ShareConsumer.close`. Call it in the task that polls. If the call is cancelled, some
        answers may not have been written; the consumer leaves the group all the same, in a task of
        the event loop. After the consumer's own event loop was closed, the call writes nothing.
        """
        if self._consumption.process.is_left or self._closed:
            return
        if await self._end_without_loop():
            self._closed = True
            return
        decided = self._settings.auto_acknowledge if acknowledge is None else acknowledge
        with self._turn():
            await self._background.settled()
            try:
                await self._consumption.close.in_loop(acknowledge=decided)
            except asyncio.CancelledError:
                self._background.begin(self._free())  # The caller doesn't wait for ZooKeeper.
                raise
            except HQueueError:
                await self._free()
                raise
            await self._free()

    async def _free(self) -> None:
        try:
            await self._background.settled()
            await self._consumption.release.in_loop()
            await self._close_connection()
        finally:
            self._closed = True
            self._watched.closed()

    async def _begin(self) -> None:
        """Wait until the work of a cancelled call has ended, and join the group if the consumer has
        not joined.
        """
        await self._background.settled()
        await self._consumption.begin.in_loop()
