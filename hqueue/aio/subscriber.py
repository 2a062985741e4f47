"""A subscriber whose calls an event loop serves."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Sequence
from functools import partial
from typing import cast

from hqueue.aio.loops import check_loop, own_loop
from hqueue.errors import HQueueError
from hqueue.handle import QueueLog
from hqueue.metadata import Address, Coordinate
from hqueue.push.listener import Listener
from hqueue.push.serving import LoopEvent, LoopServing
from hqueue.push.subscriber import Subscriber as BlockingSubscriber
from hqueue.push.subscriber import SubscriberOptions, reception_of
from hqueue.push.subscription import Subscription
from hqueue.settings.keyword_options import Unpack

__all__ = ["Subscriber"]


class Subscriber:
    """Receives the messages of a subscription, which workers deliver, in an event loop. Like
    `hqueue.Subscriber`, with the same guarantees, and with these differences:

    * Make it in the event loop that uses it. That loop serves the workers' calls and calls the
      listeners. What a listener returns is awaited, so a listener may be a coroutine function. A
      plain one runs in the loop, and must not block it.
    * Up to ``calls_max`` calls of listeners are under way at a time, in tasks.
    * An async listener that takes longer than the delivery's ``timeout_ms`` is cancelled, and its
      messages come again.

    Use it as an asynchronous context manager, or `stop` it. A subscriber that was never stopped is
    stopped when Python collects it, with a `ResourceWarning`. Made by `Queue.subscriber`.

    Args:
        log: the queue's log.
        subscription, listeners, coordinate, options: as for `hqueue.Subscriber`.

    Raises:
        InvalidInputError: an argument is out of range, or no event loop runs.
    """

    def __init__(
        self,
        log: QueueLog,
        subscription: Subscription,
        listeners: Sequence[Listener] | Listener,
        *,
        coordinate: Coordinate,
        **options: Unpack[SubscriberOptions],
    ) -> None:
        self._tasks = own_loop("subscriber")
        self._subscriber = BlockingSubscriber(
            log,
            subscription,
            listeners,
            coordinate=coordinate,
            serving=partial(LoopServing, tasks=self._tasks),
            loop=self._tasks,
            **options,
        )
        self._reception = reception_of(self._subscriber)

    async def __aenter__(self) -> Subscriber:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    @property
    def name(self) -> str:
        """The subscriber's name."""
        return self._subscriber.name

    @property
    def failure(self) -> HQueueError | None:
        """The error that ended the subscriber; None while it works, or if it was stopped."""
        return self._subscriber.failure

    @property
    def partitions(self) -> list[int]:
        """The partitions that it receives. Like `hqueue.Subscriber.partitions`."""
        return self._subscriber.partitions

    @property
    def address(self) -> Address | None:
        """The address on which the subscriber listens. Like `hqueue.Subscriber.address`."""
        return self._subscriber.address

    async def start(self) -> None:
        """Listen, and register in ZooKeeper. Like `hqueue.Subscriber.start`. If the caller is
        cancelled, the subscriber is stopped in the background.
        """
        self._check_loop()
        try:
            await self._tasks.to_end(self._reception.start.asked()).in_loop()
        except asyncio.CancelledError:
            self._tasks.start(self._stop, "its start was cancelled")
            raise

    async def stop(self, reason: str = "") -> bool:
        """Unregister from ZooKeeper, finish the deliveries under way, and end. Like
        `hqueue.Subscriber.stop`. If the caller is cancelled, the stop continues in the background;
        call it again to wait for its end. Listeners that are not done within the delivery's
        ``timeout_ms`` are cancelled.
        """
        self._check_loop()
        self._reception.check_caller()
        return await self._stop(reason)

    async def _stop(self, reason: str) -> bool:
        """Stop, when a start or a stop that is under way has ended."""
        stopped = await self._tasks.to_end(self._reception.stop.asked(reason)).in_loop()
        return bool(stopped)

    async def run(self) -> None:
        """Start, receive until SIGTERM or `request_stop`, or until the caller is cancelled, and
        stop cleanly. In the main thread it replaces the loop's SIGTERM handler for that time.

        Raises:
            HQueueError: as `start` and `wait`. The subscriber has stopped.
        """
        loop = self._check_loop()
        handles = False
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(signal.SIGTERM, self.request_stop)
            handles = True
        try:
            async with self:
                await self.wait()
        finally:
            if handles:
                loop.remove_signal_handler(signal.SIGTERM)

    def request_stop(self) -> None:
        """Make `wait` return, so that the task that waits there can stop the subscriber. Listeners
        and other threads may call it.
        """
        self._subscriber.request_stop()

    async def wait(self) -> None:
        """Wait until the subscriber is stopped, or `request_stop` is called.

        Raises:
            As `hqueue.Subscriber.wait`.
        """
        self._check_loop()
        if not self._subscriber.wait(0):
            await cast("LoopEvent", self._reception.serving.wanted_end).wait_in_loop()
            self._subscriber.wait(0)

    def _check_loop(self) -> asyncio.AbstractEventLoop:
        return check_loop(self._tasks.loop, "a subscriber")
