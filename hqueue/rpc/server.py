"""A Thrift server that stays in bounds, whatever calls it."""

from __future__ import annotations

import contextlib
import logging
import queue
import select
import selectors
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol

from hqueue.rpc.calls import CallWalk, NoCallError
from hqueue.rpc.messages import Processor
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline
from hqueue.runtime.fork import register
from hqueue.settings.limits import BATCH_MESSAGES_MAX, CALL_HEADERS_MAX

__all__ = ["QuickCall", "ThriftServer"]

logger = logging.getLogger(__name__)

BUFFER_BYTES = 64 * 1024
ACCEPT_PAUSE_MS = 50
CONTAINERS_MAX = 1 + 3 * BATCH_MESSAGES_MAX + CALL_HEADERS_MAX
"""Of a call: the largest batch is a list of messages, each with an ID and a list of headers. Each
takes some 100 to 140 bytes of memory beside those that it is made of.
"""
LOOKS = 8
"""How often it is looked, in the time that a connection may be silent."""
STAY_MS = 50
"""How long a thread waits for the next call of the caller that it has just answered."""


class QuickCall(Protocol):
    """Reads and answers a call in the layout that most have, faster than a Thrift library does."""

    def end(self, data: bytes | bytearray) -> int | None:
        """As `CallWalk.end`. A `NoCallError` says that the call is not for it to read."""

    def answer(self) -> bytes:
        """Do what the call says; the reply to it."""


class _Connection:
    """One caller. It makes one call at a time, as Thrift's clients do."""

    def __init__(self, sock: socket.socket, peer: object) -> None:
        self.sock = sock
        self.peer = peer
        self.received = bytearray()
        """From the first byte of the call that comes, or came."""
        self.silent_ms = 0.0
        """Since when it is watched."""
        self.answer: Callable[[], bytes] | None = None
        """Makes the reply to a call that was waited for."""

    def take(self, count: int) -> bytes:
        """The first bytes of what was received, which are forgotten here."""
        with memoryview(self.received) as view, view[:count] as taken:
            data = bytes(taken)
        self.forget(count)
        return data

    def forget(self, count: int) -> None:
        """Forget the first bytes of what was received."""
        # What is left fits a small piece. Of the large one no memory is kept.
        self.received = self.received[count:]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()


class _Deferred(NamedTuple):
    """An answer that is still to come."""

    awaited: Future[Any]
    finish: Callable[[], bytes]


class ThriftServer:
    """Serves a Thrift service over the binary protocol, unframed.

    Connections that are silent cost no thread: one thread watches them all, and a call is read
    and answered by one of a few others. That one stays with its caller for a moment, if another
    thread is free: calls in quick succession are not handed from thread to thread. A caller that
    sends what is no call, too much, or half a call and then nothing, is hung up on; others don't
    notice. A forked child has none of it.

    A handler may return a future: the caller is answered when that is done, and waits for it
    without a thread. So many may wait as there may be connections.

    No call reaches thriftpy2 before a `CallWalk` has found its end. Until then its bytes are held,
    as many as have come, and nothing for those that are promised.

    Args:
        service: the service, as `hqueue.rpc.services.load` has it.
        handler: has its methods.
        listener: a socket that listens. It is the server's from now on.
        threads: calls answered at a time.
        connections_max: further ones wait to be accepted.
        call_bytes_max: the bytes of a call.
        idle_ms_max: how long a call that has begun may stand still; and it may take twice that, and
            as long again for every 64 KiB.
        silent_ms_max: how long a connection may be silent between calls; None for ever. So those
            that nobody uses leave their places.
        quick: makes a reader for calls in the usual layout, given the bytes that a call may have.
            Calls in any other go to the handler.
    """

    def __init__(
        self,
        service: Any,
        handler: object,
        listener: socket.socket,
        *,
        threads: int,
        connections_max: int,
        call_bytes_max: int,
        idle_ms_max: int,
        silent_ms_max: int | None = None,
        quick: Callable[[int], QuickCall] | None = None,
    ) -> None:
        self._processor = Processor(service, handler)
        self._listener = listener
        self._connections_max = connections_max
        self._call_bytes_max = call_bytes_max
        self._idle_ms_max = idle_ms_max
        self._silent_ms_max = silent_ms_max
        self._quick = quick
        self._lock = threading.Lock()
        self._quiet = threading.Condition(self._lock)
        self._connections: set[_Connection] = set()
        self._answered: list[_Connection] = []
        self._busy = 0
        self._free = 0
        """Threads that have no connection."""
        self._closing = False
        self._looked_ms = 0.0
        """When it was looked last whose connection is silent."""
        self._ready: queue.SimpleQueue[_Connection | None] = queue.SimpleQueue()
        self._woken, self._wake = socket.socketpair()
        self._woken.setblocking(False)
        self._listener.setblocking(False)
        self._threads = [
            threading.Thread(target=self._answer_calls, name=f"hqueue-server-{n}", daemon=True)
            for n in range(threads)
        ]
        self._watcher = threading.Thread(target=self._watch, name="hqueue-server", daemon=True)
        register(self)

    def after_fork_in_child(self) -> None:
        # Kept open here, the port would stay taken after the parent's end.
        for sock in (self._listener, self._woken, self._wake):
            sock.close()
        for connection in self._connections:
            connection.sock.close()

    def start(self) -> None:
        """Serve, in the background."""
        for thread in (*self._threads, self._watcher):
            thread.start()

    def is_own_thread(self) -> bool:
        """Whether the caller is called by this server."""
        return threading.current_thread() in self._threads

    def close(self, drain_ms: float) -> bool:
        """Accept no more calls, answer those under way, and hang up; whether all were answered.

        Args:
            drain_ms: how long calls under way may take. Their threads are left to themselves
                after that.
        """
        deadline = Deadline(SYSTEM_CLOCK, drain_ms)
        with self._lock:
            self._closing = True
        self._wake_watcher()
        self._watcher.join()
        with self._lock:
            drained = self._quiet.wait_for(lambda: self._busy == 0, deadline.remaining_ms / 1e3)
            connections = list(self._connections)
        for connection in connections:
            connection.close()
        for _ in self._threads:
            self._ready.put(None)
        if drained:
            for thread in self._threads:
                thread.join()
        for sock in (self._listener, self._woken, self._wake):
            sock.close()
        return drained

    def _wake_watcher(self) -> None:
        with contextlib.suppress(OSError):
            self._wake.send(b"\0")

    def _watch(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._woken, selectors.EVENT_READ)
            accepting = False
            while True:
                with self._lock:
                    if self._closing:
                        return
                    answered, self._answered = self._answered, []
                    room = len(self._connections) < self._connections_max
                for connection in answered:
                    self._await_call(selector, connection)
                if room != accepting:
                    accepting = room
                    if room:
                        selector.register(self._listener, selectors.EVENT_READ)
                    else:
                        logger.warning("no more than %d connections", self._connections_max)
                        selector.unregister(self._listener)
                for key, _ in selector.select(self._hang_up_on_silent(selector)):
                    if key.fileobj is self._woken:
                        with contextlib.suppress(BlockingIOError):
                            self._woken.recv(4_096)
                    elif key.fileobj is self._listener:
                        self._accept(selector)
                    else:
                        selector.unregister(key.fileobj)
                        self._dispatch(key.data)

    def _accept(self, selector: selectors.BaseSelector) -> None:
        try:
            sock, peer = self._listener.accept()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as exc:
            logger.warning("a connection was not accepted: %s", exc)
            SYSTEM_CLOCK.sleep_ms(ACCEPT_PAUSE_MS)  # Out of files, perhaps: it would come again.
            return
        sock.settimeout(self._idle_ms_max / 1e3)
        connection = _Connection(sock, peer)
        with self._lock:
            self._connections.add(connection)
        self._await_call(selector, connection)

    def _await_call(self, selector: selectors.BaseSelector, connection: _Connection) -> None:
        connection.silent_ms = SYSTEM_CLOCK.monotonic_ms()
        selector.register(connection.sock, selectors.EVENT_READ, connection)

    def _hang_up_on_silent(self, selector: selectors.BaseSelector) -> float | None:
        """Hang up on connections that were silent for too long; how many seconds may pass until
        the next look.
        """
        if self._silent_ms_max is None:
            return None
        now_ms = SYSTEM_CLOCK.monotonic_ms()
        if now_ms < self._looked_ms + self._silent_ms_max / LOOKS:
            return self._silent_ms_max / LOOKS / 1e3
        self._looked_ms = now_ms
        watched = [key.data for key in selector.get_map().values() if key.data is not None]
        for connection in watched:
            if now_ms - connection.silent_ms >= self._silent_ms_max:
                selector.unregister(connection.sock)
                with self._lock:
                    self._connections.discard(connection)
                connection.close()
        return self._silent_ms_max / LOOKS / 1e3

    def _dispatch(self, connection: _Connection) -> None:
        with self._lock:
            self._busy += 1
        self._ready.put(connection)

    def _answer_calls(self) -> None:
        while True:
            with self._lock:
                self._free += 1
            connection = self._ready.get()
            with self._lock:
                self._free -= 1
            if connection is None:
                return
            good = self._answer(connection)
            while good and self._stays(connection):
                good = self._answer(connection)
            if good is None:  # Its answer comes later, and the connection with it.
                continue
            with self._lock:
                good = good and not self._closing
                if good and connection.received:
                    # The next call has begun: no selector would say so. Others come first.
                    self._ready.put(connection)
                    continue
                self._busy -= 1
                self._quiet.notify_all()
                if good:
                    self._answered.append(connection)
                else:
                    self._connections.discard(connection)
            if not good:
                connection.close()
            self._wake_watcher()

    def _stays(self, connection: _Connection) -> bool:
        """Wait a moment for the caller's next call, unless all other threads are busy; whether it
        has begun.
        """
        if not self._free or self._closing:
            return False
        if connection.received:
            return True
        waiting = select.poll()
        waiting.register(connection.sock, select.POLLIN)
        return bool(waiting.poll(STAY_MS)) and not self._closing

    def _answer(self, connection: _Connection) -> bool | None:
        """Read and answer one call, or answer the one that was read before; whether the connection
        is still good. None if the answer is still to come: the connection is not this thread's any
        more then.
        """
        try:
            later, connection.answer = connection.answer, None
            answer = later or self._read(connection)
            if isinstance(answer, _Deferred):
                connection.answer = answer.finish
                answer.awaited.add_done_callback(lambda _: self._ready.put(connection))
                return None
            if answer is None:
                return False
            connection.sock.sendall(answer())
        except BaseException as exc:  # Whatever it sent, it must not end this thread.
            logger.warning("hung up on %s: %s: %s", connection.peer, type(exc).__name__, exc)
            return False
        return True

    def _read(self, connection: _Connection) -> Callable[[], bytes] | _Deferred | None:
        """Read a call; what answers it, or None if the caller has gone.

        Raises:
            NoCallError: what it sends is none.
            OSError: it sends no more, or can't.
        """
        quick = self._quick and self._quick(self._call_bytes_max)
        walk = CallWalk(self._call_bytes_max, CONTAINERS_MAX)
        began_ms = SYSTEM_CLOCK.monotonic_ms()
        while True:
            if quick:
                try:
                    if end := quick.end(connection.received):
                        connection.forget(end)
                        return quick.answer
                except NoCallError:
                    quick = None
            if not quick and (end := walk.end(connection.received)):
                awaited, finish = self._processor.begin(connection.take(end))
                return finish if awaited is None else _Deferred(awaited, finish)
            missing = self._call_bytes_max - len(connection.received)
            if not missing:
                raise NoCallError(f"it has more than {self._call_bytes_max} bytes")
            # A caller that sends a byte now and then would keep a thread for as long as it likes.
            allowed_ms = self._idle_ms_max * (2 + len(connection.received) / BUFFER_BYTES)
            if SYSTEM_CLOCK.monotonic_ms() - began_ms > allowed_ms:
                raise NoCallError("it comes too slowly")
            data = connection.sock.recv(min(BUFFER_BYTES, missing))
            if not data:
                return None
            connection.received += data
