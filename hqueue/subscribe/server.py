"""A Thrift server that stays in bounds, whoever calls it."""

from __future__ import annotations

import contextlib
import logging
import queue
import select
import selectors
import socket
import threading
from typing import Any

from thriftpy2.protocol import TCyBinaryProtocol
from thriftpy2.thrift import TProcessor
from thriftpy2.transport import TCyBufferedTransport, TTransportException

from hqueue.clock import SYSTEM_CLOCK, Deadline
from hqueue.fork import register

__all__ = ["ThriftServer"]

logger = logging.getLogger(__name__)

BUFFER_BYTES = 64 * 1024
ACCEPT_PAUSE_MS = 50
STAY_MS = 50
"""How long a thread waits for the next call of the caller that it has just answered."""


class _Wire:
    """A socket, as the transport at the bottom; it bounds what one call may have."""

    def __init__(self, sock: socket.socket, call_bytes_max: int) -> None:
        self.sock = sock
        self._call_bytes_max = call_bytes_max
        self.left = call_bytes_max

    def read(self, size: int) -> bytes:
        if self.left <= 0:
            raise TTransportException(
                TTransportException.UNKNOWN, f"a call has more than {self._call_bytes_max} bytes"
            )
        data = self.sock.recv(min(size, self.left, BUFFER_BYTES))
        if not data:
            raise TTransportException(TTransportException.END_OF_FILE, "the peer has gone")
        self.left -= len(data)
        return data

    def write(self, data: bytes) -> None:
        self.sock.sendall(data)

    def flush(self) -> None:
        pass

    def next_call(self) -> None:
        self.left = self._call_bytes_max


class _Connection:
    """One caller. It makes one call at a time, as Thrift's clients do."""

    def __init__(self, sock: socket.socket, peer: object, call_bytes_max: int) -> None:
        self.sock = sock
        self.peer = peer
        self.wire = _Wire(sock, call_bytes_max)
        transport = TCyBufferedTransport(self.wire, BUFFER_BYTES)
        self.protocol: Any = TCyBinaryProtocol(  # type: ignore[no-untyped-call]
            transport, decode_response=False
        )

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()


class ThriftServer:
    """Serves a Thrift service over the binary protocol, unframed.

    Connections that are silent cost no thread: one thread watches them all, and a call is read
    and answered by one of a few others. That one stays with its caller for a moment, if another
    thread is free: calls in quick succession are not handed from thread to thread. A caller that
    sends what is no call, too much, or half a call and then nothing, is hung up on; others don't
    notice. A forked child has none of it.

    Args:
        service: the service, as thriftpy2 loaded it.
        handler: has its methods.
        listener: a socket that listens. It is the server's from now on.
        threads: calls answered at a time.
        connections_max: further ones wait to be accepted.
        call_bytes_max: the bytes of a call, about.
        idle_ms_max: how long a call that has begun may stand still.
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
    ) -> None:
        self._processor = TProcessor(service, handler)
        self._listener = listener
        self._connections_max = connections_max
        self._call_bytes_max = call_bytes_max
        self._idle_ms_max = idle_ms_max
        self._lock = threading.Lock()
        self._quiet = threading.Condition(self._lock)
        self._connections: set[_Connection] = set()
        self._answered: list[_Connection] = []
        self._busy = 0
        self._free = 0
        """Threads that have no connection."""
        self._closing = False
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
                    selector.register(connection.sock, selectors.EVENT_READ, connection)
                if room != accepting:
                    accepting = room
                    if room:
                        selector.register(self._listener, selectors.EVENT_READ)
                    else:
                        logger.warning("no more than %d connections", self._connections_max)
                        selector.unregister(self._listener)
                for key, _ in selector.select():
                    if key.fileobj is self._woken:
                        with contextlib.suppress(BlockingIOError):
                            self._woken.recv(4_096)
                    elif key.fileobj is self._listener:
                        self._accept(selector)
                    else:
                        selector.unregister(key.fileobj)
                        self._hand_over(key.data)

    def _accept(self, selector: selectors.BaseSelector) -> None:
        try:
            sock, peer = self._listener.accept()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as exc:
            logger.warning("a connection was not accepted: %s", exc)
            SYSTEM_CLOCK.sleep_ms(ACCEPT_PAUSE_MS)  # Out of files, perhaps: it would come again.
            return
        sock.settimeout(self._idle_ms_max / 1e3)
        connection = _Connection(sock, peer, self._call_bytes_max)
        with self._lock:
            self._connections.add(connection)
        selector.register(sock, selectors.EVENT_READ, connection)

    def _hand_over(self, connection: _Connection) -> None:
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
            with self._lock:
                self._busy -= 1
                self._quiet.notify_all()
                good = good and not self._closing
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
        waiting = select.poll()
        waiting.register(connection.sock, select.POLLIN)
        return bool(waiting.poll(STAY_MS)) and not self._closing

    def _answer(self, connection: _Connection) -> bool:
        """Read and answer one call; whether the connection is still good."""
        connection.wire.next_call()
        try:
            self._processor.process(connection.protocol, connection.protocol)
        except TTransportException as exc:
            if exc.type != TTransportException.END_OF_FILE:
                logger.warning("hung up on %s: %s", connection.peer, exc.message)
            return False
        except Exception as exc:  # Whatever it sent, it must not end this thread.
            logger.warning("hung up on %s: %s: %s", connection.peer, type(exc).__name__, exc)
            return False
        return True
