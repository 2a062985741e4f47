"""A caller's connection: a socket that never blocks, and what has come of a request."""

from __future__ import annotations

import contextlib
import selectors
import socket
import ssl
import struct
from collections.abc import Callable
from contextlib import nullcontext

from hqueue.errors import HQueueError, InvalidInputError, NotAllowedError
from hqueue.net.alerts import HANDSHAKE, TLS_IS_SPOKEN, is_not_tls
from hqueue.net.guard import PortGuard
from hqueue.net.peers import host_of, network_of
from hqueue.net.principals import ANONYMOUS
from hqueue.net.quotas import Account
from hqueue.net.refusals import RefusedError
from hqueue.net.sockets import RECORD_BYTES, WOULD_BLOCK, say_end
from hqueue.rpc.callers import Caller
from hqueue.rpc.calls import NoCallError, TlsHelloError
from hqueue.rpc.gathering import Gatherer, Request
from hqueue.runtime.clock import SYSTEM_CLOCK
from hqueue.runtime.switch_interval import short_turns

__all__ = ["ServedConnection", "drop_unread"]

PIECE_BYTES_MIN, PIECE_BYTES_MAX = 4 * 1024, 256 * 1024
LEAVING_BYTES_MAX = 32 * 1024 * 1024
"""This much a caller that was refused may go on to send: the largest call has less."""
SMALL_BYTES = 16 * 1024
"""A request that has no more is gathered in no time."""
PIECE_MS_MIN, PIECE_MS_MAX = 0.5, 2.0
"""Gathering a piece takes about this long: the next one is larger or smaller if this one did
not.
"""


class ServedConnection(Caller):
    """One caller. It makes one call at a time, as Thrift's clients do. It is the port's, or that of
    what serves it.
    """

    __slots__ = (
        "_guard",
        "_piece_bytes",
        "account",
        "events",
        "forbidden",
        "greets_by_tls",
        "last",
        "leaving",
        "memory_bytes",
        "muted_until_ms",
        "peer",
        "principal",
        "reason",
        "refusal",
        "request",
        "shaking",
        "sock",
        "step",
        "unsent",
        "weight",
    )

    def __init__(
        self,
        sock: socket.socket,
        peer: object,
        gatherer: Gatherer,
        guard: PortGuard | None = None,
    ) -> None:
        super().__init__(gatherer, network_of(host_of(peer)))
        self.sock = sock
        self.peer = peer
        self._guard = guard
        self.shaking = guard is not None
        """Whether its handshake is under way."""
        self.principal: str | None = None
        """Who it has proven to be; `ANONYMOUS` if the port asks for proof, and serves those that
        give none; None if the port asks for none, or it is nobody by its certificate."""
        self.forbidden: NotAllowedError | None = None
        """Why its calls are not served, though it has shown a certificate."""
        self.account: Account | None = None
        """What it has used of its quota, with others; None if it has none, or nobody knows yet who
        calls."""
        self.muted_until_ms = 0.0
        """Until when nothing is received from it once it is answered; 0 if it is not over its
        quota."""
        self._piece_bytes = 4 * PIECE_BYTES_MIN
        self.events = 0
        """What it is watched for."""
        self.request: Request | None = None
        """Which has come, and is not begun."""
        self.weight = 0
        """Of what was made of its request, until that is needed no more."""
        self.memory_bytes = 0
        """What its request was given, if it is large."""
        self.step: Callable[[], bytes | None] | None = None
        """Goes on with a call that was waited for: the reply to it, or None if it has to wait
        again."""
        self.last = False
        """Whether it is hung up on when it has read its answer."""
        self.unsent: memoryview | None = None
        """What the caller has not read yet of its answer."""
        self.reason: str | None = None
        """Why the server hangs up on it; empty if the caller has gone."""
        self.greets_by_tls = False
        """Whether the caller speaks TLS at a port that doesn't: callers with `tls_optional` try
        that first, and then call without."""
        self.refusal: HQueueError | None = None
        """The answer that it gets before, if its request is read so far that it can get one."""
        self.leaving = False
        """Whether it got that answer, and only goes on to send what it has begun."""

    def shake(self) -> int:
        """Go on with the handshake: what it waits for, as a selector has it; 0 when it is over, and
        it is known who calls, or that its calls are forbidden.

        Raises:
            ConnectionError: the caller has gone.
            OSError: the caller has not authenticated.
        """
        guard = self._guard
        assert guard is not None
        if not isinstance(self.sock, ssl.SSLSocket):
            first = self._peek()
            if first is None:
                return selectors.EVENT_READ
            if first != HANDSHAKE:
                self._call_in_clear(guard, first)
                return 0
            try:
                self.sock = guard.wrap(self.sock)
            except OSError as exc:
                raise ConnectionError("the caller has gone") from exc
        try:
            self.sock.do_handshake()
        except ssl.SSLWantReadError:
            return selectors.EVENT_READ
        except ssl.SSLWantWriteError:
            return selectors.EVENT_WRITE
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as exc:
            raise ConnectionError("the caller has gone") from exc
        except ssl.SSLError as exc:
            if is_not_tls(exc):
                socket.socket.send(self.sock, TLS_IS_SPOKEN)
            raise
        try:
            self.principal = guard.principal_of(self.sock)
            self.forbidden = guard.right_missing(self.principal)
        except RefusedError as exc:
            self.forbidden = NotAllowedError(exc.text)
            self.forbidden.facts.update(exc.facts)
        if self.forbidden is None:
            self.holder = self.principal
        self.shaking = False
        return 0

    def _call_in_clear(self, guard: PortGuard, first: bytes) -> None:
        """Its first byte begins no handshake, and the port serves callers without TLS, too.

        Raises:
            ConnectionError: the caller has gone.
        """
        if not first:
            raise ConnectionError("the caller has gone")
        guard.plaintext += 1
        self.principal = ANONYMOUS
        self.forbidden = guard.right_missing(ANONYMOUS)
        self.shaking, self._guard = False, None

    def receive(self) -> Request | None:
        """Take what has come; the request that is whole by that."""
        try:
            data = self._receive(self._piece_bytes)
        except WOULD_BLOCK:
            return None
        except OSError:
            data = b""
        if not data:
            self.reason = ""
            return None
        began_ms = SYSTEM_CLOCK.monotonic_ms()
        self.passed_bytes += len(data)
        self.gatherer.add(data)
        with nullcontext() if self.passed_bytes < SMALL_BYTES else short_turns():
            request = self.gathered()
        took_ms = SYSTEM_CLOCK.monotonic_ms() - began_ms
        if took_ms > PIECE_MS_MAX:
            self._piece_bytes = max(self._piece_bytes // 2, PIECE_BYTES_MIN)
        elif took_ms < PIECE_MS_MIN and len(data) == self._piece_bytes:
            self._piece_bytes = min(2 * self._piece_bytes, PIECE_BYTES_MAX)
        return request

    def gathered(self) -> Request | None:
        """The request that is whole; None if it is not served yet."""
        if self.muted_until_ms:
            return None
        try:
            return self.gatherer.next()
        except NoCallError as exc:
            self.reason = str(exc)
            self.greets_by_tls = isinstance(exc, TlsHelloError)
            self.refusal = InvalidInputError("the server refuses the call", reason=str(exc))
            return None

    def send(self, answer: bytes | memoryview) -> None:
        """Send what the caller takes at once. The rest is left to the port."""
        view = memoryview(answer)
        size = len(view)
        self.unsent = None
        try:
            while view:
                # A piece that was not taken is offered again as it is: TLS does not go back on it.
                sent = self.sock.send(view if self._guard is None else view[:RECORD_BYTES])
                self.passed_bytes += sent
                view = view[sent:]
        except WOULD_BLOCK:
            self.unsent = view
        except OSError:
            self.reason = ""
        if self.account is not None:
            self.account.sent(size - len(view))

    def leave(self, answer: bytes) -> bool:
        """Send a last answer, which goes with a connection that ends cleanly: when the caller has
        sent all that it wants to, it reads that. Whether it was sent.
        """
        self.send(answer)
        if self.unsent is not None or self.reason == "":
            return False
        say_end(self.sock)
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError:
            return False
        self.leaving, self.passed_bytes = True, 0
        return True

    def discard(self) -> bool:
        """Read what has come, and keep nothing. Returns whether more may come."""
        try:
            data = self.sock.recv(PIECE_BYTES_MAX)
        except WOULD_BLOCK:
            return True
        except OSError:
            return False
        self.passed_bytes += len(data)
        return bool(data) and self.passed_bytes <= LEAVING_BYTES_MAX

    def may_go(self) -> bool:
        """Whether no call of it is lost if it is hung up on: one that seems idle may have made one
        since. One that is muted has been asked to make none.
        """
        return self.leaving or bool(self.muted_until_ms) or bool(self.held) or self.is_quiet()

    def has_left(self) -> bool:
        """Whether the caller sends nothing any more, and everything has been received."""
        return self._peek() == b""

    def is_quiet(self) -> bool:
        """Whether nothing has come that was not received yet."""
        return not self._peek()

    def _receive(self, size: int) -> bytes:
        """What has come, about as much as this at most."""
        if self._guard is None:
            return self.sock.recv(size)
        pieces: list[bytes] = []
        try:
            for _ in range(max(1, size // RECORD_BYTES)):
                pieces.append(self.sock.recv(RECORD_BYTES))
                if not pieces[-1]:
                    break
        except WOULD_BLOCK:
            if not pieces:
                raise
        return b"".join(pieces)

    def _peek(self) -> bytes | None:
        """What comes next, as it is on the wire; empty if nothing does any more, None if nothing
        has come yet.
        """
        try:
            return socket.socket.recv(self.sock, 1, socket.MSG_PEEK)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def close(self, *, abort: bool = False) -> None:
        """Hang up; with `abort`, what is still to be read of an answer is not kept for it."""
        if abort:
            drop_unread(self.sock)
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()


def drop_unread(sock: socket.socket) -> None:
    """Have the system keep nothing for the other side when the socket is closed: it would keep what
    was not read, for as long as the other side likes.
    """
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
