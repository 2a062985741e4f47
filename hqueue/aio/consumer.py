"""Consuming as a member of a group, in an event loop."""

from __future__ import annotations

import asyncio
import importlib
import itertools
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from hqueue.aio.client import Client
from hqueue.aio.loop_consumer import LoopConsumer
from hqueue.aio.loops import AT_ONCE, check_loop
from hqueue.aio.scanner import ARROW
from hqueue.consume.scan import Scan
from hqueue.errors import ClosedError, HQueueError
from hqueue.groups.callbacks import Callbacks, OnPartitionsInLoop
from hqueue.groups.calls import ConsumerCalls, Partition, ToCommit
from hqueue.groups.catalog import Selection
from hqueue.groups.consumer_options import ConsumerOptions, ConsumerSettings
from hqueue.groups.consumption import Consumption
from hqueue.groups.handout import Handout
from hqueue.handle import Cluster
from hqueue.log.lag import PartitionLag
from hqueue.message import ConsumedMessage
from hqueue.message_id import MessageID
from hqueue.metadata import PartitionKey
from hqueue.position import Position
from hqueue.runtime.extras import needing_arrow
from hqueue.runtime.iteration import Iteration
from hqueue.runtime.loop import in_thread
from hqueue.runtime.program_loop import ProgramLoop
from hqueue.runtime.stepwise import BoundWork
from hqueue.settings.keyword_options import Unpack
from hqueue.settings.numbers import check_number, check_whole
from hqueue.watching.observers import OBSERVERS

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Consumer"]

CALL_COUNTS = 10
"""A call that waits for nothing takes a loop as much time as so many messages of an iteration."""

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Consumer(LoopConsumer[Consumption]):
    """Reads messages of queues in an event loop, as a member of a group that shares the queues'
    partitions. Like `hqueue.Consumer`, with the same guarantees, and with these differences:

    * Make it in the event loop that uses it. The first call subscribes to `queues`.
    * One task at a time may use it: a call while another task is in the middle of one is refused.
      But any task may `commit`, also while another one polls.
    * A task may be cancelled at every await. What a cancelled `poll` or iteration would have
      returned comes with the next call.
    * Callbacks may be coroutine functions, which are awaited.

    A consumer that was never closed leaves its group when Python collects it, with a
    `ResourceWarning`, and commits nothing.

    Args:
        queues, group: as for `hqueue.Consumer`.
        client: the connection, which stays open when the consumer is closed. If None, the consumer
            calls `connect` without arguments, and closes that connection.
        options: see `ConsumerOptions`.

    Raises:
        InvalidInputError: an argument is out of range, or no event loop runs.
        SettingsError: no client is given, and a setting is wrong.
    """

    def __init__(
        self,
        queues: str | Iterable[str] | None = None,
        *,
        group: str | None = None,
        client: Client | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        self._settings = ConsumerSettings.of(options)
        self._wanted = None if queues is None else Selection.chosen(queues, None)
        """What the first call subscribes to."""
        self.group = group
        """The group's name."""
        self._closing = self._freed = False
        self._turns = AT_ONCE
        """So many messages are given before other tasks have turns."""

        def consume(cluster: Cluster, loop: ProgramLoop) -> Consumption:
            return Consumption(cluster, group, self._settings, loop=loop)

        super().__init__(client, "an asynchronous consumer", consume, "commit and request_stop")
        self._calls = ConsumerCalls(self._consumption, group)
        (self._stream,) = self._consumption.streams

    async def __aenter__(self) -> Consumer:
        try:
            with self._turn():
                await self._begin()
        except BaseException:
            await self.close(commit=False)
            raise
        return self

    async def __aexit__(self, kind: object, *exc: object) -> None:
        await self.close(commit=self._settings.auto_commit and kind is None)

    @property
    def consumer_id(self) -> str:
        """The consumer's ID in its group: the instance ID, or one of the form ``hostname:uuid``."""
        return self._consumption.membership.consumer_id

    # What it consumes.

    async def subscribe(
        self,
        queues: str | Iterable[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        topics: Iterable[str] = (),
        on_assigned: OnPartitionsInLoop | None = None,
        on_revoked: OnPartitionsInLoop | None = None,
        on_lost: OnPartitionsInLoop | None = None,
    ) -> None:
        """Consume these queues instead of earlier ones, sharing their partitions with the group.
        Like `hqueue.Consumer.subscribe`. A caller that is cancelled does not learn whether the
        consumer has subscribed.

        The task that polls, closes or unsubscribes calls the callbacks, and awaits what coroutine
        functions return. They may commit, seek and pause.
        """
        selection = Selection.chosen(queues, pattern)
        callbacks = Callbacks(on_assigned, on_revoked, on_lost, in_loop=True)
        wanted = Scan(topics=topics).topics
        with self._turn():
            await self._background.settled()
            self._wanted = None
            await self._consumption.subscribe.in_loop(selection, wanted, callbacks)

    async def assign(self, partitions: Iterable[Partition]) -> None:
        """Consume these partitions instead of earlier ones, even if other consumers consume them
        too. Like `hqueue.Consumer.assign`.
        """
        await self._call(self._calls.assign, partitions)

    async def unsubscribe(self) -> None:
        """Give up all partitions, and leave the group. Like `hqueue.Consumer.unsubscribe`."""
        await self._call(self._consumption.unsubscribe)

    def subscription(self) -> set[str]:
        """The queues that this consumer has subscribed to, as far as they exist."""
        return self._calls.subscription()

    def assignment(self) -> set[PartitionKey]:
        """The partitions that this consumer has now."""
        return self._calls.assignment()

    # What it hands out.

    async def poll(self, timeout_ms: float = 0, messages_max: int = 500) -> list[ConsumedMessage]:
        """Return the next messages, all of one partition and in order; an empty list if none came
        in time. Like `hqueue.Consumer.poll`. If the caller is cancelled, the next call returns what
        this one would have returned.

        Args:
            timeout_ms: how long to wait for the first message.
            messages_max: how many messages to return at most.
        """
        messages_max = check_whole(messages_max, 1, 1_000_000, option="messages_max")
        now_s = self._consumption.now_s
        ends_s = now_s() + check_number(timeout_ms, 0, float("inf"), option="timeout_ms") / 1e3
        with self._turn():
            await self._begin()
            await self._give_turns(CALL_COUNTS)
            while (handout := await self._next(max(0.0, ends_s - now_s()) * 1e3)) is not None:
                messages = await self._taken(handout, messages_max)
                if messages:
                    if OBSERVERS:
                        handout.report()
                    self._turns -= len(messages)
                    return messages
            await asyncio.sleep(0)  # A loop that polls lets others have turns.
            return []

    def __aiter__(self) -> AsyncIterator[ConsumedMessage]:
        """All messages as they come, without an end. As `messages`."""
        return self.messages()

    def messages(self, *, idle_ms_max: float | None = None) -> AsyncIterator[ConsumedMessage]:
        """Iterate over messages one by one, until `request_stop` or `close`. Like
        `hqueue.Consumer.messages`. An iteration whose task is cancelled, or that ends early,
        loses nothing: it can continue, or another one continues in its place.

        Args:
            idle_ms_max: end after this long without a message; None for never.
        """
        return _Messages(self, _idle(idle_ms_max))

    def arrow_batches(
        self, *, idle_ms_max: float | None = None
    ) -> AsyncIterator[pyarrow.RecordBatch]:
        """Iterate over messages in Arrow record batches, each of one partition and some megabytes,
        until `request_stop` or `close`. Like `hqueue.Consumer.arrow_batches`. Needs the extra
        ``hqueue-hbase[arrow]``.
        """
        return Iteration(partial(self._arrow_batches, _idle(idle_ms_max)))

    async def _arrow_batches(
        self, idle_ms: float | None
    ) -> AsyncGenerator[pyarrow.RecordBatch, None]:
        with needing_arrow():
            await in_thread(importlib.import_module, ARROW)  # It takes most of a second.
            from hqueue.consume.arrow import with_queue  # noqa: PLC0415  (pyarrow is an extra)

        while True:
            with self._turn():
                await self._begin()
                handout = await self._next(idle_ms, in_columns=True)
                if handout is None:
                    return
                columns = await handout.columns.in_loop(with_queue)
            if columns is not None and columns.num_rows:
                yield columns
            if self._consumption.closed:
                return

    # Where it is.

    async def position(self, partition: Partition) -> MessageID:
        """The ID at which this consumer continues in one of its partitions. Like
        `hqueue.Consumer.position`.
        """
        return await self._call(self._calls.position, partition)

    async def seek(self, partition: Partition, to: Position) -> None:
        """Continue elsewhere in one of its partitions: at an ID, or with the messages that were
        written since a time. Like `hqueue.Consumer.seek`.
        """
        await self._call(self._calls.seek, partition, to)

    async def seek_to_beginning(self, *partitions: Partition) -> None:
        """Continue with the oldest message of these partitions; without arguments, of all that it
        has.
        """
        await self._call(self._calls.seek_to_beginning, *partitions)

    async def seek_to_end(self, *partitions: Partition) -> None:
        """Continue with messages that are written from now on to these partitions; without
        arguments, to all that it has.
        """
        await self._call(self._calls.seek_to_end, *partitions)

    def pause(self, *partitions: Partition) -> None:
        """Return no messages of these partitions until `resume`; without arguments, of all that it
        has. They stay assigned.
        """
        with self._turn():
            self._calls.pause(*partitions)

    def resume(self, *partitions: Partition) -> None:
        """Return messages of these partitions again; without arguments, of all that it has."""
        with self._turn():
            self._calls.resume(*partitions)

    def paused(self) -> set[PartitionKey]:
        """The partitions that this consumer has and that are paused."""
        return self._calls.paused()

    # How far it is.

    async def commit(self, positions: ToCommit = None) -> None:
        """Commit the group's offsets, at which another consumer would continue. Like
        `hqueue.Consumer.commit`. Any task of the event loop may call it at any time. Commits are
        made in the order of the calls.

        If the caller is cancelled, the outcome is unknown: the offsets may be committed, now or in
        a moment, but not after those of a later commit.
        """
        self._check_usable()
        check_loop(self._background.loop, "a consumer")
        await self._calls.commit.in_loop(positions)

    async def reject(self, message: ConsumedMessage, reason: str = "") -> None:
        """Make one of this consumer's messages a dead letter of the group. Like
        `hqueue.Consumer.reject`. Any task of the event loop may call this at any time.

        If the caller is cancelled, the outcome is unknown: the dead letter may be written, now or
        in a moment. If the message is rejected again, it is still one dead letter.
        """
        self._check_usable()
        check_loop(self._background.loop, "a consumer")
        await self._calls.reject.in_loop(message, reason)

    async def committed(
        self, partitions: Iterable[Partition] | None = None
    ) -> dict[PartitionKey, MessageID]:
        """The group's committed offsets in these partitions, which may be of any queues; in its own
        partitions if None. Like `hqueue.Consumer.committed`.
        """
        return await self._call(self._calls.committed, partitions)

    async def lag(self, *partitions: Partition) -> dict[PartitionKey, PartitionLag]:
        """The lag between this consumer's positions and the ends of these partitions; without
        arguments, of all partitions in which it has a position. Like `hqueue.Consumer.lag`.
        """
        return await self._call(self._calls.lag, *partitions)

    async def close(self, *, commit: bool | None = None) -> None:
        """Give up all partitions at once, leave the group, and free all resources. Like
        `hqueue.Consumer.close`. Call it in the task that polls; other tasks, and other threads,
        call `request_stop`.

        A close that is cancelled may not have committed. The consumer leaves the group all the
        same, in a task of the event loop. Call it again: that frees what is left. After the
        consumer's own event loop was closed, it commits nothing.

        Args:
            commit: whether to commit the messages that were returned; if None, ``auto_commit``
                decides. A context manager whose block ended with an error does not commit.
        """
        if self._consumption.process.is_left or self._freed:
            return
        if await self._end_without_loop():
            self._closed = self._freed = True
            return
        self._consumption.check_no_callback()
        with self._turn(closing=True):
            await self._background.settled()
            try:
                if not self._closed:
                    await self._leave(self._settings.auto_commit if commit is None else commit)
            finally:
                if self._closed:
                    await self._free()
                    self._watched.closed()
                    self._freed = True

    async def _leave(self, commit: bool) -> None:
        self._closing = True  # Its callbacks may still use the consumer.
        try:
            await self._consumption.close.in_loop(commit=commit)
            self._closed = True
        except asyncio.CancelledError:
            self._background.begin(self._free())  # The caller doesn't wait for ZooKeeper.
            raise
        except HQueueError:
            self._closed = True
            raise
        finally:
            self._closing = False  # If it was cancelled, it can be closed again.

    async def _free(self) -> None:
        await self._background.settled()
        await self._close_connection()

    # Whose turn it is.

    async def _call(
        self,
        call: BoundWork[Parameters, Result],
        *args: Parameters.args,
        **named: Parameters.kwargs,
    ) -> Result:
        with self._turn():
            await self._begin()
            return await call.in_loop(*args, **named)

    def _calls_back(self) -> bool:
        return self._consumption.calls_back

    async def _begin(self) -> None:
        """End what a cancelled call has left under way, and subscribe if that must be done yet."""
        await self._background.settled()
        if self._wanted is not None:
            callbacks = Callbacks(in_loop=True)
            await self._consumption.subscribe.in_loop(self._wanted, (), callbacks)
            self._wanted = None

    async def _give_turns(self, count: int) -> None:
        """Let other tasks have turns, if so much was done without waiting."""
        self._turns -= count
        if self._turns <= 0:
            self._turns = AT_ONCE
            await asyncio.sleep(0)

    def _check_usable(self) -> None:
        super()._check_usable()
        if self._closing and not self._consumption.calls_back:
            raise ClosedError("the consumer was closed")

    # What comes next. The caller's task has its turn.

    async def _next(self, timeout_ms: float | None, *, in_columns: bool = False) -> Handout | None:
        """What is handed out next. Where the caller is cancelled, it stays as it is."""
        stream = self._stream
        stream.in_columns = in_columns
        try:
            handout = self._consumption.at_once(stream)
            return handout or await self._consumption.refill.in_loop(stream, timeout_ms)
        except BaseException as exc:
            stream.attention = True
            if not isinstance(exc, (HQueueError, asyncio.CancelledError)):
                stream.doubted = True
            raise

    async def _taken(self, handout: Handout, messages_max: int) -> list[ConsumedMessage]:
        """So many messages of it at most, as far as they are there without waiting for long."""
        messages: list[ConsumedMessage] = []
        handout.one_by_one = False
        while True:
            taken = list(itertools.islice(handout.messages, messages_max - len(messages)))
            if taken:
                handout.last = taken[-1]
                messages += taken
            if len(messages) == messages_max or (messages and handout.is_next_large()):
                return messages
            try:
                if not await handout.advance.in_loop():
                    return messages
            except HQueueError:
                if not messages:
                    raise
                return messages  # What can't be read comes after them, with the next call.
            except BaseException:
                if messages:
                    handout.lost = self._stream.doubted = True  # They come again.
                raise

    async def _following(self, idle_ms: float | None) -> ConsumedMessage | None:
        """The next message of an iteration; None at its end."""
        with self._turn():
            await self._begin()
            await self._give_turns(CALL_COUNTS)
            while (handout := await self._next(idle_ms)) is not None:
                handout.one_by_one = True
                for message in handout.messages:
                    handout.last = message
                    return message
                await handout.advance.in_loop()
            return None


class _Messages:
    """An iteration over a consumer's messages. How far it is, the consumer knows.

    Args:
        consumer: the consumer.
        idle_ms: the iteration ends after so long without a message; None for never.
    """

    def __init__(self, consumer: Consumer, idle_ms: float | None) -> None:
        self._consumer = consumer
        self._idle_ms = idle_ms
        self._begun = False

    def __aiter__(self) -> _Messages:
        return self

    async def __anext__(self) -> ConsumedMessage:
        consumer = self._consumer
        stream, consumption = consumer._stream, consumer._consumption
        handout = stream.handout
        if (
            handout is not None
            and handout.one_by_one
            and not stream.attention
            and consumer._task is None
            and consumer._turns > 0
            and consumption.now_s() < stream.valid_until_s
        ):
            for message in handout.messages:
                handout.last = message
                consumer._turns -= 1
                return message
        if self._begun and consumption.closed:
            raise StopAsyncIteration
        self._begun = True
        following = await consumer._following(self._idle_ms)
        if following is None:
            raise StopAsyncIteration
        return following


def _idle(idle_ms_max: float | None) -> float | None:
    if idle_ms_max is None:
        return None
    return check_number(idle_ms_max, 0, float("inf"), option="idle_ms_max")
