"""One connection to a server, with several requests under way."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Sequence

from hqueue.hbase.native.calls import Call, Calls, UnsentError
from hqueue.hbase.native.opening import Opened
from hqueue.hbase.native.receiving import Receiver
from hqueue.hbase.native.wire import Answer, RemoteError, read_answer
from hqueue.net.layers import Layer, gathered
from hqueue.net.refusals import RefusedError
from hqueue.runtime.held import Held, if_free
from hqueue.runtime.interrupts import is_interruption
from hqueue.runtime.waiting import Condition

__all__ = ["BlockingCall", "Connection", "is_readable"]

LOOK_EVERY_S = 0.25
"""How often a caller that waits looks whether anybody reads: who read for it may have been
interrupted."""
PIECES_MAX = 512
"""Of a request, that are given to the system at once; less than ``IOV_MAX``."""


class BlockingCall(Call):
    """A request under way, whose caller waits for it in its thread."""

    def __init__(self, ends_s: float) -> None:
        super().__init__(ends_s)
        self._signal = threading.Lock()
        self._signal.acquire()

    def wake(self) -> None:
        """Let `wait` return. The caller has the connection's lock."""
        if self._signal.locked():
            self._signal.release()

    def wait(self) -> None:
        """Until it is woken, or its time is over; for a moment at most."""
        left_s = min(LOOK_EVERY_S, self.left_s)
        self._signal.acquire(timeout=max(0.0, left_s))


class Connection:
    """A connection. Thread-safe.

    Requests are told apart by their numbers; each has a bound of its own, and holds up no other.
    There is no thread: of those that wait for answers one reads, for all; when it has its own,
    another goes on. What comes too late is thrown away.

    A caller may be interrupted anywhere, by a handler of a signal. What it leaves behind is a
    request that nobody waits for, which is given up when its time is over; and where it was sending
    or reading, the connection is closed.

    Args:
        opened: what was opened; from now on the connection's.
    """

    def __init__(self, opened: Opened) -> None:
        self._socket = opened.socket
        self._socket.setblocking(False)
        self._layer = opened.layer
        self._receiver = Receiver(opened.socket, opened.frames)
        self._lock = threading.RLock()
        self._sending = threading.Lock()
        self._reading = threading.Lock()
        self._room = Condition(self._lock)
        self._calls = Calls[BlockingCall]()
        """Under the lock."""
        self._within: list[int] = []
        """The threads that send, or wait for answers. What interrupts one of them, a handler of a
        signal or a finalizer, can't wait for it, and opens another connection."""

    def begin(
        self, method: bytes, message: bytes, cells: Sequence[bytes], cell_bytes: int, ends_s: float
    ) -> BlockingCall:
        """Send a request; `finish` waits for its answer, and must be called.

        Args:
            method: the service's method.
            message: its argument.
            cells: the pieces of a cell block.
            cell_bytes: their bytes together.
            ends_s: when it is given up, by `time.monotonic`.

        Raises:
            UnsentError: it was not sent.
        """
        call = BlockingCall(ends_s)
        self._within.append(threading.get_ident())
        try:
            with self._lock:
                self._await_room(call)
                self._calls.add(call)
            front = call.front(method, message, cell_bytes)
            self._send(call, [front, *cells])
        except BaseException:
            self._leave(call)
            raise
        finally:
            self._within.remove(threading.get_ident())
        return call

    def finish(self, call: BlockingCall) -> Answer | RemoteError:
        """Wait for an answer.

        Raises:
            UnsentError: it was not sent.
            RefusedError: the server refused the connection, and did nothing.
            NoAnswerError: none came in time, or the connection ended.
        """
        self._within.append(threading.get_ident())
        try:
            call.awaited = True
            self._await_answer(call)
            return call.answer()
        finally:
            self._leave(call)
            self._within.remove(threading.get_ident())

    @property
    def usable(self) -> bool:
        """Whether a request can be sent by it. An idle one is looked at: the server may have gone,
        and what is sent then would be in doubt.
        """
        with self._lock:
            if not self._calls.usable or threading.get_ident() in self._within:
                return False
            self._calls.bury()
            # Late answers may lie there: they are read with the next request's.
            return not self._calls.silent or not is_readable(self._socket)

    @property
    def used_s(self) -> float:
        """When a caller left last, by `time.monotonic`."""
        return self._calls.used_s

    def retire(self) -> None:
        """Use it for no further request; close it when the last one has its answer."""
        with self._lock:
            self._calls.retired = True
            self._close_if_unused()

    def close(self) -> None:
        """Close it now: requests under way get no answer. Never raises."""
        self._fail(ConnectionError("the connection was closed"))

    def abandon(self) -> None:
        """Let go of the parent's connection, in a forked child; it stays open for the parent."""
        self._calls.failure = ConnectionError("this connection belongs to the parent process")
        self._socket.close()

    def _await_answer(self, call: BlockingCall) -> None:
        """Read, or wait for another caller that does, as long as there is time."""
        while call.result is None and time.monotonic() < call.ends_s:
            if not if_free(self._reading, lambda: self._read_until(call)):
                call.wait()

    def _await_room(self, call: BlockingCall) -> None:
        """Wait until one more request may be under way. The lock is held."""
        while not self._calls.has_room():
            if call.left_s <= 0:
                raise UnsentError("too many requests are under way to this server")
            self._room.wait(min(LOOK_EVERY_S, call.left_s))

    def _send(self, call: BlockingCall, pieces: list[bytes]) -> None:
        late = UnsentError("the time limit passed before the request was sent")
        if (left_s := call.left_s) <= 0:
            raise late
        with Held(self._sending, left_s, lambda: late):
            left = [memoryview(piece) for piece in filter(None, pieces)]
            size = sum(map(len, left))
            try:
                if self._layer is None:
                    self._pass_on(left, call.ends_s)
                else:
                    self._pass_on_sealed(left, self._layer, call.ends_s)
                call.sent_s = time.monotonic()
            except BaseException as exc:
                # Half a request is never done; but nothing can follow it on this connection.
                if is_interruption(exc) or not isinstance(exc, OSError):
                    self._fail(exc)
                    raise
                begun = sum(map(len, left)) < size
                cause = exc if isinstance(exc, TimeoutError) else self._refusal() or exc
                if begun or not isinstance(exc, TimeoutError):
                    self._fail(cause)
                raise UnsentError(f"{type(cause).__name__}: {cause}") from cause

    def _refusal(self) -> RefusedError | None:
        """Why the server closed the connection, if it refused it."""
        found: list[RefusedError | None] = [None]
        if self._layer is not None:
            if_free(self._reading, lambda: found.append(self._receiver.refusal()))
        return found[-1]

    def _pass_on_sealed(self, left: list[memoryview], layer: Layer, ends_s: float) -> None:
        """Seal what is left, some at a time, and send it. What is sealed must be sent."""
        for piece in gathered(left.copy()):
            left.clear()
            self._pass_on([memoryview(layer.seal(piece))], ends_s)

    def _pass_on(self, left: list[memoryview], ends_s: float) -> None:
        """Send what is left, and take out of it what is sent."""
        while left:
            try:
                sent = self._socket.sendmsg(left[:PIECES_MAX])
            except BlockingIOError:
                if not _await(self._socket, select.POLLOUT, ends_s):
                    raise TimeoutError("the server does not read what is sent") from None
                continue
            while left and sent >= len(left[0]):
                sent -= len(left.pop(0))
            if sent:
                left[0] = left[0][sent:]

    def _read_until(self, call: BlockingCall) -> None:
        """Read answers, for whomever, until this one has its own or its time is over."""
        try:
            self._read_on(call)
        except BaseException as exc:
            self._fail(exc)
            if is_interruption(exc) or not isinstance(exc, (OSError, ValueError)):
                raise

    def _read_on(self, call: BlockingCall) -> None:
        while call.result is None:
            frame = self._receiver.frame(call.ends_s)
            if frame is None:
                return
            self._calls.heard_s = time.monotonic()
            self._deliver(*read_answer(frame))

    def _deliver(self, number: int, result: Answer | RemoteError) -> None:
        with self._lock:
            if self._calls.deliver(number, result):
                self._room.notify()

    def _leave(self, call: BlockingCall) -> None:
        """A caller goes, with an answer or without; another reads on."""
        with self._lock:
            if not self._calls.leave(call):
                return
            self._room.notify()
            if (other := next(self._calls.waiting(), None)) is not None:
                other.wake()
            self._close_if_unused()

    def _fail(self, failure: BaseException) -> None:
        with self._lock:
            if self._calls.fail(failure):
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
            self._room.notify_all()
            self._close_if_unused()

    def _close_if_unused(self) -> None:
        """Nobody may close what another thread waits at."""
        if self._calls.over:
            self._calls.fail(ConnectionError("the connection was closed"))
            self._socket.close()


def is_readable(opened: socket.socket) -> bool:
    """Whether a read would not wait: something came, or the other side has closed it."""
    poll = select.poll()
    poll.register(opened, select.POLLIN)
    return bool(poll.poll(0))


def _await(opened: socket.socket, event: int, ends_s: float) -> bool:
    """Wait until a socket is ready; False if the time is over."""
    left_s = ends_s - time.monotonic()
    if left_s <= 0:
        return False
    poll = select.poll()
    poll.register(opened, event)
    return bool(poll.poll(left_s * 1e3))
