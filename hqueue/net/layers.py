"""Transforms the bytes of a connection in layers, without I/O: TLS, and SASL's frames."""

from __future__ import annotations

import abc
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Protocol

from hqueue.net.framing import LENGTH, Beginning, Frames

__all__ = ["GATHERED_BYTES", "Layer", "Secured", "Stacked", "Wrapping", "gathered"]

GATHERED_BYTES = 64 * 1024
"""Pieces of a request are joined up to this size: a copy costs less than another call."""

WRAPPED_BYTES = 64 * 1024
"""In one frame of ours. Smaller ones take more time, larger ones no less."""

FRAME_OVERHEAD_BYTES_MAX = 64 * 1024


class Layer(abc.ABC):
    """Transforms bytes between a socket and its user. One thread may seal while another one reads.
    After an error the connection can't be used any more.
    """

    @abc.abstractmethod
    def seal(self, data: bytes | memoryview) -> bytes:
        """Return the bytes to send for data.

        Raises:
            OSError: the layer can't.
        """

    @abc.abstractmethod
    def feed(self, received: memoryview) -> None:
        """Take in received bytes. `read_into` returns their data.

        Raises:
            OSError: they were changed on their way.
            ValueError: they are not what the layer has.
        """

    @abc.abstractmethod
    def read_into(self, space: memoryview) -> int:
        """Take out what came, as many bytes as fit; 0 if there are none now.

        Raises:
            OSError: it was changed on its way, or the other side ended the connection.
        """


class Stacked(Layer):
    """Puts a layer into another one.

    Args:
        outer: the layer at the socket.
        inner: the layer within.
    """

    def __init__(self, outer: Layer, inner: Layer) -> None:
        self._outer = outer
        self._inner = inner
        self._between = memoryview(bytearray(GATHERED_BYTES))

    def seal(self, data: bytes | memoryview) -> bytes:
        return self._outer.seal(self._inner.seal(data))

    def feed(self, received: memoryview) -> None:
        self._outer.feed(received)

    def read_into(self, space: memoryview) -> int:
        # What came before an error is taken out before it is raised.
        while not (filled := self._inner.read_into(space)):
            taken = self._outer.read_into(self._between)
            if not taken:
                break
            self._inner.feed(self._between[:taken])
        return filled


class Wrapper(Protocol):
    """Wraps data into tokens that nobody can change, or read."""

    def wrap(self, data: bytes) -> bytes: ...

    def unwrap(self, token: bytearray) -> bytes: ...


class Wrapping(Layer):
    """Wraps data in SASL's security layer: each frame is a length and a token.

    The frames are records of a stream: where one ends means nothing. A server does not keep to a
    bound that it was given, so a frame may be as long as an answer.

    Args:
        wrapper: makes tokens, and takes them apart.
        bytes_max: what the longest frame may have in it.
        beginning: looks at what comes first, if anything does.
    """

    def __init__(
        self, wrapper: Wrapper, bytes_max: int, beginning: Beginning | None = None
    ) -> None:
        self._wrapper = wrapper
        self._frames = Frames(bytes_max + FRAME_OVERHEAD_BYTES_MAX, beginning)
        self._clear: deque[memoryview] = deque()
        self._lock = threading.RLock()
        """The wrapper is for one thread at a time."""

    def seal(self, data: bytes | memoryview) -> bytes:
        return b"".join(map(self._wrapped, _cut(memoryview(data))))

    def _wrapped(self, data: memoryview) -> bytes:
        with self._lock:
            token = self._wrapper.wrap(bytes(data))
        return LENGTH.pack(len(token)) + token

    def feed(self, received: memoryview) -> None:
        while received:
            space = self._frames.space()
            taken = min(len(space), len(received))
            space[:taken] = received[:taken]
            self._frames.add(taken)
            received = received[taken:]
            self._take_frames()

    def _take_frames(self) -> None:
        while (frame := self._frames.next()) is not None:
            with self._lock:
                data = self._wrapper.unwrap(frame)
            if data:
                self._clear.append(memoryview(data))

    def read_into(self, space: memoryview) -> int:
        filled = 0
        while self._clear and filled < len(space):
            data = self._clear.popleft()
            taken = min(len(data), len(space) - filled)
            space[filled : filled + taken] = data[:taken]
            filled += taken
            if taken < len(data):
                self._clear.appendleft(data[taken:])
        return filled


class Secured:
    """Splits the data in a layer into frames. Its driver uses it like `Frames`.

    Args:
        layer: the layer.
        bytes_max: a longer frame is none.
        received: what came through the layer before.
        beginning: looks at what comes first, if anything does.
    """

    def __init__(
        self,
        layer: Layer,
        bytes_max: int,
        received: bytes = b"",
        beginning: Beginning | None = None,
    ) -> None:
        self._layer = layer
        self._frames = Frames(bytes_max, beginning)
        self._frames.space()[: len(received)] = received
        self._frames.add(len(received))
        self._space = memoryview(bytearray(GATHERED_BYTES))

    def space(self) -> memoryview:
        """Like `Frames.space`."""
        return self._space

    def add(self, count: int) -> None:
        """Like `Frames.add`.

        Raises:
            OSError: as `Layer.feed`.
        """
        self._layer.feed(self._space[:count])

    def next(self) -> bytearray | None:
        """Like `Frames.next`.

        Raises:
            OSError: as `Layer.read_into`.
        """
        while (frame := self._frames.next()) is None:
            taken = self._layer.read_into(self._frames.space())
            if not taken:
                return None
            self._frames.add(taken)
        return frame


def gathered(pieces: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """Join the small pieces."""
    small: list[bytes | memoryview] = []
    size = 0
    for piece in pieces:
        if size + len(piece) > GATHERED_BYTES and small:
            yield b"".join(small)
            small, size = [], 0
        small.append(piece)
        size += len(piece)
    yield b"".join(small)


def _cut(data: memoryview) -> Iterator[memoryview]:
    for at in range(0, len(data), WRAPPED_BYTES):
        yield data[at : at + WRAPPED_BYTES]
