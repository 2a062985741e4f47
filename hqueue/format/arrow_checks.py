"""Whether a column of a record batch is what its type says it is. Needs ``hqueue-hbase[arrow]``.

Arrow believes who makes an array: offsets may lie, and a string's bytes be no UTF-8, as those that
Spark casts from binary. Cells take both over as they are, and a reader checks them; so they are
checked here first, before anything else looks into a column. docs/log-format.md lists what readers
check, and where writers do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hqueue.errors import InvalidInputError

__all__ = [
    "check_layout",
    "check_lists",
    "check_text",
    "decoded",
    "offsets_in",
    "offsets_of",
    "only_text",
    "refusing",
]

IMPOSSIBLE = "a column has impossible offsets or nulls: it was built from wrong buffers"


@contextlib.contextmanager
def refusing(text: str, **facts: Any) -> Iterator[None]:
    """Raise an `InvalidInputError` of this text for whatever Arrow finds wrong.

    Arrow has an exception for each kind: `ArrowInvalid` for offsets, `ArrowIndexError` for views
    and dictionaries, others for types that it can't convert, and some that are Python's own. Where
    there is no memory left, or the program is interrupted, what is put is not at fault.
    """
    try:
        yield
    except (InvalidInputError, MemoryError, pa.ArrowCancelled):
        raise
    except (pa.ArrowException, LookupError, ValueError, TypeError, ArithmeticError) as exc:
        raise InvalidInputError(text, **facts) from exc


def check_layout(name: str, column: pa.Array) -> None:
    """Refuse a column whose offsets do not ascend within its bytes, or whose nulls don't add up.

    Of a text only the layout is looked at, and not the bytes: as a value or a key it may have any.
    """
    with refusing(IMPOSSIBLE, column=name):
        _without_text(column).validate(full=True)


def check_text(name: str, texts: pa.Array) -> None:
    """Refuse a column of strings with an impossible layout, or with a string that is not UTF-8."""
    check_layout(name, texts)
    data, offsets = texts.buffers()[2], offsets_of(texts)
    first, last = offsets[0], offsets[-1]
    # Of bytes that are all ASCII any part is UTF-8. Of others each text must be, and not their
    # bytes one after another: a character may not begin in one and end in the next.
    if data is None or data.slice(first, last - first).to_pybytes().isascii():
        return
    with refusing("a string is not UTF-8", column=name):
        texts.validate(full=True)


def check_lists(name: str, lists: pa.Array) -> None:
    """Refuse a column of lists whose offsets do not ascend within what they list, or whose nulls
    don't add up. What they list is only looked at from outside.
    """
    with refusing(IMPOSSIBLE, column=name):
        lists.validate()
        shape = pa.Array.from_buffers(
            _list_of_nulls(lists.type),
            len(lists),
            lists.buffers()[: lists.type.num_buffers],
            lists.null_count,
            lists.offset,
            [pa.nulls(len(lists.values))],
        )
        shape.validate(full=True)


def decoded(name: str, column: pa.DictionaryArray) -> pa.Array:
    """The values of a column that has them in a dictionary."""
    values = column.dictionary
    check_layout(name, values)
    with refusing("a column names entries that its dictionary has not", column=name):
        found = pa.DictionaryArray.from_arrays(column.indices, _without_text(values))
    with refusing("a column of this type can't be put; cast it first", type=str(column.type)):
        plain = found.dictionary_decode()
        return plain if plain.type == values.type else plain.view(values.type)


def only_text(name: str, texts: pa.Array) -> str | None:
    """What all texts of a column of strings are, if they are the same and not empty; of others,
    None: nothing is known yet of what they are. One look at the first is enough.
    """
    try:
        texts.validate()
    except pa.ArrowException:  # `check_layout` says what is wrong.
        return None
    offsets = offsets_of(texts)
    first, last = offsets[0], offsets[-1]
    length = offsets[1] - first
    if length <= 0 or last - first != length * len(texts):
        return None
    lengths = pc.binary_length(texts)
    if pc.equal(lengths, pa.scalar(length, pa.int32())).false_count:
        return None
    # Of the same length each is the one before if the bytes are those before.
    data, rest = texts.buffers()[2], last - first - length
    if not data.slice(first, rest).equals(data.slice(first + length, rest)):
        return None
    try:
        text: str = data.slice(first, length).to_pybytes().decode()
    except UnicodeDecodeError as exc:
        raise InvalidInputError("a string is not UTF-8", column=name) from exc
    return text


def offsets_of(values: pa.Array) -> memoryview:
    """Where the values of a binary array, or of one of strings, begin and end in its bytes. It has
    one value at least.
    """
    return offsets_in(values.buffers()[1], values.offset, len(values))


def offsets_in(buffer: pa.Buffer, at: int, count: int) -> memoryview:
    """Where this many values of a buffer begin and end, from the `at`-th on."""
    return memoryview(buffer)[4 * at : 4 * (at + count + 1)].cast("i")


def _without_text(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_string(kind):
        return column.view(pa.binary())
    if pa.types.is_large_string(kind):
        return column.view(pa.large_binary())
    return column.view(pa.binary_view()) if pa.types.is_string_view(kind) else column


def _list_of_nulls(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(pa.null(), kind.list_size)
    return pa.large_list(pa.null()) if pa.types.is_large_list(kind) else pa.list_(pa.null())
