"""Writes messages, times and durations as people read them."""

from __future__ import annotations

import datetime

from hqueue.message import Message
from hqueue.message_id import MessageID

__all__ = ["headers_text", "iso_timestamp", "key_text", "printable", "size_text", "ttl_text"]

_UTC = datetime.timezone.utc
_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(0x20), 0x7F, *range(0x80, 0xA0))} | {
    0x09: "\\t",
    0x0A: "\\n",
    0x0D: "\\r",
    0x2028: "\\u2028",
    0x2029: "\\u2029",
}
# Direction marks could make a terminal show something else than what is there.
_ESCAPES |= {code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}

_UNITS = (("w", 604_800), ("d", 86_400), ("h", 3_600), ("m", 60))


def iso_timestamp(timestamp_ms: int, zone: datetime.tzinfo | None = _UTC) -> str:
    """Milliseconds since the epoch in ISO 8601; in the system's zone if that is None."""
    try:
        moment = MessageID(timestamp_ms).datetime.astimezone(zone)
    except (OverflowError, ValueError):  # Beyond the year 9999: IDs reach further than datetimes.
        return f"{timestamp_ms}ms"
    text = moment.isoformat(timespec="milliseconds")
    return text[:-6] + "Z" if zone is _UTC else text


def printable(value: bytes | str) -> str:
    """A value on one line: what is not UTF-8 and what steers a terminal is escaped."""
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
    return text if text.isprintable() else text.translate(_ESCAPES)


def key_text(message: Message) -> str:
    """Its key for people; ``-`` if it has none."""
    return "-" if message.key is None else printable(message.key)


def headers_text(message: Message) -> str:
    """Its headers for people, ``name=value,name=value``; ``-`` if it has none."""
    return ",".join(f"{printable(n)}={printable(v)}" for n, v in message.headers) or "-"


def ttl_text(seconds: int | None) -> str:
    """A TTL as ``--ttl`` takes it, in the largest unit that is exact."""
    if seconds is None:
        return "forever"
    return next((f"{seconds // n}{unit}" for unit, n in _UNITS if seconds % n == 0), f"{seconds}s")


def size_text(size_bytes: float) -> str:
    """A number of bytes for people."""
    for unit in ("B", "kB", "MB", "GB"):
        if size_bytes < 1_000:
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1_000
    return f"{size_bytes:.1f} TB"
