"""Messages as batches."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from hqueue.errors import InvalidInputError
from hqueue.format import Bodies, encode_bodies
from hqueue.message import Message

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["encode_batch"]


def encode_batch(messages: Sequence[Message] | pa.RecordBatch) -> Bodies:
    """These messages as one batch, in their order.

    Raises:
        InvalidInputError: they are none, or something else.
        MessageTooLargeError: together they are larger than a batch may be.
    """
    if isinstance(messages, Sequence) and not isinstance(messages, (str, bytes)):
        return encode_bodies(cast("Sequence[Message]", messages))
    if _is_record_batch(messages):
        from hqueue.format.arrow import encode_record_batch  # noqa: PLC0415  (pyarrow is an extra)

        return encode_record_batch(messages)
    raise InvalidInputError(
        "what is put is a Message, a sequence of them, or a pyarrow.RecordBatch"
    )


def _is_record_batch(value: object) -> bool:
    # A caller with one has imported pyarrow; others don't pay for that.
    pyarrow = sys.modules.get("pyarrow")
    return pyarrow is not None and isinstance(value, pyarrow.RecordBatch)
