"""One connection to a server, with several requests under way."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Sequence

from hqueue.hbase.native.receiving import Receiver
from hqueue.hbase.native.wire import Answer, RemoteError, read_answer, request_front
from hqueue.runtime.held import Held, if_free
from hqueue.runtime.interrupts import is_interruption
from hqueue.runtime.waiting import Condition

__all__ = ["REQUESTS_MAX", "Call", "Connection", "NoAnswerError", "UnsentError"]

REQUESTS_MAX = 256
"""Requests under way on a connection. Those that were given up count until they are answered."""

CALL_NUMBER_MAX = 2**31 - 1
LOOK_EVERY_S = 0.25
"""How often a caller that waits looks whether anybody reads: who read for it may have been
interrupted."""
LEAVE_S = 1.0
"""A caller has left by then, after the time of its request."""
PIECES_MAX = 512
"""Of a request, that are given to the system at once; less than ``IOV_MAX``."""


class UnsentError(ConnectionError):
    """The request never left this process as a whole: the server can't have done it."""


class NoAnswerError(ConnectionError):
    """The request was sent, and no answer came: the server may have done it, or may do it yet."""


class Call:
    """A request under way."""

    def __init__(self, ends_s: float) -> None:
        self.number = 0
        self.ends_s = ends_s
        self.sent_s = 0.0
        self.awaited = False
        """Whether its caller waits for the answer: others may still be sending, and would not read.
        """
        self.result: Answer | RemoteError | BaseException | None = None
        self._signal = threading.Lock()
        self._signal.acquire()

    def wake(self) -> None:
        """Let `wait` return. The caller has the connection's lock."""
        if self._signal.locked():
            self._signal.release()

    def wait(self) -> None:
        """Until it is woken, or its time is over; for a moment at most."""
        left_s = min(LOOK_EVERY_S, self.ends_s - time.monotonic())
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
        opened: the socket; from now on the connection's.
    """

    def __init__(self, opened: socket.socket) -> None:
        opened.setblocking(False)
        self._socket = opened
        self._receiver = Receiver(opened)
        self._lock = threading.RLock()
        self._sending = threading.Lock()
        self._reading = threading.Lock()
        self._room = Condition(self._lock)
        self._calls: dict[int, Call] = {}
        """Those whose callers have not left."""
        self._given_up: set[int] = set()
        """The numbers of those that may still be answered, and that nobody waits for."""
        self._failure: BaseException | None = None
        self._number = 0
        self._heard_s = self.used_s = time.monotonic()
        self.retired = False
        """Whether it is to be used for no further request."""

    def begin(
        self, method: bytes, message: bytes, cells: Sequence[bytes], cell_bytes: int, ends_s: float
    ) -> Call:
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
        call = Call(ends_s)
        try:
            with self._lock:
                self._await_room(ends_s)
                if self._failure is not None:
                    raise UnsentError("the connection is closed") from self._failure
                self._number = call.number = self._number % CALL_NUMBER_MAX + 1
                self._calls[call.number] = call
            left_ms = max(1, int((ends_s - time.monotonic()) * 1e3))
            front = request_front(call.number, method, message, cell_bytes, left_ms)
            self._send(call, [front, *cells])
        except BaseException:
            self._leave(call)
            raise
        return call

    def finish(self, call: Call) -> Answer | RemoteError:
        """Wait for an answer.

        Raises:
            NoAnswerError: none came in time, or the connection ended.
        """
        try:
            call.awaited = True
            self._await_answer(call)
            result = call.result
        finally:
            self._leave(call)
        if result is None:
            raise NoAnswerError("no answer in time")
        if isinstance(result, BaseException) and not isinstance(result, RemoteError):
            raise NoAnswerError(str(result)) from result
        return result

    @property
    def usable(self) -> bool:
        """Whether a request can be sent by it. An idle one is looked at: the server may have gone,
        and what is sent then would be in doubt.
        """
        with self._lock:
            if self._failure is not None or self.retired:
                return False
            self._bury()
            if self._calls:
                return True
            if self._given_up:
                # Late answers lie there, maybe: they are read with the next request's.
                return True
            return not _is_readable(self._socket)

    def retire(self) -> None:
        """Use it for no further request; close it when the last one has its answer."""
        with self._lock:
            self.retired = True
            self._close_if_unused()

    def close(self) -> None:
        """Close it now: requests under way get no answer. Never raises."""
        self._fail(ConnectionError("the connection was closed"))

    def abandon(self) -> None:
        """Let go of the parent's connection, in a forked child; it stays open for the parent."""
        self._failure = ConnectionError("this is the parent process's connection")
        self._socket.close()

    def _await_answer(self, call: Call) -> None:
        """Read, or wait for another caller that does, as long as there is time."""
        while call.result is None and time.monotonic() < call.ends_s:
            if not if_free(self._reading, lambda: self._read_until(call)):
                call.wait()

    def _await_room(self, ends_s: float) -> None:
        """Wait until one more request may be under way. The lock is held."""
        while len(self._calls) + len(self._given_up) >= REQUESTS_MAX:
            self._bury()
            left_s = ends_s - time.monotonic()
            if left_s <= 0:
                raise UnsentError("too many requests are under way to this server")
            self._room.wait(min(LOOK_EVERY_S, left_s))

    def _send(self, call: Call, pieces: list[bytes]) -> None:
        late = UnsentError("there was no time left to send it")
        if (left_s := call.ends_s - time.monotonic()) <= 0:
            raise late
        with Held(self._sending, left_s, lambda: late):
            left = [memoryview(piece) for piece in filter(None, pieces)]
            size = sum(map(len, left))
            try:
                self._pass_on(left, call.ends_s)
                call.sent_s = time.monotonic()
            except BaseException as exc:
                # Half a request is never done; but nothing can follow it on this connection.
                if is_interruption(exc) or not isinstance(exc, OSError):
                    self._fail(exc)
                    raise
                begun = sum(map(len, left)) < size
                if begun or not isinstance(exc, TimeoutError):
                    self._fail(exc)
                raise UnsentError(f"{type(exc).__name__}: {exc}") from exc

    def _pass_on(self, left: list[memoryview], ends_s: float) -> None:
        """Send what is left, and take out of it what is sent."""
        while left:
            try:
                sent = self._socket.sendmsg(left[:PIECES_MAX])
            except BlockingIOError:
                if not _await(self._socket, select.POLLOUT, ends_s):
                    raise TimeoutError("the server takes nothing in") from None
                continue
            while left and sent >= len(left[0]):
                sent -= len(left.pop(0))
            if sent:
                left[0] = left[0][sent:]

    def _read_until(self, call: Call) -> None:
        """Read answers, for whomever, until this one has its own or its time is over."""
        try:
            self._read_on(call)
        except BaseException as exc:
            self._fail(exc)
            if is_interruption(exc) or not isinstance(exc, (OSError, ValueError)):
                raise

    def _read_on(self, call: Call) -> None:
        while call.result is None:
            frame = self._receiver.frame(call.ends_s)
            if frame is None:
                return
            self._heard_s = time.monotonic()
            self._deliver(*read_answer(frame))

    def _deliver(self, number: int, result: Answer | RemoteError) -> None:
        with self._lock:
            call = self._calls.get(number)
            if call is not None:
                call.result = call.result or result
                call.wake()
            elif number in self._given_up:
                self._given_up.remove(number)
                self._room.notify()
            else:
                raise ValueError("an answer to a request that was never made")

    def _leave(self, call: Call) -> None:
        """A caller goes, with an answer or without; another reads on."""
        with self._lock:
            if self._calls.get(call.number) is not call:
                return
            self.used_s = time.monotonic()
            self._forget(call)
            calls = self._calls.values()
            waiting = (each for each in calls if each.awaited and each.result is None)
            if (other := next(waiting, None)) is not None:
                other.wake()
            self._close_if_unused()

    def _bury(self) -> None:
        """Give up requests whose callers were interrupted: their time is over. The lock is held."""
        over_s = time.monotonic() - LEAVE_S
        for call in [each for each in self._calls.values() if each.ends_s < over_s]:
            self._forget(call)

    def _forget(self, call: Call) -> None:
        """Nobody waits for this one. The lock is held."""
        if call.result is None and call.sent_s:
            self._given_up.add(call.number)
            # A server that is gone says nothing any more; one that is slow has said something.
            silent = self._heard_s < call.sent_s
            self.retired |= silent or len(self._given_up) > REQUESTS_MAX // 2
        self._calls.pop(call.number, None)
        self._room.notify()

    def _fail(self, failure: BaseException) -> None:
        with self._lock:
            if self._failure is None:
                self._failure = failure
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
            for call in self._calls.values():
                call.result = call.result or self._failure
                call.wake()
            self._given_up.clear()
            self._room.notify_all()
            self._close_if_unused()

    def _close_if_unused(self) -> None:
        """Nobody may close what another thread waits at."""
        if not self._calls and (self.retired or self._failure is not None):
            self._failure = self._failure or ConnectionError("the connection was closed")
            self._socket.close()


def _is_readable(opened: socket.socket) -> bool:
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
