"""Decoding the headers of many rows, which takes time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import zip_longest

from hqueue.errors import CorruptLogError
from hqueue.format.header import Header
from hqueue.log.ports import Row, header_of
from hqueue.log.steps import Work
from hqueue.runtime.loop import computing

__all__ = ["are_much", "decoded_headers"]

HERE_BYTES = 32 * 1024
"""Headers that are decoded in a loop, at most: in two milliseconds."""


def are_much(rows: Sequence[Row]) -> bool:
    """Whether the headers of these rows are decoded beside an event loop."""
    return sum(len(row.header or b"") for row in rows) > HERE_BYTES


def decoded_headers(rows: Sequence[Row]) -> Work[Iterator[tuple[Row, Header]]]:
    """These rows with their headers, in their order. The iterator raises a `CorruptLogError` at a
    header that can't be read.
    """
    decoded: list[Header] = []
    if are_much(rows):
        yield computing(partial(_decode, rows, decoded))
    return ((row, header or header_of(row)) for row, header in zip_longest(rows, decoded))


def _decode(rows: Sequence[Row], decoded: list[Header]) -> None:
    with contextlib.suppress(CorruptLogError):
        decoded.extend(map(header_of, rows))
