"""Who serves a subscriber's calls: threads, or an event loop of the program."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import socket
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from hqueue.errors import HQueueError, Outcome
from hqueue.metadata import DeliveryOptions
from hqueue.push.listener import Listener, Listeners
from hqueue.push.loop_service import LoopConsumption, LoopListeners
from hqueue.push.service import Consumption, subscriber_service
from hqueue.push.worker_call import WorkerCall
from hqueue.rpc.server import ThriftServer
from hqueue.runtime.program_loop import ProgramLoop
from hqueue.runtime.waiting import Event
from hqueue.settings.limits import BATCH_BYTES_MAX, TOPIC_BYTES_MAX

__all__ = ["LoopServing", "Serving", "ThreadServing"]

CALL_IDLE_MS_MAX = 10_000
MESSAGE_OVERHEAD_BYTES = TOPIC_BYTES_MAX + 64
MESSAGE_BYTES_MAX = 2 * BATCH_BYTES_MAX
"""Of one message in a call. Beside their names and values headers take 15 bytes there, in the log
8."""
LOOP_S = 60.0
"""How long a program's loop may take to begin to serve."""

Admit = Callable[[int], AbstractContextManager[bool]]


class Serving(Protocol):
    """Serves the calls of a subscriber on its port, and gives their messages to its listeners.
    `start` and `close` are called by threads, and may block.
    """

    @property
    def wanted_end(self) -> Event:
        """Set when the subscriber ended, or will."""

    def is_caller(self) -> bool:
        """Whether a listener calls the caller."""

    def start(self, listener: socket.socket, admit: Admit | None) -> None:
        """Serve.

        Args:
            listener: a socket that listens.
            admit: as `Consumption` takes it.
        """

    def close(self, drain_ms: float) -> bool:
        """Serve no more; whether the calls under way ended in time."""


class ThreadServing:
    """Threads serve the calls, and call the listeners.

    Args:
        listeners, calls_max, connections_max: as a subscriber's.
        delivery: how messages are delivered.
        name: the subscriber's.
    """

    def __init__(
        self,
        listeners: Sequence[Listener] | Listener,
        calls_max: int,
        connections_max: int,
        delivery: DeliveryOptions,
        name: str,
    ) -> None:
        self.wanted_end = Event()
        self._listeners = Listeners(listeners, delivery.timeout_ms, name)
        self._calls_max = calls_max
        self._connections_max = connections_max
        self._delivery = delivery
        self._server: ThriftServer | None = None

    def is_caller(self) -> bool:
        return self._listeners.is_caller()

    def start(self, listener: socket.socket, admit: Admit | None) -> None:
        self._listeners.start()
        consumption = Consumption(
            self._listeners, self._calls_max, self._delivery.timeout_ms, admit
        )
        self._server = ThriftServer(
            subscriber_service(),
            consumption,
            listener,
            threads=self._calls_max + 4,
            connections_max=self._connections_max,
            call_bytes_max=_call_bytes_max(self._delivery),
            idle_ms_max=CALL_IDLE_MS_MAX,
            quick=functools.partial(WorkerCall, consumption.consume),
        )
        self._server.start()

    def close(self, drain_ms: float) -> bool:
        drained = self._server is None or self._server.close(drain_ms)
        self._listeners.close()
        return drained


class LoopServing:
    """The running event loop serves the calls, and calls the listeners. Made in that loop.

    Args:
        listeners, calls_max, connections_max, delivery, name: as for `ThreadServing`.
    """

    def __init__(
        self,
        listeners: Sequence[Listener] | Listener,
        calls_max: int,
        connections_max: int,
        delivery: DeliveryOptions,
        name: str,
    ) -> None:
        self._tasks = ProgramLoop()
        self.wanted_end = LoopEvent(self._tasks)
        self._listeners = LoopListeners(listeners, delivery.timeout_ms, self._tasks, name)
        self._calls_max = calls_max
        self._connections_max = connections_max
        self._delivery = delivery
        self._server: ThriftServer | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop."""
        return self._tasks.loop

    def is_caller(self) -> bool:
        return self._listeners.is_caller()

    def start(self, listener: socket.socket, admit: Admit | None) -> None:
        consumption = LoopConsumption(
            self._listeners, self._calls_max, self._delivery.timeout_ms, admit
        )
        self._server = server = ThriftServer(
            subscriber_service(),
            consumption,
            listener,
            threads=self._connections_max,
            in_loop=True,
            connections_max=self._connections_max,
            call_bytes_max=_call_bytes_max(self._delivery),
            idle_ms_max=CALL_IDLE_MS_MAX,
        )

        async def serve() -> None:
            server.start()

        try:
            asyncio.run_coroutine_threadsafe(serve(), self.loop).result(LOOP_S)
        except concurrent.futures.TimeoutError as exc:
            raise HQueueError(
                "the event loop was busy or has ended: the subscriber did not start",
                outcome=Outcome.NOT_APPLIED,
            ) from exc

    def close(self, drain_ms: float) -> bool:
        server = self._server
        if server is None:
            return True
        if self.loop.is_closed():
            server.abandon()
            return False
        drained = server.close(drain_ms)
        self._tasks.call(self._listeners.close)
        return drained


class LoopEvent(Event):
    """An event for which coroutines of a loop wait, too.

    Args:
        tasks: that loop's.
    """

    def __init__(self, tasks: ProgramLoop) -> None:
        super().__init__()
        self._tasks = tasks
        self._in_loop = asyncio.Event()

    def set(self) -> None:
        super().set()
        self._tasks.call(self._in_loop.set)

    async def wait_in_loop(self) -> None:
        """Wait until it is set."""
        await self._in_loop.wait()


def _call_bytes_max(delivery: DeliveryOptions) -> int:
    return (
        max(delivery.batch_bytes_max, MESSAGE_BYTES_MAX)
        + delivery.batch_messages_max * MESSAGE_OVERHEAD_BYTES
    )
