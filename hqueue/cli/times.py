"""Moments as people write them on the command line."""

from __future__ import annotations

import datetime
import re
import time

from hqueue.errors import InvalidInputError
from hqueue.message_id import MessageID, as_message_id

__all__ = ["MOMENT_HELP", "is_relative", "parse_moment"]

MOMENT_HELP = (
    "a MessageID (1700000000000-0), ISO 8601 (2024-05-01T12:00; local time where no zone is "
    "given), milliseconds since the epoch, 'now' by this machine's clock, or a time before that: "
    "-10m, '1h30m ago'"
)

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SPAN = r"(?:\d{1,15}\s*(?:ms|s|m|h|d|w)\s*)+"
_BEFORE = re.compile(rf"-\s*({_SPAN})|({_SPAN})ago", re.ASCII)
_PART = re.compile(r"(\d+)\s*(ms|s|m|h|d|w)", re.ASCII)
_ID = re.compile(r"(0|[1-9]\d*)-(0|[1-9]\d*)", re.ASCII)
_NUMBER = re.compile(r"\d{1,20}", re.ASCII)

MILLISECONDS_DIGITS_MIN = 12
"""Milliseconds since 1973 have at least as many digits, dates and seconds since the epoch fewer."""


def parse_moment(
    text: str, *, now_ms: int | None = None, local: datetime.tzinfo | None = None
) -> MessageID:
    """The smallest MessageID that a message written at this moment can have.

    Args:
        text: as `MOMENT_HELP` says.
        now_ms: the present, milliseconds since the epoch; the clock's if None.
        local: the zone of times without one; the system's if None.

    Raises:
        InvalidInputError: it can't be read, is out of range, or could mean two things.
    """
    stripped = text.strip()
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    before = _BEFORE.fullmatch(stripped)
    if stripped == "now":
        return MessageID(now_ms)
    if before is not None:
        span_ms = sum(
            int(number) * _UNITS_MS[unit] for number, unit in _PART.findall(before[1] or before[2])
        )
        return MessageID(max(0, now_ms - span_ms))
    if _NUMBER.fullmatch(stripped):
        if len(stripped) < MILLISECONDS_DIGITS_MIN and stripped != "0":
            raise InvalidInputError(
                "this is too small for milliseconds since the epoch; seconds need three zeros "
                "more, a date is written 2024-05-01",
                moment=text,
            )
        return MessageID(int(stripped))
    if _ID.fullmatch(stripped) and not re.fullmatch(r"\d{4}-\d\d", stripped):
        return MessageID.parse(stripped)
    return as_message_id(_parse_iso(stripped, text, local))


def is_relative(text: str) -> bool:
    """Whether a moment is another one each time that it is read: 'now', or a time before now."""
    stripped = text.strip()
    return stripped == "now" or _BEFORE.fullmatch(stripped) is not None


def _parse_iso(stripped: str, text: str, local: datetime.tzinfo | None) -> datetime.datetime:
    if stripped[-1:] in ("Z", "z"):
        stripped = stripped[:-1] + "+00:00"
    try:
        moment = datetime.datetime.fromisoformat(stripped)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=local) if local else moment.astimezone()
        return moment.astimezone(datetime.timezone.utc)
    except (ValueError, OverflowError) as exc:
        raise InvalidInputError(f"a moment is {MOMENT_HELP}", moment=text) from exc
