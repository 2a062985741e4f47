"""Messages as batches."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeVar, cast

from hqueue.errors import InvalidInputError
from hqueue.format.cells import encode_bodies, encode_message
from hqueue.format.header import FORMAT_1, Bodies
from hqueue.message import Headers, Message, Messages, ReceivedMessage
from hqueue.settings import reserved
from hqueue.settings.limits import BATCH_MESSAGES_MAX

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["encode_batch", "encode_given", "headers_to_put", "keys_of", "taken"]


_Given = TypeVar("_Given")


def taken(messages: _Given | Iterator[Message]) -> _Given | list[Message]:
    """The messages of a put, as they are now: what a generator gives, or a list that its owner may
    change, is gone through once. Of both as many are taken as a batch may have, and one more, which
    is then refused.
    """
    if isinstance(messages, (Message, Messages, str, bytes, bytearray, memoryview)):
        return messages
    if isinstance(messages, (Iterator, Sequence)):
        return list(islice(messages, BATCH_MESSAGES_MAX + 1))
    return messages


def encode_given(messages: Message | Sequence[Message] | pa.RecordBatch | pa.Table) -> Bodies:
    """What came from outside as one batch, in its order. What was read is put without the headers
    that are the system's own: a `ReceivedMessage`, and Arrow with the columns of a scan.

    Raises:
        InvalidInputError: as `encode_batch`; or a topic or a header is the system's own.
        MessageTooLargeError: as `encode_batch`.
    """
    if isinstance(messages, Message):
        reserved.check_topic(messages.topic)
        headers = messages.headers
        if headers and (kept := headers_to_put(messages)) != headers:
            messages = Message(messages.topic, messages.value, messages.key, kept)
        return encode_message(messages)
    bodies = encode_batch(messages)
    for topic in bodies.cells:
        reserved.check_topic(topic.decode())
    if bodies.version == FORMAT_1:
        return bodies
    given = _kept_of_arrow(messages) if _is_arrow(messages) else _kept(messages)
    return bodies if given is messages else encode_batch(given)


def _kept(messages: Sequence[Message]) -> Sequence[Message]:
    """Messages with the headers that a put of them writes: the same ones, where those are all."""
    if isinstance(messages, Messages):
        reserved.check_headers(name for name, _ in chain.from_iterable(messages.headers or ()))
        return messages
    kept = list(map(headers_to_put, messages))
    if kept == [each.headers for each in messages]:
        return messages
    return [
        Message(each.topic, each.value, each.key, headers)
        for headers, each in zip(kept, messages, strict=True)
    ]


def _kept_of_arrow(messages: pa.RecordBatch | pa.Table) -> pa.RecordBatch | pa.Table:
    """The same of record batches and tables."""
    from hqueue.format.arrow import header_names, without_headers  # noqa: PLC0415  (an extra)

    names = header_names(messages)
    if not any(map(reserved.is_reserved, names)):
        return messages
    if not {"partition", "id"} <= set(messages.schema.names):
        reserved.check_headers(names)
    return without_headers(messages, reserved.is_reserved)


def headers_to_put(message: Message) -> Headers:
    """The headers that a put of a message writes: all it has, but for the system's own of one that
    was read.

    Raises:
        InvalidInputError: one that was not read has some of the system's own.
    """
    headers = message.headers
    if not headers:
        return headers
    if isinstance(message, ReceivedMessage):
        return reserved.unreserved(headers)
    reserved.check_headers([name for name, _ in headers])
    return headers


def encode_batch(messages: Sequence[Message] | pa.RecordBatch | pa.Table) -> Bodies:
    """These messages as one batch, in their order, under whatever names.

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
        "put takes a Message, a sequence of them, or a pyarrow.RecordBatch or Table"
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
