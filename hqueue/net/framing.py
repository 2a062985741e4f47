"""Splits a stream of bytes into frames as the bytes arrive, from any source."""

from __future__ import annotations

import struct
from collections.abc import Callable

__all__ = ["INBOX_BYTES", "LENGTH", "Beginning", "Frames"]

LENGTH = struct.Struct(">I")

INBOX_BYTES = 64 * 1024
"""How many bytes to read at once while answers are small."""


Beginning = Callable[[bytes], bool]
"""Checks the first bytes of a stream: returns whether they begin a frame, False while they are too
few to say. Raises if they are something else."""


class Frames:
    """The frames of a stream of bytes, one after the other. It does no I/O: its driver reads into
    `space`, reports how much came with `add`, and takes whole frames with `next`.

    Memory grows as bytes arrive: a length that is promised allocates no more than a frame that came
    has had.

    Args:
        bytes_max: a longer frame is none.
        beginning: looks at what comes first, if anything does.
    """

    def __init__(self, bytes_max: int, beginning: Beginning | None = None) -> None:
        self._bytes_max = bytes_max
        self._beginning = beginning
        self._inbox = bytearray(INBOX_BYTES)
        self._view = memoryview(self._inbox)
        self._low = self._high = 0
        self._frame: bytearray | None = None
        self._filled = 0
        self._length = 0
        self._largest = INBOX_BYTES
        """The longest frame so far: room for as much need not grow, which would cost copies."""
        self._space: memoryview | None = None

    @property
    def held_bytes(self) -> int:
        """The memory of the incomplete frame."""
        return 0 if self._frame is None else len(self._frame)

    def space(self) -> memoryview:
        """Where the next bytes belong, never empty. Valid until the next call of any method but
        `add`; `next` must have returned None before.
        """
        if self._frame is None:
            left = self._high - self._low
            self._view[:left] = self._view[self._low : self._high]
            self._low, self._high = 0, left
            return self._view[left:]
        if self._space is not None:
            self._space.release()  # A bytearray can't grow while somebody looks into it.
        if self._filled == len(self._frame):
            self._frame += bytes(min(self._filled, self._length - self._filled))
        self._space = memoryview(self._frame)[self._filled :]
        return self._space

    def add(self, count: int) -> None:
        """Report that this many bytes arrived in the last `space`."""
        if self._frame is None:
            self._high += count
        else:
            self._filled += count

    def next(self) -> bytearray | None:
        """Return the next frame without its length; None while it is incomplete.

        Raises:
            ValueError: what came is not a frame.
            Exception: as `Beginning`.
        """
        if self._beginning is not None and not self._is_begun(self._beginning):
            return None
        if self._frame is None and not self._begin():
            return None
        if self._filled < self._length:
            return None
        frame, self._frame, self._space = self._frame, None, None
        self._largest = max(self._largest, self._length)
        return frame

    def _is_begun(self, beginning: Beginning) -> bool:
        """Return whether the first bytes are the beginning of a frame."""
        if not beginning(bytes(self._view[self._low : self._high])):
            return False
        self._beginning = None
        return True

    def _begin(self) -> bool:
        """Begin a frame with its length and its first bytes. Return whether the length is there."""
        there = self._high - self._low - LENGTH.size
        if there < 0:
            return False
        (length,) = LENGTH.unpack_from(self._inbox, self._low)
        if not 0 < length <= self._bytes_max:
            raise ValueError("a frame's length is out of range")
        self._low += LENGTH.size
        self._length = length
        self._filled = min(there, length)
        self._frame = bytearray(min(length, self._largest))
        self._frame[: self._filled] = self._view[self._low : self._low + self._filled]
        self._low += self._filled
        return True
