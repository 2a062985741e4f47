"""Records in ZooKeeper and in HBase as bytes.

Each is a JSON object in UTF-8 with a version, so that a subscriber in any language can write its
own:

    checkpoint   {"version": 1, "next": "1700000000000-0"}
    address      {"version": 1, "address": "host:port"}
    topics       {"version": 1, "topics": ["a", "b"] or null,
                  "delivery": {"attempts_max": 5, "backoff_ms_min": 100, …}}
    worker       {"version": 1, "address": "host:port", "region_host": "host", "load": 3}
    owner        {"version": 1, "worker": "name"}
    work         {"version": 1, "number": 17, "since": "1700000000000-0"}

``delivery`` and each option in it may be missing: then the defaults of `DeliveryOptions` apply.
Fields that a release doesn't know it ignores; what must not be ignored gets a new version.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any, TypeVar

from hqueue.coordination import Address, DeliveryOptions, WorkerRecord
from hqueue.errors import HQueueError, UnsupportedFormatError
from hqueue.message import MessageID

__all__ = [
    "decode_address",
    "decode_checkpoint",
    "decode_owner",
    "decode_topics",
    "decode_work",
    "decode_worker",
    "encode_address",
    "encode_checkpoint",
    "encode_owner",
    "encode_topics",
    "encode_work",
    "encode_worker",
]

VERSION = 1

_Decoded = TypeVar("_Decoded")


def encode_checkpoint(next_id: MessageID) -> bytes:
    return _encode(next=str(next_id))


def decode_checkpoint(data: bytes, place: str) -> MessageID:
    """The first ID that is not yet delivered. `place` is where the record lies, for errors."""
    return _decode(data, place, lambda fields: MessageID.parse(_text(fields["next"])))


def encode_address(address: Address) -> bytes:
    return _encode(address=str(address))


def decode_address(data: bytes, place: str) -> Address:
    return _decode(data, place, lambda fields: Address.parse(_text(fields["address"])))


def encode_topics(topics: frozenset[str] | None, delivery: DeliveryOptions) -> bytes:
    return _encode(
        topics=None if topics is None else sorted(topics), delivery=dataclasses.asdict(delivery)
    )


def decode_topics(data: bytes, place: str) -> tuple[frozenset[str] | None, DeliveryOptions]:
    def read(fields: dict[str, Any]) -> tuple[frozenset[str] | None, DeliveryOptions]:
        topics = fields["topics"]
        wanted = None if topics is None else frozenset(map(_text, _list(topics)))
        known = {field.name for field in dataclasses.fields(DeliveryOptions)}
        options = {k: v for k, v in fields.get("delivery", {}).items() if k in known}
        return wanted, DeliveryOptions(**options)

    return _decode(data, place, read)


def encode_worker(worker: WorkerRecord) -> bytes:
    return _encode(address=str(worker.address), region_host=worker.region_host, load=worker.load)


def decode_worker(data: bytes, place: str, name: str) -> WorkerRecord:
    return _decode(
        data,
        place,
        lambda fields: WorkerRecord(
            name,
            Address.parse(_text(fields["address"])),
            _text(fields["region_host"]),
            int(fields["load"]),
        ),
    )


def encode_owner(worker: str) -> bytes:
    return _encode(worker=worker)


def decode_owner(data: bytes, place: str) -> str:
    return _decode(data, place, lambda fields: _text(fields["worker"]))


def encode_work(number: int, since: MessageID) -> bytes:
    return _encode(number=number, since=str(since))


def decode_work(data: bytes, place: str) -> tuple[int, MessageID]:
    """Which number of a work was begun last, and when."""
    return _decode(
        data, place, lambda fields: (int(fields["number"]), MessageID.parse(_text(fields["since"])))
    )


def _encode(**fields: object) -> bytes:
    return json.dumps({"version": VERSION, **fields}, ensure_ascii=False).encode()


def _decode(data: bytes, place: str, read: Callable[[dict[str, Any]], _Decoded]) -> _Decoded:
    """Read a record.

    Raises:
        UnsupportedFormatError: it has another version, or is none of ours.
    """
    try:
        fields = json.loads(data)
        version = fields["version"]
    except (ValueError, KeyError, TypeError) as exc:
        raise UnsupportedFormatError("this is no record of hqueue", place=place) from exc
    if version != VERSION:
        raise UnsupportedFormatError(
            "a record has a version that this release does not know", place=place, version=version
        )
    try:
        return read(fields)
    except (ValueError, KeyError, TypeError, AttributeError, HQueueError) as exc:
        raise UnsupportedFormatError(
            "a record of version 1 lacks a field, or has a wrong one",
            place=place,
            reason=f"{type(exc).__name__}: {exc}",
        ) from exc


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is no list")
    return value
