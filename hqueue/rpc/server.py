"""A Thrift server that stays in bounds, whatever calls it."""

from __future__ import annotations

import asyncio
import itertools
import queue
import select
import socket
import threading
from collections.abc import Callable, Collection, Coroutine
from contextlib import nullcontext
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any, NamedTuple

from hqueue.errors import HQueueError
from hqueue.net.guard import PortGuard
from hqueue.net.peers import host_of
from hqueue.net.quotas import PortQuotas
from hqueue.rpc.admission import LIGHT_BYTES
from hqueue.rpc.callers import Bounds
from hqueue.rpc.calls import OBJECT_BYTES, call_head
from hqueue.rpc.gathering import CallGatherer, QuickCall, Request
from hqueue.rpc.messages import Awaited, Processor, RefusedCallError, drop_frames
from hqueue.rpc.port import Port
from hqueue.rpc.served_connection import ServedConnection
from hqueue.runtime.loop import compute
from hqueue.runtime.switch_interval import short_turns
from hqueue.runtime.threads import end, start
from hqueue.settings.limits import BATCH_MESSAGES_MAX, CALL_HEADERS_MAX

__all__ = ["ServerUsage", "ThriftServer", "calling_host", "calling_principal"]

CONTAINERS_MAX = 1 + 3 * BATCH_MESSAGES_MAX + CALL_HEADERS_MAX
"""Of a call: the largest batch is a list of messages, each with an ID and a list of headers."""
MADE_BYTES_MAX = CONTAINERS_MAX * OBJECT_BYTES
"""Of memory, for what is made of a call; and for that of all large calls that are read at a time,
with their bytes, if they are several."""
HELD_BYTES_MIN = 64 * 1024 * 1024
QUICK_BYTES_MAX = HELD_BYTES_MIN // 2
"""What may be made of a call before it is served. So one caller alone never holds more than all may
together, whatever its call: it has as many bytes as a call may have, and this."""
SMALL_CALL_BYTES = 16 * 1024
"""What a call whose answer is large takes itself, at most."""
SILENT_MS_MAX = 600_000.0
END_S = 10.0
"""How long a thread that serves nothing may take to end."""
TOGETHER_MAX = 4
"""Calls of one caller that came together and are served one after another."""
STAY_MS = 50
"""How long a thread waits for the next call of the caller that it has just answered."""
HERE_BYTES = 256 * 1024
"""Of memory: a call that takes no more is read in the event loop itself."""
HERE_ITEMS = 64
"""An answer that lists no more is written there."""


_calling_host: ContextVar[str] = ContextVar("calling_host", default="")
_calling_principal: ContextVar[str | None] = ContextVar("calling_principal", default=None)


def calling_host() -> str:
    """Return the IP address whose call is answered here; empty if none is."""
    return _calling_host.get()


def calling_principal() -> str | None:
    """Return the proven principal of the caller that is answered here; `ANONYMOUS` if it has
    not authenticated, and need not; None if the port asks for no proof.
    """
    return _calling_principal.get()


class ServerUsage(NamedTuple):
    """What the calls of a server take at a moment."""

    memory_bytes: int
    """Of memory, for what was made of large calls."""
    held_bytes: int
    """Of calls that came in part or wait, and of answers that were not read."""
    waiting_calls: int
    """Large calls that came whole, and wait for memory."""


class _Begun(NamedTuple):
    """A call that the handler has begun."""

    method: str
    awaited: Awaited | None
    """What is waited for; None if it is done."""
    finish: Callable[[], bytes]
    """Makes the answer."""
    is_coroutine: bool
    """Whether a coroutine is waited for, which has what was made of the call."""


class ThriftServer:
    """Serves a Thrift service over the binary protocol, unframed.

    A `Port` accepts its callers, gathers calls, and sends what a caller does not take at once of
    its answer. A caller that sends what is not a call, too much, or half a call and then nothing,
    or does not read its answer, is hung up on; others don't notice. If it can be seen what it calls
    it gets the reason first. A forked child has none of it.

    The handler is called **by threads**, which are given whole calls, and wait for no caller: but
    for a moment, for the next call of the one that was just answered, while a quarter of them are
    free, so that calls in quick succession are not handed from thread to thread.

    Or it is called **in an event loop**, in which it must not wait. Large calls it is called with
    beside that, as `compute` does: so a method checks its arguments and makes of them what it
    needs, and returns a coroutine for what it then does in the loop. This many coroutines are under
    way at a time.

    A handler may return a future: the caller is answered when that is done, and waits for it
    without a thread. This many may wait as there may be connections.

    Methods whose answers are large have half of the calls at a time; their further calls wait for
    their turn among the large ones. So however many make them, other calls are answered.

    Memory: what has come of all calls, and what was not read of all answers, has a bound together;
    those that began first are hung up on beyond it. No call reaches thriftpy2 before a `CallWalk`
    has found its end, and counted what will be made of it: large ones are read one after another,
    if they are too much together. What a coroutine was given counts until it is done; a handler
    that returns a future itself counts what waits. One whose turn has not come after
    `idle_ms_max`, or for which there is no room to wait, is not served: its caller is asked to call
    again.

    Connections: with as many as there may be, one that has made no call yet goes for each that
    comes, the oldest first, or else the one that was idle for longest, if more than a second.
    Where the process may not open as many files, there are fewer.

    Args:
        service: the service, as `hqueue.rpc.services.load` has it.
        handler: has its methods.
        listener: a socket that listens. It is the server's from now on.
        threads: calls answered at a time.
        in_loop: whether the handler is called in an event loop, and `start` within it.
        connections_max: at a time.
        call_bytes_max: the bytes of a call.
        idle_ms_max: how long a call that has begun may stand still, or an answer that is read; and
            it may take twice that, and as long again for every 64 KiB.
        silent_ms_max: how long a connection may be silent between calls.
        large_answers: methods whose answers may be large.
        quick: makes a reader for calls in the usual layout, given the bytes that a call may have.
            Calls in any other go to the handler.
        memory_bytes_max: for what is made of a call; and for that of all large calls that are read
            at a time, with their bytes, if they are several.
        held_bytes_max: of what has come of all calls, and was not read of all answers. By default
            twice what a call may have, and at least 64 MiB.
        as_declared: the IDL's exception for a call that is not served: `InvalidInputError` for what
            no server would read, `BufferFullError` if calling again helps, `NotAllowedError` if the
            caller may not call the port. Thrift's own if None.
        guard: who may call, and how they prove who they are; everybody may if None.
        quotas: what callers may ask for in a second; without bounds if None.
        unrefused: methods that are served to callers over their quota, too. They wait after that.
    """

    def __init__(
        self,
        service: Any,
        handler: object,
        listener: socket.socket,
        *,
        threads: int,
        in_loop: bool = False,
        connections_max: int,
        call_bytes_max: int,
        idle_ms_max: float,
        silent_ms_max: float = SILENT_MS_MAX,
        large_answers: Collection[str] = (),
        quick: Callable[[int], QuickCall] | None = None,
        memory_bytes_max: int = MADE_BYTES_MAX,
        held_bytes_max: int | None = None,
        as_declared: Callable[[HQueueError], Exception] | None = None,
        guard: PortGuard | None = None,
        quotas: PortQuotas | None = None,
        unrefused: Collection[str] = (),
    ) -> None:
        self._processor = Processor(service, handler)
        self._large_answers = frozenset(large_answers)
        self._unrefused = frozenset(unrefused)
        share_bytes = memory_bytes_max // max(1, threads // 2) - SMALL_CALL_BYTES
        self._large_answer_bytes = max(LIGHT_BYTES + 1, share_bytes)
        self._as_declared = as_declared or (lambda error: RefusedCallError(str(error)))
        whose = getattr(service, "__name__", "a Thrift server")
        self._ready: queue.SimpleQueue[ServedConnection | None] = queue.SimpleQueue()
        if held_bytes_max is None:
            held_bytes_max = max(HELD_BYTES_MIN, 2 * call_bytes_max)
        self._port = Port(
            [listener],
            Bounds(connections_max, held_bytes_max, idle_ms_max, silent_ms_max),
            whose,
            make_gatherer=lambda: CallGatherer(
                call_bytes_max,
                CONTAINERS_MAX,
                memory_bytes_max,
                quick,
                QUICK_BYTES_MAX,
                answer_bytes=self._answer_bytes if self._large_answers else None,
            ),
            serve=self._serve_here if in_loop else self._ready.put,
            refuse=self._refuse,
            memory_bytes_max=memory_bytes_max,
            guard=guard,
            quotas=quotas,
            never_refuses=self._never_refuses,
        )
        self._in_loop = in_loop
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self._lock = threading.RLock()
        self._free = 0
        """Threads that have no connection."""
        self._thread_count = 0 if in_loop else threads
        self._threads: list[threading.Thread] = []
        self._under_way = asyncio.Semaphore(threads)
        """Of coroutines."""

    @property
    def usage(self) -> ServerUsage:
        """The memory that the calls take now. Read by any thread."""
        callers = self._port.callers
        return ServerUsage(self._port.memory_bytes, callers.held_bytes, callers.queued_count)

    def start(self) -> None:
        """Serve: in the event loop that runs, or else in the background.

        Raises:
            HQueueError: the system starts no more threads. Close it then.
        """
        if self._in_loop:
            self._loop = asyncio.get_running_loop()
            self._loop_thread = threading.get_ident()
            self._port.start_here()
            return
        for number in range(self._thread_count):
            self._threads.append(start(self._serve_calls, name=f"hqueue-server-{number}"))
        self._port.start()

    def close(self, drain_ms: float) -> bool:
        """Accept no more calls, answer those under way, and hang up. Returns whether all were
        answered. In the event loop that serves it, none is waited for.

        Args:
            drain_ms: how long calls under way may take. Their threads are left to themselves
                after that.
        """
        drained = self._port.close(drain_ms)
        for _ in range(self._thread_count):
            self._ready.put(None)
        if drained:
            for thread in self._threads:
                end(thread, END_S)
        return drained

    async def close_here(self, drain_ms: float) -> bool:
        """Like `close`, in the event loop that serves it."""
        return await self._port.close_here(drain_ms)

    def abandon(self) -> None:
        """Hang up. The loop that served it was closed."""
        self._port.abandon()

    def _answer_bytes(self, begun: bytes) -> int:
        """Return the bytes that the answer to a call may take, if it may be large."""
        head = call_head(begun)
        is_large = head is not None and head[0] in self._large_answers
        return self._large_answer_bytes if is_large else 0

    def _never_refuses(self, begun: bytes) -> bool:
        head = call_head(begun)
        return head is None or head[0] in self._unrefused

    def _refuse(self, begun: bytes, error: HQueueError) -> bytes:
        try:
            return self._processor.refuse(begun, self._as_declared(error))
        except BaseException:  # It must not be the loop's: the caller is hung up on without a word.
            return b""

    def _serve_calls(self) -> None:
        while True:
            with self._lock:
                self._free += 1
            connection = self._ready.get()
            with self._lock:
                self._free -= 1
            if connection is None:
                return
            if self._serve(connection):
                self._port.give_back(connection)

    def _serve_here(self, connection: ServedConnection) -> None:
        """Answer a caller in the event loop."""
        if self._serve(connection):
            self._port.give_back(connection)

    def _serve(self, connection: ServedConnection) -> bool:
        """Answer a caller until it is the port's again; False if its answer is still to come: it
        has no owner until then.
        """
        _calling_host.set(host_of(connection.peer))
        _calling_principal.set(connection.principal)
        for served in itertools.count(1):
            try:
                answer = self._answer(connection)
            except BaseException as exc:  # Whatever it sent, it must not end this thread.
                self._port.release(connection)
                connection.reason = f"{type(exc).__name__}: {exc}"
                drop_frames(exc)
                return True
            if answer is None:
                return False
            self._port.release(connection)
            connection.send(answer)
            if connection.reason is not None or connection.unsent is not None:
                return True
            if not self._goes_on(connection, served):
                return True
        raise AssertionError("it goes on or returns")

    def _goes_on(self, connection: ServedConnection, served: int) -> bool:
        """Return whether the next call is there, and must be served here after this many."""
        connection.passed_bytes = 0
        request = connection.request = connection.gathered()
        if connection.reason is not None or self._port.closing:
            return False
        if request is not None and served >= TOGETHER_MAX:
            # The rest is served in turn with the calls of others. One after another they would keep
            # Python's lock from all, for as many as came together.
            return False
        if request is None and not self._in_loop and 4 * self._free >= self._thread_count:
            waiting = select.poll()
            waiting.register(connection.sock, select.POLLIN)
            if waiting.poll(STAY_MS):
                connection.request = connection.receive()
        return self._port.admits(connection)

    def _answer(self, connection: ServedConnection) -> bytes | None:
        """Return the answer to a connection's request; None if it comes later."""
        step, connection.step = connection.step, None
        if step is not None:
            return step()
        request, connection.request = connection.request, None
        assert request is not None
        connection.weight = request.weight
        if request.answer is not None:
            return request.answer()
        if self._in_loop and request.weight > HERE_BYTES and len(request.data) > HERE_BYTES // 4:
            apart = compute(partial(copy_context().run, self._begin, request))
            return self._await(connection, apart, lambda: self._then(connection, apart.result()))
        return self._then(connection, self._begin(request))

    def _begin(self, request: Request) -> _Begun:
        """Have the handler begin a call."""
        with short_turns() if request.weight > LIGHT_BYTES else nullcontext():
            call = self._processor.read(request.data)
            started: list[Awaited] = []

            def go_on(work: Coroutine[Any, Any, Any]) -> Awaited:
                started.append(self._go_on(work))
                return started[0]

            awaited, finish = self._processor.begin(call, go_on if self._in_loop else None)
            if awaited is None:
                answer = finish()
                return _Begun(call.api, None, lambda: answer, False)
            return _Begun(call.api, awaited, finish, bool(started))

    def _then(self, connection: ServedConnection, begun: _Begun) -> bytes | None:
        """Answer a call that has begun, when it is done."""
        api, awaited, finish, is_coroutine = begun
        if awaited is None:
            return finish()
        if api not in self._large_answers:
            if not is_coroutine:
                self._port.release(connection)
            return self._await(connection, awaited, finish)
        return self._await(connection, awaited, lambda: self._finish(connection, awaited, finish))

    def _finish(
        self, connection: ServedConnection, awaited: Awaited, finish: Callable[[], bytes]
    ) -> bytes | None:
        """Write an answer that may be large."""
        if not self._in_loop or awaited.exception() is not None or not _is_long(awaited.result()):
            return finish()
        written = compute(finish)
        return self._await(connection, written, written.result)

    def _await(
        self, connection: ServedConnection, awaited: Awaited, step: Callable[[], bytes | None]
    ) -> bytes | None:
        """Go on with a call when something is done; None, for its answer is still to come."""
        connection.step = step
        if isinstance(awaited, asyncio.Future):
            awaited.add_done_callback(lambda _: self._serve_here(connection))
        elif self._in_loop:
            awaited.add_done_callback(lambda _: self._port.give_back(connection))
        else:
            awaited.add_done_callback(lambda _: self._ready.put(connection))
        return None

    def _go_on(self, work: Coroutine[Any, Any, Any]) -> Awaited:
        """Have a coroutine go on in the event loop, beside a bounded number of others. From any
        thread.
        """

        async def bounded() -> Any:
            async with self._under_way:
                return await work

        assert self._loop is not None
        going: Awaited
        if threading.get_ident() == self._loop_thread:
            going = self._loop.create_task(bounded())
        else:
            going = asyncio.run_coroutine_threadsafe(bounded(), self._loop)
        going.add_done_callback(lambda _: work.close())  # Cancelled, it may not have begun.
        return going


def _is_long(answer: Any) -> bool:
    return isinstance(answer, list) and len(answer) > HERE_ITEMS
