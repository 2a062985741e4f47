"""Who serves a subscriber's calls: threads, or an event loop of the program."""

from __future__ import annotations

import asyncio
import functools
import socket
from collections.abc import Sequence
from typing import Protocol

from hqueue.metadata import DeliveryOptions
from hqueue.net.guard import PortGuard
from hqueue.push.listener import Listener, Listeners
from hqueue.push.loop_service import LoopConsumption, LoopListeners
from hqueue.push.service import Admit, Consumption, subscriber_service
from hqueue.push.worker_call import WorkerCall
from hqueue.rpc.server import ThriftServer
from hqueue.runtime.loop import blocking
from hqueue.runtime.program_loop import ProgramLoop
from hqueue.runtime.steps import Wait
from hqueue.runtime.waiting import Event
from hqueue.settings.limits import BATCH_BYTES_MAX, TOPIC_BYTES_MAX

__all__ = ["LoopEvent", "LoopServing", "Serving", "ThreadServing"]

CALL_IDLE_MS_MAX = 10_000
LOOK_S = 0.25
"""How often a thread that waits for a loop looks whether that was closed."""
MESSAGE_OVERHEAD_BYTES = TOPIC_BYTES_MAX + 64
MESSAGE_BYTES_MAX = 2 * BATCH_BYTES_MAX
"""Of one message in a call. Beside their names and values headers take 15 bytes there, in the log
8."""


class Serving(Protocol):
    """Serves the calls of a subscriber on its port, and gives their messages to its listeners."""

    @property
    def wanted_end(self) -> Event:
        """Set when the subscriber ended, or will."""

    def is_caller(self) -> bool:
        """Whether a listener calls the caller."""

    def start(self, listener: socket.socket, admit: Admit | None, guard: PortGuard | None) -> None:
        """Serve. In the event loop that serves, if one does.

        Args:
            listener: a socket that listens.
            admit: as `Consumption` takes it.
            guard: as `ThriftServer` takes it.
        """

    def closing(self, drain_ms: float) -> Wait:
        """Asks to serve no more; answers whether the calls under way ended in time."""


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

    def start(self, listener: socket.socket, admit: Admit | None, guard: PortGuard | None) -> None:
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
            guard=guard,
        )
        self._server.start()

    def closing(self, drain_ms: float) -> Wait:
        return blocking(functools.partial(self._close, drain_ms))

    def _close(self, drain_ms: float) -> bool:
        drained = self._server is None or self._server.close(drain_ms)
        self._listeners.close()
        return drained


class LoopServing:
    """A program's event loop serves the calls, and calls the listeners.

    Args:
        listeners, calls_max, connections_max, delivery, name: as for `ThreadServing`.
        tasks: the loop.
    """

    def __init__(
        self,
        listeners: Sequence[Listener] | Listener,
        calls_max: int,
        connections_max: int,
        delivery: DeliveryOptions,
        name: str,
        *,
        tasks: ProgramLoop,
    ) -> None:
        self._tasks = tasks
        self.wanted_end = LoopEvent(self._tasks)
        self._listeners = LoopListeners(listeners, delivery.timeout_ms, self._tasks, name)
        self._calls_max = calls_max
        self._connections_max = connections_max
        self._delivery = delivery
        self._server: ThriftServer | None = None

    def is_caller(self) -> bool:
        return self._listeners.is_caller()

    def start(self, listener: socket.socket, admit: Admit | None, guard: PortGuard | None) -> None:
        consumption = LoopConsumption(
            self._listeners, self._calls_max, self._delivery.timeout_ms, admit
        )
        self._server = ThriftServer(
            subscriber_service(),
            consumption,
            listener,
            threads=self._connections_max,
            in_loop=True,
            connections_max=self._connections_max,
            call_bytes_max=_call_bytes_max(self._delivery),
            idle_ms_max=CALL_IDLE_MS_MAX,
            guard=guard,
        )
        self._server.start()

    def closing(self, drain_ms: float) -> Wait:
        return Wait(
            functools.partial(self._close, drain_ms),
            functools.partial(self._close_in_loop, drain_ms),
        )

    async def _close_in_loop(self, drain_ms: float) -> bool:
        drained = self._server is None or await self._server.close_here(drain_ms)
        self._listeners.close()
        return drained

    def _close(self, drain_ms: float) -> bool:
        """Called by a thread: the subscriber was forgotten."""
        server = self._server
        if server is None:
            return True
        closing = self._tasks.start(self._close_in_loop, drain_ms)
        while not closing.wait(LOOK_S):
            if self._tasks.loop.is_closed():
                break
        if closing.done() and not closing.cancelled():
            return bool(closing.result())
        server.abandon()  # Its loop ends, or has ended.
        return False


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
