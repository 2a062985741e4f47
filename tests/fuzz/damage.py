"""Damage to bytes: flipped bits, cuts, extensions, splices, and numbers that mean trouble."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from hypothesis import strategies as st

__all__ = ["NUMBERS", "Damage", "damaged", "damages"]

NUMBERS = st.sampled_from(
    [
        0,
        1,
        2,
        4,
        2**16 + 1,
        *(2**bits + more for bits in (7, 8, 15, 16, 31, 32, 63) for more in (-1, 0)),
        2**64 - 1,
    ]
) | st.integers(0, 2**64 - 1)
"""The numbers at which widths and signs end, and any other."""

KINDS = ("flip", "set", "cut", "cut out", "insert", "repeat", "number", "splice")


@dataclasses.dataclass(frozen=True, slots=True)
class Damage:
    """One thing done to some bytes. Positions are taken modulo their number."""

    kind: str
    at: int
    number: int
    width: int

    def apply(self, data: bytes, donor: bytes) -> bytes:
        """The damaged bytes; what is spliced in comes from `donor`."""
        at = self.at % (len(data) + 1)
        piece = self.number.to_bytes(8, "big")[-self.width :]
        left, right = data[:at], data[at:]
        match self.kind:
            case "flip":
                right = bytes(byte ^ 1 << self.number % 8 for byte in right[:1]) + right[1:]
            case "set":
                right = piece[-1:] + right[1:]
            case "cut":
                right = b""
            case "cut out":
                right = right[self.width :]
            case "insert":
                right = piece + right
            case "repeat":
                right = right[: self.width] * (2 + self.number % 3) + right
            case "number":
                right = (piece if self.number % 2 else piece[::-1]) + right[self.width :]
            case "splice":
                right = donor[self.number % (len(donor) + 1) :]
        return left + right


def damages(most: int = 4) -> st.SearchStrategy[list[Damage]]:
    """Several things to be done, or nothing."""
    one = st.builds(
        Damage,
        st.sampled_from(KINDS),
        st.integers(0, 40) | st.integers(0, 2**16),
        NUMBERS,
        st.sampled_from([1, 2, 4, 8]),
    )
    return st.lists(one, max_size=most)


def damaged(data: bytes, done: Sequence[Damage], donor: bytes = b"") -> bytes:
    """The bytes after all of it."""
    for damage in done:
        data = damage.apply(data, donor)
    return data
