"""Accepting connections, within the files that the process may have open."""

from __future__ import annotations

import contextlib
import errno
import io
import math
import os
import resource
import select
import selectors
import socket
import threading
from collections.abc import Callable, Iterator, Sequence

from hqueue.errors import InvalidInputError
from hqueue.rpc.callers import Bounds, Callers
from hqueue.rpc.served_connection import ServedConnection
from hqueue.runtime.clock import SYSTEM_CLOCK
from hqueue.runtime.interrupts import is_interruption
from hqueue.runtime.logs import Log
from hqueue.runtime.seldom import SeldomLog

__all__ = [
    "BACKLOG",
    "FILE_ROOM",
    "Entrance",
    "FileRoom",
    "host_towards",
    "listen",
    "listen_at",
    "numeric_host",
    "raise_file_limit",
]

logger = Log(__name__)

BACKLOG = 4_096
"""Connections that wait to be accepted, as far as the system allows. For one more a client waits a
second before it knocks again, and bursts of connections come by the hundred."""
OTHER_FILES = 256
"""What a process has open beside the connections of those that call it, at most: connections of its
own, threads' pipes, logs. A process that may have fewer than four times that keeps a quarter."""
CONNECTIONS_MIN = 8
PAUSE_MS = 100.0
"""Until the next look for room."""
TOGETHER_MAX = 64
"""This many connections are accepted one after another."""
OUT_OF_FILES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class FileRoom:
    """How many connections the servers of this process may have, by the limit on its open files.
    Each has what it wants, if there is enough; else half of what is left. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._taken = 0

    def take(self, wanted: int, whose: str) -> int:
        """This many connections a server may have; it is logged if they are fewer than it wants."""
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if limit == resource.RLIM_INFINITY:
            limit = 2**31
        with self._lock:
            left = limit - min(OTHER_FILES, limit // 4) - self._taken
            given = wanted if wanted <= left else max(CONNECTIONS_MIN, min(wanted, left // 2))
            self._taken += given
        if given < wanted:
            logger.warning(
                "%s accepts %d connections instead of %d, because the process may open only %d "
                "files: raise the limit (ulimit -n)",
                whose,
                given,
                wanted,
                limit,
            )
        return given

    def give_back(self, given: int) -> None:
        """A server has ended."""
        with self._lock:
            self._taken -= given


FILE_ROOM = FileRoom()
"""This process's."""


def raise_file_limit() -> None:
    """Let this process open as many files as it may allow itself. For programs of their own: a
    library leaves the limit to its process.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def listen(host: str, port: int) -> list[socket.socket]:
    """Listen at all addresses of a host, at the same port; everywhere if it is empty.

    Raises:
        OSError: nothing can listen there.
    """
    flags = socket.AI_PASSIVE
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=flags)
    listeners: list[socket.socket] = []
    try:
        for family, address in sorted({(each[0], str(each[4][0])) for each in found}):
            made = socket.create_server((address, port), family=family, backlog=BACKLOG)
            port = made.getsockname()[1]
            listeners.append(made)
    except OSError:
        for made in listeners:
            made.close()
        raise
    return listeners


def listen_at(host: str, port: int) -> socket.socket:
    """Listen at a host's first address, which is where others call it.

    Raises:
        InvalidInputError: nothing can listen there.
    """
    with _translated(host, port):
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)


def numeric_host(host: str, port: int) -> str:
    """A host's first address, where `listen_at` listens without looking up a name.

    Raises:
        InvalidInputError: it has none.
    """
    with _translated(host, port):
        return str(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4][0])


@contextlib.contextmanager
def _translated(host: str, port: int) -> Iterator[None]:
    try:
        yield
    except (OSError, OverflowError, UnicodeError) as exc:
        if is_interruption(exc):
            raise
        raise InvalidInputError(
            "can't listen on this host and port", host=host, port=port, reason=str(exc)
        ) from exc


def host_towards(host: str, port: int) -> str:
    """The address of this machine from which it reaches another. Nothing is sent.

    Raises:
        OSError: it does not reach it, or can't find it.
    """
    family, kind, _, _, to = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(to)
        return str(probe.getsockname()[0])


class Entrance:
    """Accepts the connections of a port's listeners without waiting, as far as there is room. It
    keeps a file for one that comes when the process may open no other.

    Args:
        listeners: sockets that listen. They are the entrance's from now on.
        whose: what the log calls the port.
        bounds: of the port.
        selector: watches the listeners while there is room.
        add: takes in what was accepted.
        let_go: hangs up on a caller for another, if no call is lost by that.
        turn_ms: for about this long connections are accepted one after another.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        whose: str,
        bounds: Bounds,
        selector: selectors.BaseSelector,
        *,
        add: Callable[[socket.socket, object], object],
        let_go: Callable[[ServedConnection], object],
        turn_ms: float,
    ) -> None:
        self.listeners = listeners
        self.file_room = FILE_ROOM.take(bounds.connections_max, whose) if listeners else 0
        """To be given back."""
        self.bounds = bounds._replace(connections_max=self.file_room) if listeners else bounds
        """The process's limit on open files may allow fewer connections."""
        self._whose = whose
        self._selector = selector
        self._add = add
        self._let_go = let_go
        self._turn_ms = turn_ms
        self._log = SeldomLog(logger)
        self._spare: io.FileIO | None = None
        self._full = False
        """Whether the process may open no file: others have to go first, or a moment to pass."""
        self._listens = False
        self.due_ms = 0.0
        """When to look next for new connections; infinite while the selector reports them."""
        for listener in listeners:
            listener.setblocking(False)

    def accept(self, callers: Callers[ServedConnection], now_ms: float) -> None:
        """Accept those that have come."""
        room = [self._accept_at(each, callers, now_ms) for each in self.listeners]
        self.due_ms = math.inf if all(room) else now_ms + PAUSE_MS
        self._watch(all(room))

    def stop(self) -> None:
        """Accept no more."""
        self.due_ms = math.inf
        self._watch(False)

    def close(self) -> None:
        """Listen no more."""
        for listener in self.listeners:
            listener.close()
        self._close_spare()

    def _watch(self, listens: bool) -> None:
        if listens != self._listens:
            self._listens = listens
            for listener in self.listeners:
                if listens:
                    self._selector.register(listener, selectors.EVENT_READ)
                else:
                    self._selector.unregister(listener)

    def _accept_at(
        self, listener: socket.socket, callers: Callers[ServedConnection], now_ms: float
    ) -> bool:
        """Accept the connections that wait at a listener. Returns whether more have room."""
        ends_ms = SYSTEM_CLOCK.monotonic_ms() + self._turn_ms
        for _ in range(TOGETHER_MAX):
            if not self._make_room(listener, callers, now_ms):
                return False
            accepted = self._accept(listener)
            if accepted is not None:
                self._add(*accepted)
            if self._full and len(callers):
                callers.shrink()
            elif accepted is None:
                return not self._full
            if SYSTEM_CLOCK.monotonic_ms() > ends_ms:
                break
        return True

    def _make_room(
        self, listener: socket.socket, callers: Callers[ServedConnection], now_ms: float
    ) -> bool:
        """See that there may be another connection."""
        for _ in range(TOGETHER_MAX):
            if callers.has_room or not _is_knocked(listener):  # Nobody goes for nobody.
                return True
            caller = callers.to_make_room(now_ms)
            if caller is None:
                break
            self._let_go(caller)
        connections = self.bounds.connections_max
        self._log.warning("%s has %d connections, all in use", self._whose, connections)
        return False

    def _accept(self, listener: socket.socket) -> tuple[socket.socket, object] | None:
        """The next connection, which does not block, and its other side; None if there is none, or
        no file for one.
        """
        self._keep_spare()
        try:
            sock, peer = listener.accept()
        except OSError as exc:
            if exc.errno not in OUT_OF_FILES:
                return None
            self._log.warning("%s can accept no more connections: %s", self._whose, exc)
            self._close_spare()
            self._full = True
            try:
                sock, peer = listener.accept()
            except OSError:
                return None
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:  # It has gone already.
            sock.close()
            return None
        return sock, peer

    def _keep_spare(self) -> None:
        if self._spare is None:
            try:
                self._spare = io.FileIO(os.devnull)
            except OSError:
                self._full = True
                return
        self._full = False

    def _close_spare(self) -> None:
        if self._spare is not None:
            self._spare.close()
            self._spare = None


def _is_knocked(listener: socket.socket) -> bool:
    """Whether there is a connection to accept."""
    waiting = select.poll()
    waiting.register(listener, select.POLLIN)
    return bool(waiting.poll(0))
