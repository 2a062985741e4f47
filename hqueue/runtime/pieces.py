"""Work on many objects in pieces.

A call that is written in C keeps Python's lock until it returns: over a hundred thousand objects it
takes tens of milliseconds, in which no other thread runs, nor an event loop. Between two pieces
others have turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TypeVar

__all__ = [
    "PIECE",
    "drop_in_pieces",
    "freed_by_piece",
    "freed_in_pieces",
    "join_in_pieces",
    "list_in_pieces",
]

PIECE = 8_192
"""Objects of a piece: a millisecond of the cheapest work with each."""

Item = TypeVar("Item")


def list_in_pieces(items: Iterable[Item]) -> list[Item]:
    """As `list`."""
    iterator = iter(items)
    taken: list[Item] = []
    while piece := list(islice(iterator, PIECE)):
        taken += piece
    return taken


def join_in_pieces(parts: Sequence[bytes | memoryview]) -> bytes:
    """As ``b"".join``."""
    if len(parts) <= PIECE:
        return b"".join(parts)
    return b"".join([b"".join(parts[at : at + PIECE]) for at in range(0, len(parts), PIECE)])


def drop_in_pieces(items: list[Item], piece: int = PIECE) -> None:
    """As ``items.clear()``: to free objects takes time, too."""
    while items:
        del items[-piece:]


def freed_in_pieces(items: list[Item], piece: int) -> Iterator[Item]:
    """As ``iter(items)``, but it frees the items as they are taken, those of a piece together. The
    list is empty afterwards.
    """
    pieces: list[list[Item] | None] = []
    pieces += [items[at : at + piece] for at in range(0, len(items), piece)]
    items.clear()
    return freed_by_piece(pieces)


def freed_by_piece(pieces: list[list[Item] | None]) -> Iterator[Item]:
    """The items of these pieces. Each piece is freed when the next one is taken; the list is used
    up.
    """
    pieces.append(None)
    pieces.reverse()
    return chain.from_iterable(iter(pieces.pop, None))
