"""Messages as JSON documents, a line each: `scan` writes them, and `put` reads them.

    {"partition":3,"id":"1700000000000-0","timestamp":"2023-11-14T22:13:20.000Z","topic":"clicks",
     "key":"user-42","headers":[{"name":"trace","value":"a1"}],"value":"hello"}

``key`` and ``headers`` are there only where a message has them. Bytes that are not UTF-8 are in
base64, under the field's name followed by ``_base64``. Where a message lay (``queue``,
``partition``, ``id``, ``timestamp``) says nothing of where it goes, and is not looked at when it
is read: but that it lay somewhere says that this is a copy, which has none of the system's own
topics and headers.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from hqueue.errors import InvalidInputError
from hqueue.message import Message
from hqueue.settings import reserved

__all__ = ["data_fields", "extra_fields", "message_of"]

_BASE64 = "_base64"
_PLACE = ("queue", "partition", "id", "timestamp")
_FIELDS = {*_PLACE, "topic", "key", f"key{_BASE64}", "headers", "value", f"value{_BASE64}"}
_HEADER_FIELDS = {"name", "value", f"value{_BASE64}"}
_SHOWN = 80


def data_fields(name: str, data: bytes) -> dict[str, str]:
    """Bytes as a field: a text, or base64 where they are not UTF-8."""
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {name + _BASE64: base64.b64encode(data).decode()}


def extra_fields(message: Message) -> dict[str, object]:
    """The fields of a message's key and headers; none for what it does not have."""
    fields: dict[str, object] = {}
    if message.key is not None:
        fields |= data_fields("key", message.key)
    if message.headers:
        fields["headers"] = [
            {"name": name, **data_fields("value", value)} for name, value in message.headers
        ]
    return fields


def message_of(line: bytes, topic: str = "") -> Message | None:
    """Read a document; None if it is a copy of a message of one of the system's own topics.

    Args:
        line: the document.
        topic: the message's topic if the document has none.

    Raises:
        InvalidInputError: it is not JSON object, or not one of a message.
        MessageTooLargeError: the message is larger than a batch may be.
    """
    fields = _object(line)
    _check_fields(fields, _FIELDS)
    value = _data(fields, "value")
    if value is None:
        raise InvalidInputError("a document needs a value, or a value_base64")
    chosen = fields.get("topic")
    if chosen is None:
        chosen = topic
        if not topic:
            raise InvalidInputError("a document has no topic: add one to it, or give --topic")
    message = Message(chosen, value, _data(fields, "key"), _headers(fields.get("headers")))
    if fields.get("id") is None:
        return message
    if reserved.is_reserved(message.topic):
        return None
    kept = reserved.unreserved(message.headers)
    return Message(message.topic, message.value, message.key, kept)


def _object(line: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(line.decode())
    except json.JSONDecodeError as exc:
        raise InvalidInputError("the line is not JSON", reason=exc.msg, column=exc.colno) from exc
    except (ValueError, RecursionError) as exc:
        raise InvalidInputError("the line is not JSON", reason=str(exc)[:_SHOWN]) from exc
    if not isinstance(fields, dict):
        raise InvalidInputError("a message in JSON must be an object", type=type(fields).__name__)
    return fields


def _check_fields(fields: Mapping[str, Any], known: set[str]) -> None:
    unknown = sorted(fields.keys() - known)
    if unknown:
        raise InvalidInputError(
            "a message has no such field",
            field=unknown[0][:_SHOWN],
            known=", ".join(sorted(known)),
        )


def _data(fields: Mapping[str, Any], name: str) -> bytes | None:
    """The bytes of a field in either form; None if it is missing, or null."""
    text, encoded = fields.get(name), fields.get(name + _BASE64)
    if text is not None and encoded is not None:
        raise InvalidInputError("a field can be given as text or in base64, not both", field=name)
    if encoded is not None:
        return _decoded(name + _BASE64, encoded)
    return None if text is None else _encoded(name, text)


def _encoded(name: str, text: object) -> bytes:
    if not isinstance(text, str):
        raise InvalidInputError("this field must be a string", field=name, type=type(text).__name__)
    try:
        return text.encode()
    except UnicodeEncodeError as exc:
        raise InvalidInputError("this string can't be encoded as UTF-8", field=name) from exc


def _decoded(name: str, text: object) -> bytes:
    try:
        return base64.b64decode(_encoded(name, text), validate=True)
    except ValueError as exc:
        raise InvalidInputError("this field is not base64", field=name, reason=str(exc)) from exc


def _headers(given: object) -> list[tuple[str, bytes]]:
    if given is None:
        return []
    if not isinstance(given, list):
        raise InvalidInputError("headers must be a list of objects", type=type(given).__name__)
    return [_header(each) for each in given]


def _header(fields: object) -> tuple[str, bytes]:
    if not isinstance(fields, dict):
        raise InvalidInputError("a header must be an object", type=type(fields).__name__)
    _check_fields(fields, _HEADER_FIELDS)
    name, value = fields.get("name"), _data(fields, "value")
    if not isinstance(name, str) or value is None:
        raise InvalidInputError("a header needs a name, and a value or a value_base64")
    return name, value
