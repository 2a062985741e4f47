"""Calls Thrift servers from an event loop."""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Any

from hqueue.net.alerts import refusal_in, refusal_without_tls
from hqueue.net.contexts import TlsContexts
from hqueue.net.sockets import WOULD_BLOCK, open_in_loop
from hqueue.rpc.calls import REPLIES, CallWalk, NoCallError
from hqueue.rpc.messages import decode_reply, encode_call
from hqueue.runtime.sockets import connect, resolve, within
from hqueue.settings.addresses import Address

__all__ = ["Accepts", "AsyncConnection", "UncallableError"]

CONNECT_TIMEOUT_S = 3.0
SEND_BYTES = 64 * 1024
RECEIVE_BYTES = 4_096


Accepts = Callable[[Mapping[str, Any] | None], object]
"""Checks that a server is the right one, by its certificate as `ssl.SSLSocket.getpeercert` returns
it; None if the server does not speak TLS and may be called without. Raises a `RefusedError` if the
server is another one."""


class UncallableError(OSError):
    """A server has no address that may be connected to."""


class AsyncConnection:
    """A connection that is opened when it is needed, and again when it has ended. It makes one call
    at a time, in one event loop.

    Args:
        address: the server's address.
        received_bytes_max: the most bytes of a reply that are kept until it is read.
        containers_max: the most structs, lists and maps that a reply may have.
        connect_timeout_s: the bound on looking up the server's name, and on opening the connection.
        may_send: asked right before each piece of a call is sent.
        may_reach: whether an IP address of the server may be connected to.
        receive_bytes: how many bytes are received at once.
        tls: the TLS contexts. Calls are in clear if None, or if the server does not speak TLS and
            may be called without.
        accepts: checks that the server is the right one.
        on_late: called with the socket of a call that was sent and got no answer in time. It must
            close the socket. If None, such a socket is closed at once.
    """

    def __init__(
        self,
        address: Address,
        received_bytes_max: int,
        containers_max: int = 0,
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        may_send: Callable[[], bool] = lambda: True,
        may_reach: Callable[[str], bool] = lambda ip: True,
        receive_bytes: int = RECEIVE_BYTES,
        tls: TlsContexts | None = None,
        accepts: Accepts = lambda certificate: None,
        on_late: Callable[[socket.socket], object] | None = None,
    ) -> None:
        self._address = address
        self._received_bytes_max = received_bytes_max
        self._containers_max = containers_max
        self._connect_timeout_s = connect_timeout_s
        self._may_reach = may_reach
        self._may_send = may_send
        self._receive_bytes = receive_bytes
        self._tls = tls
        self._accepts = accepts
        self._on_late = on_late
        self.has_sent = False
        """Whether the last call was sent completely."""
        self._has_heard = False
        self._loop = asyncio.get_running_loop()
        self._socket: socket.socket | None = None
        self._calling = False
        self._received = bytearray()
        self._failure: Exception | None = None
        self._changed: asyncio.Future[None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether the next call needs no new connection."""
        return self._socket is not None

    @property
    def received_bytes(self) -> int:
        """How many bytes of a reply came and were not read yet."""
        return len(self._received)

    def is_quiet(self) -> bool:
        """Whether the connection is open, nothing came, and the server has not hung up."""
        if self._socket is None:
            return False
        waiting = select.poll()
        waiting.register(self._socket, select.POLLIN | select.POLLHUP | select.POLLERR)
        return not waiting.poll(0)

    async def open(self, timeout_s: float) -> None:
        """Open the connection, if it is not open.

        Raises:
            UncallableError, socket.gaierror: as `exchange`.
            OSError: the connection can't be opened within the bound.
        """
        if self._socket is None:
            await self._open(timeout_s)

    async def call_method(
        self, service: Any, method: str, *arguments: object, timeout_s: float
    ) -> Any:
        """Call a method of a service, as `hqueue.rpc.services.load` has it, and return the answer.

        Raises:
            Exception: as `exchange`, and as the method declares.
        """
        reply = await self.exchange(encode_call(service, method, *arguments), timeout_s)
        return decode_reply(service, method, reply)

    async def exchange(self, data: bytes, timeout_s: float) -> bytes:
        """Send a call, and return its reply, whose end a `CallWalk` has found.

        As soon as `may_send` forbids it, no further piece is sent: a server does not execute a call
        that is cut off.

        Args:
            data: the call.
            timeout_s: the bound, once there is a connection.

        Raises:
            UncallableError: the server's addresses may not be called.
            RefusedError: one side does not accept the other: the server has done nothing.
            socket.gaierror: the server's name is not known.
            NoCallError: the bytes that came are not a reply.
            OSError, EOFError: no reply came in time. Each of these errors closes the connection.
        """
        walk = CallWalk(self._received_bytes_max, self._containers_max, REPLIES)
        self.has_sent = False
        late = TimeoutError(f"no answer in {timeout_s:g} s")
        try:
            opened = self._socket or await self._open(self._connect_timeout_s)
            self._calling = True
            ends = self._loop.call_later(timeout_s, self.fail, late)
            try:
                await self._send(opened, data)
                self.has_sent = True
                return await self._receive(walk)
            finally:
                ends.cancel()
        except BaseException as exc:
            if exc is late and self.has_sent and self._on_late is not None:
                self._leave_to(self._on_late)
            self.close()
            raise
        finally:
            self._calling = False
            if self._failure is not None or self._received:
                self.close()

    def close(self) -> None:
        """Close the connection. The next call opens another."""
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def abandon(self) -> None:
        """Close the socket if the connection's loop does not run, or is the parent process's."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _leave_to(self, take: Callable[[socket.socket], object]) -> None:
        """Hand the socket over to `take`, which must close it."""
        left, self._socket = self._socket, None
        if left is not None:
            self._loop.remove_reader(left)
            take(left)

    def fail(self, error: Exception) -> None:
        """End the connection. The call that is under way raises the error."""
        self._failure = error
        if not self._calling:
            self.close()
        elif self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._wake()

    async def _open(self, timeout_s: float) -> socket.socket:
        try:
            found = await within(resolve(self._address), timeout_s)
        except asyncio.TimeoutError as exc:
            raise socket.gaierror("its host name can't be resolved") from exc
        allowed = [each for each in found if self._may_reach(str(each[4][0]))]
        if not allowed:
            raise UncallableError("calls to this address are not allowed")
        opened = await open_in_loop(
            lambda: connect(allowed, timeout_s), self._tls, self._address, timeout_s
        )
        if self._tls is not None:
            self._check_accepted(opened)
        self._socket = opened
        self._has_heard = False
        self._failure = None
        self._received.clear()
        self._loop.add_reader(opened, self._on_readable, opened)
        return opened

    def _check_accepted(self, opened: socket.socket) -> None:
        try:
            self._accepts(
                (opened.getpeercert() or {}) if isinstance(opened, ssl.SSLSocket) else None
            )
        except BaseException:
            opened.close()
            raise

    async def _send(self, to: socket.socket, data: bytes) -> None:
        """Send a call piece by piece, each only if it may be sent.

        A process may stand still anywhere, so a transport's buffer can't do this.
        """
        view = memoryview(data)
        while view:
            if not self._may_send():
                raise OSError("the session is not confirmed")
            try:
                view = view[to.send(view[:SEND_BYTES]) :]
            except WOULD_BLOCK:
                self._loop.add_writer(to, self._wake)
                try:
                    await self._change()
                finally:
                    self._loop.remove_writer(to)

    async def _receive(self, walk: CallWalk) -> bytes:
        while (end := walk.end(self._received)) is None:
            await self._change()
        reply = bytes(self._received[:end])
        del self._received[:end]
        return reply

    async def _change(self) -> None:
        """Wait until something was received, or can be sent.

        Raises:
            OSError, EOFError: neither will happen.
        """
        if self._failure is None:
            self._changed = self._loop.create_future()
            try:
                await self._changed
            finally:
                self._changed = None
        if self._failure is not None:
            raise self._failure

    def _on_readable(self, of: socket.socket) -> None:
        try:
            data = of.recv(self._receive_bytes)
            # No selector sees the rest of a TLS record.
            while data and isinstance(of, ssl.SSLSocket) and (left := of.pending()):
                data += of.recv(left)
        except WOULD_BLOCK:
            return
        except OSError as exc:
            self.fail(exc if self._has_heard else refusal_in(exc) or exc)
            return
        in_clear = not isinstance(of, ssl.SSLSocket)
        refusal = refusal_without_tls(data) if in_clear and not self._has_heard else None
        self._has_heard = self._has_heard or bool(data)
        if not data:
            self.fail(EOFError("the other side closed the connection"))
        elif refusal is not None:
            self.fail(refusal)
        elif not self._calling:
            self.fail(EOFError("the other side sent bytes without a call"))
        elif len(self._received) + len(data) > self._received_bytes_max:
            self.fail(NoCallError("the other side's answer does not end"))
        else:
            self._received += data
            self._wake()

    def _wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)
