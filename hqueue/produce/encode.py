"""Messages as batches."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast

from hqueue.errors import InvalidInputError
from hqueue.format import Bodies, encode_bodies
from hqueue.message import Message, Messages

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["encode_batch", "keys_of"]


def encode_batch(messages: Sequence[Message] | pa.RecordBatch | pa.Table) -> Bodies:
    """These messages as one batch, in their order.

    Raises:
        InvalidInputError: they are none, or something else.
        MessageTooLargeError: together they are larger than a batch may be.
    """
    if isinstance(messages, Sequence) and not isinstance(messages, (str, bytes)):
        return encode_bodies(cast("Sequence[Message]", messages))
    if _is_arrow(messages):
        from hqueue.format.arrow import encode_arrow  # noqa: PLC0415  (pyarrow is an extra)

        return encode_arrow(messages)
    raise InvalidInputError(
        "what is put is a Message, a sequence of them, or a pyarrow.RecordBatch or Table"
    )


def keys_of(messages: Sequence[Message] | pa.RecordBatch | pa.Table) -> set[bytes]:
    """The keys among messages that could be encoded."""
    keys: Iterable[bytes | None]
    if _is_arrow(messages):
        from hqueue.format.arrow import distinct_keys  # noqa: PLC0415  (pyarrow is an extra)

        keys = distinct_keys(messages)
    elif isinstance(messages, Messages):
        keys = messages.keys or ()
    else:
        keys = (message.key for message in cast("Sequence[Message]", messages))
    return {key for key in keys if key is not None}


def _is_arrow(value: object) -> bool:
    # A caller with one has imported pyarrow; others don't pay for that.
    pyarrow = sys.modules.get("pyarrow")
    return pyarrow is not None and isinstance(value, (pyarrow.RecordBatch, pyarrow.Table))
