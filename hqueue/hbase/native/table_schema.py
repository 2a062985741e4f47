"""A table as masters describe it: its attributes, and those of its families."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hqueue.hbase.native.protocol import pb
from hqueue.hbase.schema import MESSAGE
from hqueue.hbase.table_attributes import describe
from hqueue.settings.attributes import ATTRIBUTES, QueueDescription
from hqueue.settings.limits import TTL_SECONDS_MAX

__all__ = [
    "attributes_of",
    "description",
    "family",
    "name_of",
    "set_attributes",
    "set_ttl",
    "table_name",
    "table_schema",
]

_DEFAULT = "default"
_TTL = b"TTL"
_COMPRESSION = b"COMPRESSION"


def table_name(name: str) -> Any:
    """A table's name as messages have it."""
    namespace, _, qualifier = name.rpartition(":")
    return pb.TableName(namespace=(namespace or _DEFAULT).encode(), qualifier=qualifier.encode())


def name_of(schema: Any) -> str:
    """The name of the table that is described."""
    namespace: str = schema.table_name.namespace.decode()
    qualifier: str = schema.table_name.qualifier.decode()
    return qualifier if namespace == _DEFAULT else f"{namespace}:{qualifier}"


def table_schema(name: str, attributes: Mapping[bytes, bytes], families: Sequence[Any]) -> Any:
    """A table to be created."""
    schema = pb.TableSchema(table_name=table_name(name), column_families=families)
    _set(schema, attributes)
    return schema


def family(name: bytes, attributes: Mapping[bytes, bytes]) -> Any:
    """A family to be created; HBase's defaults stand for what is not given."""
    schema = pb.ColumnFamilySchema(name=name)
    _set(schema, attributes)
    return schema


def attributes_of(schema: Any) -> dict[bytes, bytes]:
    """The attributes of a table, or of a family."""
    return {pair.first: pair.second for pair in schema.attributes}


def set_ttl(schema: Any, ttl_seconds: int | None) -> None:
    """Let bodies be kept for this long; None for ever."""
    seconds = TTL_SECONDS_MAX if ttl_seconds is None else ttl_seconds
    for each in schema.column_families:
        if each.name == MESSAGE:
            _set(each, {_TTL: str(seconds).encode()})


def set_attributes(schema: Any, attributes: Mapping[str, int | str]) -> None:
    """Set a queue's attributes; the others stay."""
    for name, value in attributes.items():
        written = str(value).encode()
        if name == "compression":
            for each in schema.column_families:
                _set(each, {_COMPRESSION: written})
        else:
            _set(schema, {ATTRIBUTES[name].table_key.encode(): written})


def description(schema: Any, enabled: bool | None) -> QueueDescription:
    """The queue that a table is.

    Raises:
        NotAQueueError: the table is not a queue's.
        ValueError: the answer is malformed.
    """
    families = {each.name: attributes_of(each) for each in schema.column_families}
    message = families.get(MESSAGE)
    ttl = (message or {}).get(_TTL, b"FOREVER")
    seconds = None if ttl == b"FOREVER" else int(ttl)
    return describe(name_of(schema), attributes_of(schema), message, seconds, enabled)


def _set(schema: Any, attributes: Mapping[bytes, bytes]) -> None:
    """Set attributes; the others stay."""
    for key, value in {**attributes_of(schema), **attributes}.items():
        pair = next((each for each in schema.attributes if each.first == key), None)
        if pair is None:
            schema.attributes.add(first=key, second=value)
        else:
            pair.second = value
