"""Layers give out what was put in, wherever the bytes between them are cut."""

from __future__ import annotations

import random
import struct

import pytest

from hqueue.net.layers import (
    GATHERED_BYTES,
    WRAPPED_BYTES,
    Layer,
    Secured,
    Stacked,
    Wrapping,
    gathered,
)

BYTES_MAX = 1_000_000


class Xor:
    """Wraps by another value for each token, and a sum, so that order and changes show."""

    def __init__(self) -> None:
        self._wrapped = self._unwrapped = 0

    def wrap(self, data: bytes) -> bytes:
        self._wrapped += 1
        return bytes((self._wrapped & 0xFF,)) + bytes(byte ^ 0x55 for byte in data)

    def unwrap(self, token: bytearray) -> bytes:
        self._unwrapped += 1
        if token[0] != self._unwrapped & 0xFF:
            raise ConnectionError("changed")
        return bytes(byte ^ 0x55 for byte in token[1:])


def wrapping() -> Layer:
    return Wrapping(Xor(), BYTES_MAX)


def stacked() -> Layer:
    return Stacked(wrapping(), wrapping())


def taken(layer: Layer, count: int = 1_000) -> bytes:
    space, found = memoryview(bytearray(count)), bytearray()
    while filled := layer.read_into(space):
        found += space[:filled]
    return bytes(found)


@pytest.mark.parametrize("make", [wrapping, stacked])
@pytest.mark.parametrize("seed", range(5))
def test_what_is_sealed_is_taken_out_wherever_it_is_cut(make: object, seed: int) -> None:
    assert callable(make)
    chance, sender, receiver = random.Random(seed), make(), make()
    pieces = [
        chance.randbytes(chance.choice((0, 1, 3, 1_000, WRAPPED_BYTES + 5))) for _ in range(9)
    ]
    sealed, found = b"".join(map(sender.seal, pieces)), b""
    while sealed:
        cut = chance.choice((1, 2, 5, 4_096, 70_000))
        receiver.feed(memoryview(sealed[:cut]))
        sealed = sealed[cut:]
        if chance.random() < 0.5:
            found += taken(receiver, chance.choice((1, 7, 100_000)))
    assert found + taken(receiver) == b"".join(pieces)


@pytest.mark.parametrize("seed", range(5))
def test_frames_in_a_layer_come_whole_and_in_order(seed: int) -> None:
    chance, sender = random.Random(seed), wrapping()
    frames = [chance.randbytes(chance.choice((1, 10, 70_000, 200_000))) for _ in range(8)]
    whole = b"".join(struct.pack(">I", len(frame)) + frame for frame in frames)
    clear, whole = whole[:3], whole[3:]
    sealed = sender.seal(whole)
    secured, found = Secured(wrapping(), BYTES_MAX, clear), []
    while sealed:
        space = secured.space()
        cut = min(len(space), len(sealed), chance.choice((1, 100, 50_000)))
        space[:cut], sealed = sealed[:cut], sealed[cut:]
        secured.add(cut)
        while (frame := secured.next()) is not None:
            found.append(bytes(frame))
    assert found == frames


def test_a_token_that_was_changed_or_is_too_long_ends_it() -> None:
    sealed = bytearray(wrapping().seal(b"data"))
    sealed[4] ^= 1
    with pytest.raises(ConnectionError, match="changed"):
        wrapping().feed(memoryview(sealed))
    for length in (0, 2 * BYTES_MAX, 0xFFFFFFFF):
        with pytest.raises(ValueError, match="out of range"):
            wrapping().feed(memoryview(struct.pack(">I", length) + b"x"))


def test_small_pieces_are_joined_and_large_ones_stay() -> None:
    pieces = [b"a", b"b", b"c" * GATHERED_BYTES, b"d", b"e"]
    assert list(gathered(pieces)) == [b"ab", b"c" * GATHERED_BYTES, b"de"]
