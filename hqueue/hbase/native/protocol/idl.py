"""Messages from a ``.proto`` file, made when it is read: no generated code, and no compiler.

The subset of the language (proto2): messages and enums, which may lie in one another, and fields
with ``required``, ``optional`` or ``repeated``, without options. What lies further in may be used
before it is defined.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

__all__ = ["load"]

_TOKEN = re.compile(r'//[^\n]*|"[^"\n]*"|[A-Za-z_][\w.]*|\d+|[{}=;]|\S')
_FIELD = descriptor_pb2.FieldDescriptorProto
_LABELS = {
    "required": _FIELD.LABEL_REQUIRED,
    "optional": _FIELD.LABEL_OPTIONAL,
    "repeated": _FIELD.LABEL_REPEATED,
}
_SCALARS = {
    "bool": _FIELD.TYPE_BOOL,
    "bytes": _FIELD.TYPE_BYTES,
    "int32": _FIELD.TYPE_INT32,
    "int64": _FIELD.TYPE_INT64,
    "string": _FIELD.TYPE_STRING,
    "uint32": _FIELD.TYPE_UINT32,
    "uint64": _FIELD.TYPE_UINT64,
}


def load(text: str, name: str) -> Mapping[str, Any]:
    """The messages of a file by their names, without its package; those within others as
    ``Outer.Inner``. They stand in a pool of their own: other libraries may know the same names.

    Raises:
        ValueError: it is not written in the subset, or a type is missing.
    """
    file = descriptor_pb2.FileDescriptorProto(name=name, syntax="proto2")
    tokens = (found for found in _TOKEN.findall(text) if not found.startswith("//"))
    for token in tokens:
        if token == "syntax":
            _expect(tokens, "=", '"proto2"', ";")
        elif token == "package":
            file.package = next(tokens)
            _expect(tokens, ";")
        elif token == "message":
            _message(file.message_type.add(name=next(tokens)), tokens)
        elif token == "enum":
            _enum(file.enum_type.add(name=next(tokens)), tokens)
        else:
            raise ValueError(f"{token!r} is not understood")
    pool = descriptor_pool.DescriptorPool()
    try:
        pool.AddSerializedFile(file.SerializeToString())
        return {
            each: message_factory.GetMessageClass(
                pool.FindMessageTypeByName(f"{file.package}.{each}")
            )
            for each in _names(file.message_type, "")
        }
    except (KeyError, TypeError) as exc:
        raise ValueError(
            "a message type of the file names a type that the file does not define"
        ) from exc


def _names(messages: Any, prefix: str) -> Iterator[str]:
    for message in messages:
        yield prefix + message.name
        yield from _names(message.nested_type, f"{prefix}{message.name}.")


def _expect(tokens: Iterator[str], *expected: str) -> None:
    for each in expected:
        if (found := next(tokens, "the end")) != each:
            raise ValueError(f"{found!r} stands where {each!r} is expected")


def _message(message: Any, tokens: Iterator[str]) -> None:
    _expect(tokens, "{")
    for token in tokens:
        if token == "}":
            return
        if token == "message":
            _message(message.nested_type.add(name=next(tokens)), tokens)
        elif token == "enum":
            _enum(message.enum_type.add(name=next(tokens)), tokens)
        elif token in _LABELS:
            kind = next(tokens)
            field = message.field.add(label=_LABELS[token], name=next(tokens))
            _expect(tokens, "=")
            field.number = int(next(tokens))
            _expect(tokens, ";")
            if kind in _SCALARS:
                field.type = _SCALARS[kind]
            else:  # Whether it is a message or an enum is found by its name.
                field.type_name = kind
        else:
            raise ValueError(f"{token!r} is not understood")
    raise ValueError("a message lacks its closing brace")


def _enum(enum: Any, tokens: Iterator[str]) -> None:
    _expect(tokens, "{")
    for token in tokens:
        if token == "}":
            return
        _expect(tokens, "=")
        enum.value.add(name=token, number=int(next(tokens)))
        _expect(tokens, ";")
    raise ValueError("an enum lacks its closing brace")
