"""The requests of one connection: how many may be under way, which answer belongs to which, and
what becomes of those that are answered late or never.

There is no I/O here and no waiting: `hqueue.hbase.native.connection` drives it with threads that
block, `hqueue.hbase.native.async_connection` from an event loop.
"""

from __future__ import annotations

import abc
import time
from collections.abc import Iterator
from typing import Generic, TypeVar

from hqueue.hbase.native.translation import connection_refusal
from hqueue.hbase.native.wire import WHOLE_CONNECTION, Answer, RemoteError, request_front
from hqueue.net.refusals import RefusedError

__all__ = ["REQUESTS_MAX", "Call", "Calls", "NoAnswerError", "UnsentError"]

REQUESTS_MAX = 256
"""Requests under way on a connection. Those that were given up count until they are answered."""

CALL_NUMBER_MAX = 2**31 - 1
LEAVE_S = 1.0
"""A caller has left by then, after the time of its request."""


class UnsentError(ConnectionError):
    """The request was not sent completely: the server can't have executed it."""


class NoAnswerError(ConnectionError):
    """The request was sent, and no answer came: the server may have executed it, or may still do
    so.
    """


class Call(abc.ABC):
    """A request under way.

    Args:
        ends_s: when it is given up, by `time.monotonic`.
    """

    def __init__(self, ends_s: float) -> None:
        self.number = 0
        self.ends_s = ends_s
        self.sent_s = 0.0
        self.awaited = False
        """Whether its caller waits for the answer: others may still be sending, and would not read.
        """
        self.result: Answer | RemoteError | BaseException | None = None

    @property
    def left_s(self) -> float:
        """The time that is left for it; none at 0 and below."""
        return self.ends_s - time.monotonic()

    @abc.abstractmethod
    def wake(self) -> None:
        """Let its caller look at `result`, and at the time, again. Never raises, nor waits."""

    def front(self, method: bytes, message: bytes, cell_bytes: int) -> bytes:
        """Its frame up to its cell block. The server is asked for no more time than is left."""
        left_ms = max(1, int(self.left_s * 1e3))
        return request_front(self.number, method, message, cell_bytes, left_ms)

    def answer(self) -> Answer | RemoteError:
        """Its answer, once its time is over or it has a result.

        Raises:
            UnsentError: it was not sent before.
            RefusedError: the server refused the connection, and did nothing.
            NoAnswerError: none came in time, or the connection ended.
        """
        result = self.result
        if result is None and not self.sent_s:
            raise UnsentError("the time limit passed before the request was sent")
        if result is None:
            raise NoAnswerError("the server did not answer in time")
        if isinstance(result, (UnsentError, RefusedError)):
            raise result
        if isinstance(result, BaseException) and not isinstance(result, RemoteError):
            raise NoAnswerError(str(result)) from result
        return result


Under = TypeVar("Under", bound=Call)


class Calls(Generic[Under]):
    """The requests of one connection. One caller at a time: its driver sees to that.

    Args:
        number_max: the largest number of a request, after which they begin again at 1.
    """

    def __init__(self, number_max: int = CALL_NUMBER_MAX) -> None:
        self._number_max = number_max
        self._under_way: dict[int, Under] = {}
        """Those whose callers have not left."""
        self._given_up: set[int] = set()
        """The numbers of those that may still be answered, and that nobody waits for."""
        self._number = 0
        self.failure: BaseException | None = None
        """Why the connection ended."""
        self._answered = False
        """Whether the server answered any request, and so accepted the connection."""
        self.retired = False
        """Whether the connection will be used for no further request."""
        self.heard_s = self.used_s = time.monotonic()

    def has_room(self) -> bool:
        """Whether one more request may be under way. Without a connection none is, and there is."""
        if len(self._under_way) + len(self._given_up) < REQUESTS_MAX:
            return True
        self.bury()
        return len(self._under_way) + len(self._given_up) < REQUESTS_MAX

    def add(self, call: Under) -> None:
        """Give a request its number. `leave` must follow.

        Raises:
            UnsentError: the connection ended.
        """
        if self.failure is not None:
            raise UnsentError("the connection is closed") from self.failure
        self._number = call.number = self._number % self._number_max + 1
        self._under_way[call.number] = call

    def has(self, call: Under) -> bool:
        """Whether its caller has not left."""
        return self._under_way.get(call.number) is call

    def deliver(self, number: int, result: Answer | RemoteError) -> bool:
        """Give an answer to its caller, or discard it if the caller has left. Returns whether that
        made room.

        Raises:
            OSError: the server says that the connection ends; `RefusedError` if it refused it.
            ValueError: no request has that number.
        """
        if number == WHOLE_CONNECTION and isinstance(result, RemoteError):
            raise connection_refusal(result, was_accepted=self._answered)
        self._answered = True
        call = self._under_way.get(number)
        if call is not None:
            call.result = call.result or result
            call.wake()
            return False
        if number not in self._given_up:
            raise ValueError("the server answered a request that was never made")
        self._given_up.remove(number)
        return True

    def leave(self, call: Under) -> bool:
        """Note that a caller goes, with an answer or without. Returns whether it was there, which
        made room.
        """
        if not self.has(call):
            return False
        self.used_s = time.monotonic()
        self._drop(call)
        return True

    def bury(self) -> None:
        """Give up requests whose callers were interrupted: their time is over."""
        over_s = time.monotonic() - LEAVE_S
        for call in [each for each in self._under_way.values() if each.ends_s < over_s]:
            self._drop(call)

    def fail(self, failure: BaseException) -> bool:
        """The connection ended: nobody gets an answer any more. Whether this is how it ended, and
        not an earlier failure.
        """
        is_first = self.failure is None
        if self.failure is None:
            self.failure = failure
        for call in self._under_way.values():
            call.result = call.result or self.failure
            call.wake()
        self._given_up.clear()
        return is_first

    def expire(self) -> float | None:
        """Wake the callers whose time is over; when that of the next one is, if there is one."""
        now_s = time.monotonic()
        ends_s = [call.ends_s for call in self._under_way.values() if call.ends_s > now_s]
        for call in self._under_way.values():
            if call.ends_s <= now_s:
                call.wake()
        return min(ends_s, default=None)

    def waiting(self) -> Iterator[Under]:
        """The requests whose callers wait for an answer, the oldest first."""
        return (each for each in self._under_way.values() if each.awaited and each.result is None)

    @property
    def count(self) -> int:
        """How many requests there are whose callers have not left."""
        return len(self._under_way)

    @property
    def usable(self) -> bool:
        """Whether another request may be sent on the connection, as far as it is known."""
        return self.failure is None and not self.retired

    @property
    def single(self) -> bool:
        """Whether one request alone is under way."""
        return len(self._under_way) == 1

    @property
    def silent(self) -> bool:
        """Whether no answer can come: an idle connection that has something to read has ended."""
        return not self._under_way and not self._given_up

    @property
    def over(self) -> bool:
        """Whether the connection must be closed: nobody uses it, and nobody will."""
        return not self._under_way and not self.usable

    def _drop(self, call: Under) -> None:
        """Nobody waits for this one."""
        if call.result is None and call.sent_s:
            self._given_up.add(call.number)
            # A server that is gone says nothing any more; one that is slow has said something. Of
            # one that was not given its time, nothing is known.
            silent = self.heard_s < call.sent_s and call.left_s <= 0
            self.retired |= silent or len(self._given_up) > REQUESTS_MAX // 2
        self._under_way.pop(call.number, None)
