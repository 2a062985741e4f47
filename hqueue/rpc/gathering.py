"""Whole requests from the bytes of one caller, as they come. No I/O: whatever reads the bytes,
threads or an event loop, has them gathered here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from hqueue.rpc.calls import HEAD_BYTES_MAX, CallWalk, NoCallError

__all__ = ["CallGatherer", "FrameGatherer", "Gatherer", "HeadGatherer", "QuickCall", "Request"]


class QuickCall(Protocol):
    """Reads and answers a call in the layout that most have, faster than a Thrift library does."""

    def end(self, data: bytes | bytearray) -> int | None:
        """Like `CallWalk.end`. A `NoCallError` says that the call is not for it to read."""

    def answer(self) -> bytes:
        """Do what the call says; the reply to it."""

    @property
    def made_bytes(self) -> int:
        """What was made of the call so far takes this much memory beside its bytes, about."""


class Request(NamedTuple):
    """A whole request."""

    data: bytes | bytearray
    """Its bytes; empty where `answer` has read them."""
    weight: int
    """The memory that it takes while it is handled, about: counted before anything is made."""
    answer: Callable[[], bytes] | None = None
    """What answers it, if a `QuickCall` has read it."""
    head: bytes = b""
    """Its first bytes, then."""

    @property
    def begun(self) -> bytes:
        """Its first bytes, as many as the head of a call may have."""
        return self.head or bytes(self.data[:HEAD_BYTES_MAX])


class Gatherer(Protocol):
    """Gathers requests."""

    @property
    def held(self) -> int:
        """The memory that the begun request takes, and what has come after it, about."""

    @property
    def begun(self) -> bytes:
        """The first bytes of the begun request, as many as the head of a call may have."""

    def add(self, data: bytes) -> None:
        """Something has come."""

    def next(self) -> Request | None:
        """The next whole request, which is held here no more; None if it has not come yet.

        Raises:
            NoCallError: what came is not a call, whatever follows.
        """


class _Received:
    """What has come of one caller, from the first byte of the request on that comes."""

    __slots__ = ("_received",)

    def __init__(self) -> None:
        self._received = bytearray()

    @property
    def held(self) -> int:
        return len(self._received)

    @property
    def begun(self) -> bytes:
        return bytes(self._received[:HEAD_BYTES_MAX])

    def add(self, data: bytes) -> None:
        self._received += data

    def _take(self, start: int, end: int) -> bytes | bytearray:
        """These bytes; they and those before them are forgotten."""
        if not start and end == len(self._received):  # As it mostly is. No copy of a large one.
            whole, self._received = self._received, bytearray()
            return whole
        with memoryview(self._received) as view, view[start:end] as taken:
            data = bytes(taken)
        self._drop(end)
        return data

    def _drop(self, count: int) -> None:
        # What is left fits a small piece. Of the large one no memory is kept.
        self._received = self._received[count:]


class CallGatherer(_Received):
    """Gathers calls of Thrift's binary protocol, unframed. All looks at a call together take time
    in proportion to its bytes, in however many pieces it comes.

    Args:
        bytes_max: what a call may have.
        containers_max: as `CallWalk` has it.
        made_bytes_max: what is made of a call may take this much memory beside its bytes.
        quick: makes a reader for calls in the usual layout, given the bytes that a call may have.
        quick_bytes_max: what that has made of a call may take this much memory. A heavier call is
            kept as the bytes that it is until it is served.
        answer_bytes: what the answer to a call may take, by the bytes that the call begins with, if
            its weight counts that.
    """

    __slots__ = (
        "_answer_bytes",
        "_bytes_max",
        "_containers_max",
        "_made_bytes_max",
        "_make_quick",
        "_quick",
        "_quick_bytes_max",
        "_walk",
    )

    def __init__(
        self,
        bytes_max: int,
        containers_max: int,
        made_bytes_max: int,
        quick: Callable[[int], QuickCall] | None = None,
        quick_bytes_max: int = 0,
        *,
        answer_bytes: Callable[[bytes], int] | None = None,
    ) -> None:
        super().__init__()
        self._answer_bytes = answer_bytes
        self._bytes_max = bytes_max
        self._containers_max = containers_max
        self._made_bytes_max = made_bytes_max
        self._make_quick = quick
        self._quick_bytes_max = quick_bytes_max
        self._quick: QuickCall | None = None
        self._walk: CallWalk | None = None
        """Both are made when a call begins."""

    @property
    def held(self) -> int:
        return len(self._received) + (self._quick.made_bytes if self._quick else 0)

    def next(self) -> Request | None:
        received = self._received
        if not received:
            return None
        if self._walk is None:
            self._walk = CallWalk(self._bytes_max, self._containers_max)
            self._quick = self._make_quick and self._make_quick(self._bytes_max)
        quick = self._quick
        if quick is not None:
            try:
                end = quick.end(received)
                if quick.made_bytes > self._quick_bytes_max:
                    raise NoCallError("a call of this size is not decoded before its turn")
            except NoCallError:
                self._quick = None  # The walk begins with the first byte.
            else:
                if end is None:
                    self._check_length()
                    return None
                self._quick = self._walk = None
                head = self.begun
                self._drop(end)
                return Request(b"", end + quick.made_bytes, quick.answer, head)
        end = self._walk.end(received)
        self._check(self._walk.made_bytes)
        if end is None:
            self._check_length()
            return None
        weight = end + self._walk.made_bytes
        if self._answer_bytes is not None:
            weight += self._answer_bytes(self.begun)
        self._walk = None
        return Request(self._take(0, end), weight)

    def _check(self, made_bytes: int) -> None:
        if made_bytes > self._made_bytes_max:
            raise NoCallError(
                f"reading the call takes more than {self._made_bytes_max} bytes of memory"
            )

    def _check_length(self) -> None:
        if len(self._received) >= self._bytes_max:
            raise NoCallError(f"the call has more than {self._bytes_max} bytes")


class FrameGatherer(_Received):
    """Gathers frames: four bytes say how long what follows is.

    Args:
        bytes_max: what a frame may have.
    """

    __slots__ = ("_bytes_max",)

    def __init__(self, bytes_max: int) -> None:
        super().__init__()
        self._bytes_max = bytes_max

    def next(self) -> Request | None:
        if len(self._received) < 4:
            return None
        end = 4 + int.from_bytes(self._received[:4], "big")
        if end - 4 > self._bytes_max:
            raise NoCallError(f"the call announces more than {self._bytes_max} bytes")
        if len(self._received) < end:
            return None
        return Request(self._take(4, end), end)


class HeadGatherer(_Received):
    """Gathers the head of one HTTP request: the lines up to an empty one. What follows it is a
    body that nobody wants, or another request, which is not answered: it is left.

    Args:
        bytes_max: what the head may have.
    """

    __slots__ = ("_bytes_max", "_looked")

    def __init__(self, bytes_max: int) -> None:
        super().__init__()
        self._bytes_max = bytes_max
        self._looked = 0

    def next(self) -> Request | None:
        end = self._received.find(b"\r\n\r\n", max(0, self._looked - 3))
        self._looked = len(self._received)
        if end > self._bytes_max or (end < 0 and self._looked > self._bytes_max):
            raise NoCallError(f"the head of the call has more than {self._bytes_max} bytes")
        return Request(self._take(0, end + 4), end) if end >= 0 else None
