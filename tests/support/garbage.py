"""What a record may hold that no release of hqueue wrote, or that a later one did."""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["GARBAGE", "garbled"]

_HUGE = 10**30


def garbled(kind: str, good: bytes) -> bytes:
    """A record with something wrong, made from one that is right.

    Args:
        kind: one of `GARBAGE`.
        good: the record as hqueue writes it.
    """
    if kind == "empty":
        return b""
    if kind == "no JSON":
        return b"\xff{]\x00 no record"
    if kind == "megabyte":
        return b'{"version": 1, "' + b"x" * 1_000_000 + b'": 1}'
    fields: dict[str, Any] = json.loads(good)
    if kind == "later version":
        return json.dumps(fields | {"version": 2}).encode()
    if kind == "wrong types":
        return json.dumps({"version": 1, **{k: _other(v) for k, v in _own(fields)}}).encode()
    assert kind == "huge numbers"
    huge = re.sub(r"(?<![\w.])\d+", str(_HUGE), json.dumps(dict(_own(fields))))
    return json.dumps({"version": 1, **json.loads(huge)}).encode()


def _own(fields: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in fields.items() if name != "version"]


def _other(value: object) -> object:
    """Something of another type that does not belong in a record either."""
    return [{"a": [True]}] if isinstance(value, (str, dict, int)) or value is None else "text"


GARBAGE = ("empty", "no JSON", "wrong types", "huge numbers", "later version", "megabyte")
