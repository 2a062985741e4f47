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

__all__ = ["REQUESTS_MAX", "Call", "Connection", "NoAnswerError", "UnsentError"]

REQUESTS_MAX = 256
"""Requests under way on a connection. Those that were given up count until they are answered."""

CALL_NUMBER_MAX = 2**31 - 1
PIECES_MAX = 512
"""Of a request, that are given to the system at once; less than ``IOV_MAX``."""


class UnsentError(ConnectionError):
    """The request never left this process as a whole: the server can't have done it."""


class NoAnswerError(ConnectionError):
    """The request was sent, and no answer came: the server may have done it, or may do it yet."""


class Call:
    """A request under way."""

    def __init__(self, number: int, ends_s: float) -> None:
        self.number = number
        self.ends_s = ends_s
        self.sent_s = 0.0
        self.result: Answer | RemoteError | BaseException | None = None
        self._signal = threading.Lock()
        self._signal.acquire()

    def wake(self) -> None:
        """Let `wait` return. The caller has the connection's lock."""
        if self._signal.locked():
            self._signal.release()

    def wait(self) -> None:
        """Until it is woken, or its time is over."""
        self._signal.acquire(timeout=max(0.0, self.ends_s - time.monotonic()))


class Connection:
    """A connection. Thread-safe.

    Requests are told apart by their numbers; each has a bound of its own, and holds up no other.
    There is no thread: of those that wait for answers one reads, for all; when it has its own,
    another goes on. What comes too late is thrown away.

    Args:
        opened: the socket; from now on the connection's.
    """

    def __init__(self, opened: socket.socket) -> None:
        opened.setblocking(False)
        self._socket = opened
        self._receiver = Receiver(opened)
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._room = threading.Semaphore(REQUESTS_MAX)
        self._waiting: dict[int, Call] = {}
        self._awaited: dict[int, Call] = {}
        """Those whose callers are in `finish`: others may still be sending, and would not read."""
        self._given_up: set[int] = set()
        self._users = 0
        self._reading = False
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
        if not self._room.acquire(timeout=max(0.0, ends_s - time.monotonic())):
            raise UnsentError("too many requests are under way to this server")
        with self._lock:
            if self._failure is not None:
                self._room.release()
                raise UnsentError("the connection is closed") from self._failure
            self._number = self._number % CALL_NUMBER_MAX + 1
            call = self._waiting[self._number] = Call(self._number, ends_s)
            self._users += 1
        try:
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
            while call.result is None:
                with self._lock:
                    self._awaited[call.number] = call
                    reads = not self._reading and call.result is None
                    self._reading = self._reading or reads
                if reads:
                    self._read_until(call)
                else:
                    call.wait()
                if call.result is None and time.monotonic() >= call.ends_s:
                    break
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
            if self._users:
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

    def _send(self, call: Call, pieces: list[bytes]) -> None:
        left_s = call.ends_s - time.monotonic()
        if left_s <= 0 or not self._sending.acquire(timeout=left_s):
            raise UnsentError("there was no time left to send it")
        try:
            begun = False
            try:
                views = [memoryview(piece) for piece in pieces if piece]
                while views:
                    try:
                        sent = self._socket.sendmsg(views[:PIECES_MAX])
                    except BlockingIOError:
                        if not _await(self._socket, select.POLLOUT, call.ends_s):
                            raise TimeoutError("the server takes nothing in") from None
                        continue
                    begun = True
                    while views and sent >= len(views[0]):
                        sent -= len(views.pop(0))
                    if sent:
                        views[0] = views[0][sent:]
                call.sent_s = time.monotonic()
            except OSError as exc:
                # Half a request is never done; but nothing can follow it on this connection.
                if begun or not isinstance(exc, TimeoutError):
                    self._fail(exc)
                raise UnsentError(f"{type(exc).__name__}: {exc}") from exc
            except BaseException as exc:
                self._fail(exc)
                raise
        finally:
            self._sending.release()

    def _read_until(self, call: Call) -> None:
        """Read answers, for whomever, until this one has its own or its time is over."""
        try:
            while call.result is None:
                frame = self._receiver.frame(call.ends_s)
                if frame is None:
                    break
                self._heard_s = time.monotonic()
                self._deliver(*read_answer(frame))
        except (OSError, ValueError) as exc:
            self._fail(exc)
        except BaseException as exc:
            self._fail(exc)
            raise
        finally:
            with self._lock:
                self._reading = False

    def _deliver(self, number: int, result: Answer | RemoteError) -> None:
        with self._lock:
            call = self._waiting.pop(number, None)
            if call is not None:
                call.result = result
                call.wake()
            elif number in self._given_up:
                self._given_up.remove(number)
                self._room.release()
            else:
                raise ValueError("an answer to a request that was never made")

    def _leave(self, call: Call) -> None:
        """A caller goes, with an answer or without; another reads on."""
        with self._lock:
            self._users -= 1
            self._awaited.pop(call.number, None)
            self.used_s = time.monotonic()
            if self._waiting.pop(call.number, None) is None or not call.sent_s:
                self._room.release()
            else:
                self._given_up.add(call.number)
                # A server that is gone says nothing any more; one that is slow has said something.
                silent = self._heard_s < call.sent_s
                self.retired |= silent or len(self._given_up) > REQUESTS_MAX // 2
            if not self._reading:
                for other in self._awaited.values():
                    other.wake()
                    break
            self._close_if_unused()

    def _fail(self, failure: BaseException) -> None:
        with self._lock:
            if self._failure is None:
                self._failure = failure
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
            for call in self._waiting.values():
                call.result = self._failure
                call.wake()
            self._waiting.clear()
            for _ in self._given_up:
                self._room.release()
            self._given_up.clear()
            self._close_if_unused()

    def _close_if_unused(self) -> None:
        """Nobody may close what another thread waits at."""
        if not self._users and (self.retired or self._failure is not None):
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
