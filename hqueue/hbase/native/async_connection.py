"""One connection to a server, with several requests under way, in an event loop."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import cast

from hqueue.hbase.native.calls import Call, Calls, UnsentError
from hqueue.hbase.native.connection import is_readable
from hqueue.hbase.native.opening import Opened
from hqueue.hbase.native.receiving import closed_by_server, refusal_in
from hqueue.hbase.native.wire import Answer, RemoteError, read_answer
from hqueue.net.layers import GATHERED_BYTES, gathered
from hqueue.runtime.interrupts import is_interruption

__all__ = ["AsyncCall", "AsyncConnection"]

LOOK_EVERY_S = 0.25
"""How often a caller that waits for room looks whether there is some."""


class AsyncCall(Call):
    """A request under way, whose caller awaits it."""

    def __init__(self, ends_s: float, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(ends_s)
        self.woken: asyncio.Future[None] = loop.create_future()

    def wake(self) -> None:
        """Like `Call.wake`: once is enough, for it has its result then, or its time is over."""
        if not self.woken.done():
            self.woken.set_result(None)


class AsyncConnection(asyncio.BufferedProtocol):
    """A connection that is driven by the event loop in which it was opened, and used there alone.

    It promises what `hqueue.hbase.native.connection.Connection` promises. A caller may be cancelled
    wherever it waits, without harm to others: a request that was not handed to the transport is not
    sent; of one that was, the answer is thrown away when it comes, and what became of it is
    unknown. Callers wait for room: no more than `REQUESTS_MAX` requests are under way, and the
    transport keeps the rest of one request at most, or of small ones that went together.

    A request that is alone is handed over at once. Small ones that come while others are under way
    go together, when what the loop is about to do is done.

    Use `attach` to make one.

    Args:
        opened: what was opened; from now on the connection's.
    """

    def __init__(self, opened: Opened) -> None:
        self._socket = opened.socket
        self._layer = opened.layer
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._frames = opened.frames
        self._has_heard = False
        self._calls = Calls[AsyncCall]()
        self._room: deque[asyncio.Future[None]] = deque()
        """Who waits for it."""
        self._outbox: list[tuple[AsyncCall, bytes]] = []
        """Requests that go together soon."""
        self._outbox_bytes = 0
        self._drained: asyncio.Future[bool] | None = None
        """While the transport keeps a part of a request: whether that was sent, in the end."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ends_s = 0.0

    @classmethod
    async def attach(cls, opened: Opened) -> AsyncConnection:
        """Have the running loop drive what was opened. It is closed if that can't be done."""
        connection = cls(opened)
        try:
            await connection._loop.create_connection(lambda: connection, sock=opened.socket)
        except BaseException:
            connection.close()
            opened.close()
            raise
        return connection

    async def begin(
        self, method: bytes, message: bytes, cells: Sequence[bytes], cell_bytes: int, ends_s: float
    ) -> AsyncCall:
        """Send a request; `finish` awaits its answer, or `give_up` leaves it: one must be called.

        Args:
            method: the service's method.
            message: its argument.
            cells: the pieces of a cell block.
            cell_bytes: their bytes together.
            ends_s: when it is given up, by `time.monotonic`.

        Raises:
            UnsentError: it was not sent.
        """
        call = AsyncCall(ends_s, self._loop)
        try:
            if not self._calls.has_room():
                await self._await_room(call)
            self._calls.add(call)
            front = call.front(method, message, cell_bytes)
            if self._drained is not None:
                await self._await_drained(call)
            if call.left_s <= 0:
                raise UnsentError("the time limit passed before the request was sent")
            if self._calls.single or cell_bytes + len(front) > GATHERED_BYTES:
                await self._send(call, [front, *filter(None, cells)])
            else:
                self._put_out(call, b"".join((front, *cells)))
        except BaseException:
            self.give_up(call)
            raise
        return call

    async def finish(self, call: AsyncCall) -> Answer | RemoteError:
        """Await an answer.

        Raises:
            UnsentError: it was not sent, in the end.
            RefusedError: the server refused the connection, and did nothing.
            NoAnswerError: none came in time, or the connection ended.
        """
        try:
            if call.result is None and call.left_s > 0:
                self._wake_at(call.ends_s)
                await call.woken
            return call.answer()
        finally:
            self.give_up(call)

    def give_up(self, call: AsyncCall) -> None:
        """Leave a request, with an answer or without."""
        if self._calls.leave(call):
            self._wake_waiter()
            self._close_if_unused()

    @property
    def transport(self) -> asyncio.Transport | None:
        """What sends and receives; None before `attach` has returned."""
        return self._transport

    @property
    def silent(self) -> bool:
        """Whether no answer is awaited."""
        return self._calls.silent

    @property
    def under_way(self) -> int:
        """How many requests are under way whose callers have not left."""
        return self._calls.count

    @property
    def waiting(self) -> int:
        """How many callers wait until one more request may be under way."""
        return len(self._room)

    @property
    def put_out(self) -> int:
        """How many requests go together soon."""
        return len(self._outbox)

    @property
    def sends_part(self) -> bool:
        """Whether the transport keeps a part of a request, which is not sent yet."""
        return self._drained is not None

    @property
    def usable(self) -> bool:
        """Whether a request can be sent by it. An idle one is looked at: the server may have gone,
        and what is sent then would be in doubt.
        """
        if not self._calls.usable or self._transport is None or self._transport.is_closing():
            return False
        return not self._calls.silent or not is_readable(self._socket)

    @property
    def used_s(self) -> float:
        """When a caller left last, by `time.monotonic`."""
        return self._calls.used_s

    def retire(self) -> None:
        """Use it for no further request; close it when the last one has its answer."""
        self._calls.retired = True
        self._close_if_unused()

    def close(self) -> None:
        """Close it now: requests under way get no answer. Never raises."""
        self._fail(ConnectionError("the connection was closed"))

    def abandon(self) -> None:
        """Let go of a connection whose loop is not there any more, or is the parent process's: then
        it stays open for that. The loop is not touched: a child shares what it polls with.
        """
        self._calls.failure = ConnectionError("this connection belongs to another event loop")
        self._socket.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = made = cast("asyncio.Transport", transport)  # uvloop's is one by name.
        # It keeps nothing that it could send, and says so when it has to keep something.
        made.set_write_buffer_limits(high=0)
        if self._calls.failure is not None:
            made.abort()
        self.buffer_updated(0)  # What came while it was opened.

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(exc or closed_by_server(self._frames, has_heard=self._has_heard))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.space()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            self._frames.add(nbytes)
            self._has_heard |= nbytes > 0
            self._deliver()
        except BaseException as exc:
            self._fail(exc)
            if is_interruption(exc) or not isinstance(exc, (OSError, ValueError)):
                raise

    def _deliver(self) -> None:
        while (frame := self._frames.next()) is not None:
            self._calls.heard_s = time.monotonic()
            if self._calls.deliver(*read_answer(frame)):
                self._wake_waiter()

    def pause_writing(self) -> None:
        self._drained = self._loop.create_future()

    def resume_writing(self) -> None:
        self._let_write(True)

    async def _await_room(self, call: AsyncCall) -> None:
        """Wait until one more request may be under way."""
        while not self._calls.has_room():
            if call.left_s <= 0:
                raise UnsentError("too many requests are under way to this server")
            waiter = self._loop.create_future()
            self._room.append(waiter)
            try:
                await asyncio.wait([waiter], timeout=min(LOOK_EVERY_S, call.left_s))
            except BaseException:
                if waiter.done():
                    self._wake_waiter()  # Another one takes what this one was given.
                raise
            finally:
                if not waiter.done():
                    self._room.remove(waiter)

    async def _await_drained(self, call: AsyncCall) -> None:
        """Wait until no other request is sent only in part."""
        while self._drained is not None and call.left_s > 0:
            await asyncio.wait([self._drained], timeout=call.left_s)

    def _wake_waiter(self) -> None:
        if self._room:
            self._room.popleft().set_result(None)

    async def _send(self, call: AsyncCall, pieces: list[bytes]) -> None:
        self._write([call], pieces)
        if (drained := self._drained) is None:
            return
        await asyncio.wait([drained])
        if not drained.result():
            failure = self._calls.failure
            raise UnsentError(f"{type(failure).__name__}: {failure}") from failure

    def _put_out(self, call: AsyncCall, request: bytes) -> None:
        """Let a request go with others, soon."""
        if not self._outbox:
            self._loop.call_soon(self._send_together)
        self._outbox.append((call, request))
        self._outbox_bytes += len(request)
        if self._outbox_bytes > GATHERED_BYTES:
            self._send_together()

    def _send_together(self) -> None:
        """Send what was put out, but for requests whose callers have left."""
        if self._drained is not None:
            return  # They go when that is sent.
        outbox, self._outbox, self._outbox_bytes = self._outbox, [], 0
        left = [(call, request) for call, request in outbox if self._calls.has(call)]
        try:
            if left:
                # As one piece: of several, some would have gone before the one that fails.
                self._write([call for call, _ in left], [b"".join(each for _, each in left)])
        except UnsentError as exc:
            _refuse(left, exc)

    def _write(self, calls: Sequence[AsyncCall], pieces: Sequence[bytes]) -> None:
        """Hand requests over to the transport. If it has to keep a part, nothing follows until that
        is sent; so what takes too long ends the connection, though its callers may have left.

        Raises:
            UnsentError: the connection ended. None was sent as a whole.
        """
        transport = self._transport
        if self._calls.failure is not None or transport is None or transport.is_closing():
            raise UnsentError("the connection is closed") from self._calls.failure
        sent_s = time.monotonic()
        for call in calls:
            call.sent_s = sent_s
        try:
            for piece in gathered(pieces):
                # `writelines` doesn't pause, before Python 3.12.9 and 3.13.2.
                transport.write(piece if self._layer is None else self._layer.seal(piece))
        except OSError as exc:  # Of the layer. Half a request is never done.
            self._fail(exc)
            raise UnsentError(f"{type(exc).__name__}: {exc}") from exc
        if transport.is_closing():  # That failed: half a request is never done.
            refusal = None if self._layer is None else refusal_in(self._socket, self._frames)
            if refusal is not None:
                self._fail(refusal)
            raise UnsentError("the connection is closed") from refusal
        if (drained := self._drained) is not None:
            left_s = max(0.0, *(call.left_s for call in calls))
            stuck = self._loop.call_later(left_s, self._end_if_stuck, drained)
            drained.add_done_callback(lambda _: stuck.cancel())

    def _end_if_stuck(self, drained: asyncio.Future[bool]) -> None:
        if not drained.done():
            self._fail(TimeoutError("the server does not read what is sent"))

    def _let_write(self, was_sent: bool) -> None:
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(was_sent)
        if was_sent and self._outbox:
            self._send_together()

    def _wake_at(self, ends_s: float) -> None:
        """Have callers woken by then whose time is over. One timer does for all."""
        if self._timer is not None:
            if self._timer_ends_s <= ends_s:
                return
            self._timer.cancel()
        self._timer_ends_s = ends_s
        left_s = max(0.0, ends_s - time.monotonic())
        self._timer = self._loop.call_later(left_s, self._wake_expired)

    def _wake_expired(self) -> None:
        self._timer = None
        next_s = self._calls.expire()
        if next_s is not None:
            self._wake_at(next_s)

    def _fail(self, failure: BaseException) -> None:
        outbox, self._outbox = self._outbox, []
        _refuse(outbox, failure)
        if self._calls.fail(failure) and self._transport is not None:
            self._transport.abort()
        self._let_write(False)
        while self._room:
            self._wake_waiter()
        self._close_if_unused()

    def _close_if_unused(self) -> None:
        if self._calls.over:
            if self._transport is not None:
                self._transport.close()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None


def _refuse(outbox: Iterable[tuple[AsyncCall, bytes]], failure: BaseException) -> None:
    """Let callers know that their requests were not sent."""
    for call, _ in outbox:
        call.result = call.result or UnsentError(f"the connection is closed: {failure}")
        call.wake()
