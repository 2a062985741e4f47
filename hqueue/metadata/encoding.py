"""Records in ZooKeeper and in HBase as bytes.

Each is a JSON object in UTF-8 with a version, so that a subscriber in any language can write its
own:

    checkpoint   {"version": 1, "next": "1700000000000-0"}
    address      {"version": 1, "address": "host:port"}
    topics       {"version": 1, "topics": ["a", "b"] or null,
                  "delivery": {"attempts_max": 5, "backoff_ms_min": 100, …}}
    worker       {"version": 1, "address": "host:port", "region_host": "host", "load": 3}
    owner        {"version": 1, "worker": "name"}, of a group {"version": 1, "consumer": "id"}
    member       {"version": 1, "streams": {"queue": 1, …}}
    offset       {"version": 1, "next": "1700000000000-0", "consumer": "id"}
    epoch        {"version": 1, "number": 17, "since": "1700000000000-0"}
    append keys  {"version": 1, "keys": [{"id": "<hex>", "secret": "<hex>",
                                          "created_ms": 1700000000000}, …]}

``keys`` has the key to sign with, then the one before it. ``delivery`` and each option in it may
be missing: then the defaults of `DeliveryOptions` apply. Fields that a release doesn't know it
ignores; what must not be ignored gets a new version.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from hqueue.errors import HQueueError, UnsupportedFormatError
from hqueue.message import MessageID
from hqueue.metadata.append_keys import KEY_ID_BYTES, SECRET_BYTES, AppendKey, AppendKeys
from hqueue.metadata.ports import Version
from hqueue.metadata.records import DeliveryOptions, WorkerRecord
from hqueue.settings.addresses import Address
from hqueue.settings.numbers import check_whole

__all__ = [
    "decode_address",
    "decode_append_keys",
    "decode_checkpoint",
    "decode_epoch",
    "decode_member",
    "decode_offset",
    "decode_owner",
    "decode_topics",
    "decode_worker",
    "encode_address",
    "encode_append_keys",
    "encode_checkpoint",
    "encode_epoch",
    "encode_member",
    "encode_offset",
    "encode_owner",
    "encode_topics",
    "encode_worker",
]

VERSION = 1
STREAMS_MAX = 1_000

_Decoded = TypeVar("_Decoded")


def encode_checkpoint(next_id: MessageID) -> bytes:
    return _encode(next=str(next_id))


def decode_checkpoint(data: bytes, path: str) -> MessageID:
    """The first ID that is not yet delivered. `path` is where the record lies, for errors."""
    return _decode(data, path, lambda fields: MessageID.parse(_text(fields["next"])))


def encode_address(address: Address) -> bytes:
    return _encode(address=str(address))


def decode_address(data: bytes, path: str) -> Address:
    return _decode(data, path, lambda fields: Address.parse(_text(fields["address"])))


def encode_topics(topics: frozenset[str] | None, delivery: DeliveryOptions) -> bytes:
    return _encode(
        topics=None if topics is None else sorted(topics), delivery=dataclasses.asdict(delivery)
    )


def decode_topics(data: bytes, path: str) -> tuple[frozenset[str] | None, DeliveryOptions]:
    def read(fields: dict[str, Any]) -> tuple[frozenset[str] | None, DeliveryOptions]:
        topics = fields["topics"]
        wanted = None if topics is None else frozenset(map(_text, _list(topics)))
        known = {field.name for field in dataclasses.fields(DeliveryOptions)}
        options = {k: v for k, v in fields.get("delivery", {}).items() if k in known}
        return wanted, DeliveryOptions(**options)

    return _decode(data, path, read)


def encode_worker(worker: WorkerRecord) -> bytes:
    return _encode(address=str(worker.address), region_host=worker.region_host, load=worker.load)


def decode_worker(data: bytes, path: str, name: str) -> WorkerRecord:
    return _decode(
        data,
        path,
        lambda fields: WorkerRecord(
            name,
            Address.parse(_text(fields["address"])),
            _text(fields["region_host"]),
            int(fields["load"]),
        ),
    )


def encode_owner(owner: str, role: str = "worker") -> bytes:
    return _encode(**{role: owner})


def decode_owner(data: bytes, path: str, role: str = "worker") -> str:
    return _decode(data, path, lambda fields: _text(fields[role]))


def encode_member(streams: Mapping[str, int]) -> bytes:
    return _encode(streams=dict(sorted(streams.items())))


def decode_member(data: bytes, path: str) -> dict[str, int]:
    """How many streams a member of a group has of each queue."""
    return _decode(
        data,
        path,
        lambda fields: {
            _text(queue): check_whole(streams, 1, STREAMS_MAX)
            for queue, streams in fields["streams"].items()
        },
    )


def encode_offset(next_id: MessageID, consumer: str) -> bytes:
    return _encode(next=str(next_id), consumer=consumer)


def decode_offset(data: bytes, path: str) -> MessageID:
    """The first ID that a group has not consumed yet."""
    return _decode(data, path, lambda fields: MessageID.parse(_text(fields["next"])))


def encode_epoch(epoch: int, since: MessageID) -> bytes:
    # The field is on disk, and keeps its name: "number" is the epoch.
    return _encode(number=epoch, since=str(since))


def decode_epoch(data: bytes, path: str) -> tuple[int, MessageID]:
    """The latest epoch of a producer, and when it was claimed."""
    return _decode(
        data, path, lambda fields: (int(fields["number"]), MessageID.parse(_text(fields["since"])))
    )


def encode_append_keys(keys: AppendKeys) -> bytes:
    known = [keys.current] if keys.previous is None else [keys.current, keys.previous]
    return _encode(
        keys=[
            {"id": key.id.hex(), "secret": key.secret.hex(), "created_ms": key.created_ms}
            for key in known
        ]
    )


def decode_append_keys(data: bytes, path: str, revision: Version) -> AppendKeys:
    """The keys of this revision."""

    def read(fields: dict[str, Any]) -> AppendKeys:
        known = [
            AppendKey(
                _hex(key["id"], KEY_ID_BYTES),
                _hex(key["secret"], SECRET_BYTES),
                int(key["created_ms"]),
            )
            for key in _list(fields["keys"])[:2]
        ]
        return AppendKeys(known[0], known[1] if len(known) > 1 else None, revision)

    return _decode(data, path, read)


def _encode(**fields: object) -> bytes:
    return json.dumps({"version": VERSION, **fields}, ensure_ascii=False).encode()


def _decode(data: bytes, path: str, read: Callable[[dict[str, Any]], _Decoded]) -> _Decoded:
    """Read a record.

    Raises:
        UnsupportedFormatError: it has another version, or is none of ours.
    """
    try:
        fields = json.loads(data)
        version = fields["version"]
    except (ValueError, KeyError, TypeError, RecursionError) as exc:
        raise UnsupportedFormatError("this is no record of hqueue", path=path) from exc
    if version != VERSION:
        raise UnsupportedFormatError(
            "a record has a version that this release does not know", path=path, version=version
        )
    try:
        return read(fields)
    except (
        LookupError, ArithmeticError, ValueError, TypeError, AttributeError, HQueueError
    ) as exc:  # fmt: skip
        raise UnsupportedFormatError(
            "a record of version 1 lacks a field, or has a wrong one",
            path=path,
            reason=f"{type(exc).__name__}: {exc}",
        ) from exc


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _hex(value: object, length: int) -> bytes:
    if not isinstance(value, str) or len(value) != 2 * length:
        raise ValueError(f"{length} bytes are needed")  # Not which they are: it may be a secret.
    return bytes.fromhex(value)


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is no list")
    return value
