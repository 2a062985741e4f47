"""Accepting connections, within the files that the process may have open."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import resource
import select
import socket
import threading

from hqueue.runtime.seldom import SeldomLog

__all__ = ["BACKLOG", "FILE_ROOM", "Acceptor", "FileRoom", "listen", "raise_file_limit"]

logger = logging.getLogger(__name__)

BACKLOG = 4_096
"""Connections that wait to be accepted, as far as the system allows. For one more a client waits a
second before it knocks again, and bursts of connections come by the hundred."""
OTHER_FILES = 256
"""What a process has open beside the connections of those that call it, at most: connections of its
own, threads' pipes, logs. A process that may have fewer than four times that keeps a quarter."""
CONNECTIONS_MIN = 8
OUT_OF_FILES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class FileRoom:
    """How many connections the servers of this process may have, by the limit on its open files.
    Each has what it wants, if there is enough; else half of what is left. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = 0

    def take(self, wanted: int, whose: str) -> int:
        """So many connections a server may have; it is logged if they are fewer than it wants."""
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if limit == resource.RLIM_INFINITY:
            limit = 2**31
        with self._lock:
            left = limit - min(OTHER_FILES, limit // 4) - self._taken
            given = wanted if wanted <= left else max(CONNECTIONS_MIN, min(wanted, left // 2))
            self._taken += given
        if given < wanted:
            logger.warning(
                "%s takes %d connections instead of %d: the process may open %d files (ulimit -n)",
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


class Acceptor:
    """Accepts the connections of one listener without waiting. It keeps a file for one that comes
    when the process may open no other.

    Args:
        listener: a socket that listens. It is the acceptor's from now on.
        whose: what the log calls the server.
    """

    def __init__(self, listener: socket.socket, whose: str) -> None:
        self.listener = listener
        self._whose = whose
        self._log = SeldomLog(logger)
        self._spare: int | None = None
        self.full = False
        """Whether the process may open no file: others have to go first, or a moment to pass."""
        listener.setblocking(False)

    def accept(self) -> tuple[socket.socket, object] | None:
        """The next connection, which does not block, and its other side; None if there is none, or
        no file for one.
        """
        self._keep_spare()
        try:
            sock, peer = self.listener.accept()
        except OSError as exc:
            if exc.errno not in OUT_OF_FILES:
                return None
            self._log.warning("%s can accept no more connections: %s", self._whose, exc)
            self._close_spare()
            self.full = True
            try:
                sock, peer = self.listener.accept()
            except OSError:
                return None
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:  # It has gone already.
            sock.close()
            return None
        return sock, peer

    def is_knocked(self) -> bool:
        """Whether there is a connection to accept."""
        waiting = select.poll()
        waiting.register(self.listener, select.POLLIN)
        return bool(waiting.poll(0))

    def close(self) -> None:
        """Accept no more."""
        self.listener.close()
        self._close_spare()

    def _keep_spare(self) -> None:
        if self._spare is None:
            try:
                self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                self.full = True
                return
        self.full = False

    def _close_spare(self) -> None:
        spare, self._spare = self._spare, None  # Closed twice, it may be somebody else's.
        if spare is not None:
            os.close(spare)
