"""Positions in a partition, by ID or by time, and starts of subscribers and groups, as objects and
as text.
"""

from __future__ import annotations

import datetime
import re
import time

from hqueue.errors import InvalidInputError
from hqueue.message_id import MessageID
from hqueue.settings.numbers import as_whole

__all__ = [
    "EARLIEST",
    "LATEST",
    "POSITION_HELP",
    "START_HELP",
    "Position",
    "Start",
    "Timestamp",
    "as_due_ms",
    "as_message_id",
    "check_start",
    "is_relative",
    "is_time",
    "parse_duration_ms",
    "parse_position",
]

EARLIEST = "earliest"
LATEST = "latest"

Timestamp = datetime.datetime | datetime.timedelta | int | str
"""A time: an aware datetime; milliseconds since the epoch; a timedelta before now, by this
machine's clock; or a text such as ``"2024-05-01T12:00Z"`` or ``"1h30m ago"``.
"""

Position = MessageID | Timestamp
"""A position in a partition: a `MessageID` or its text; ``"earliest"`` for the oldest message; or a
`Timestamp`, for the first message that was written then or later. A plain number is a time and not
an ID: `MessageID.from_int` converts an ID.
"""

Start = Position | str
"""Where a subscriber without a checkpoint begins, or a group that is reset: a `Position`, or
``"latest"`` for the messages that are written from now on.
"""

SECONDS_MIN = 10**9
SECONDS_MAX = 10**10
"""Numbers in this range are seconds of the years 2001 to 2286. As milliseconds they would be in the
first months of 1970, in which no message was written."""

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)

POSITION_HELP = (
    "a MessageID (1700000000000-0), ISO 8601 (2024-05-01T12:00; local time if it has no zone), "
    "milliseconds since the epoch, 'earliest', 'now' by this machine's clock, or a time before "
    "that: -10m, '1h30m ago'"
)
START_HELP = f"'latest', {POSITION_HELP}"

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SPAN = r"(?:\d{1,15}\s*(?:ms|s|m|h|d|w)\s*)+"
_BEFORE = re.compile(rf"-\s*({_SPAN})|({_SPAN})ago", re.ASCII)
_SPANS = re.compile(_SPAN, re.ASCII)
_PART = re.compile(r"(\d+)\s*(ms|s|m|h|d|w)", re.ASCII)
_ID = re.compile(r"(0|[1-9]\d*)-(0|[1-9]\d*)", re.ASCII)
_NUMBER = re.compile(r"\d{1,20}", re.ASCII)

MILLISECONDS_DIGITS_MIN = 12
"""Milliseconds since 1973 have at least this many digits. Dates and seconds since the epoch have
fewer."""


def as_message_id(position: Position) -> MessageID:
    """The smallest ID that a message at this position, or written at this time, can have.

    Raises:
        InvalidInputError: the position is a naive datetime, is out of range, is a number that looks
            like seconds, or can't be read.
    """
    if isinstance(position, MessageID):
        return position
    if isinstance(position, str):
        return parse_position(position)
    if isinstance(position, datetime.datetime):
        if position.tzinfo is None:
            raise InvalidInputError("a datetime needs a time zone here", datetime=position)
        return MessageID((position - _EPOCH) // datetime.timedelta(milliseconds=1))
    if isinstance(position, datetime.timedelta):
        if position < datetime.timedelta(0):
            raise InvalidInputError(
                "a timedelta means a time before now, and can't be negative", position=position
            )
        return MessageID(max(0, _now_ms() - position // datetime.timedelta(milliseconds=1)))
    number = as_whole(position, 0)
    if number is not None:
        _check_unit(number)
    return MessageID(position)


def _check_unit(number: int) -> None:
    if SECONDS_MIN <= number < SECONDS_MAX:
        raise InvalidInputError(
            "a number means milliseconds since the epoch, and this one looks like seconds: "
            "multiply it by 1000, or give a datetime",
            position=number,
        )


def as_due_ms(when: datetime.datetime | datetime.timedelta | int) -> int:
    """A time in milliseconds since the epoch. A timedelta counts from now into the future.

    Raises:
        InvalidInputError: it is none of these, a naive datetime, a negative timedelta, a number
            that looks like seconds, or out of range.
    """
    due_ms: int | None
    if isinstance(when, datetime.timedelta):
        due_ms = _now_ms() + when // datetime.timedelta(milliseconds=1)
        if when < datetime.timedelta(0):
            raise InvalidInputError("a delay must not be negative", delay=when)
    elif isinstance(when, datetime.datetime):
        if when.tzinfo is None:
            raise InvalidInputError("a datetime needs a time zone here", datetime=when)
        due_ms = (when - _EPOCH) // datetime.timedelta(milliseconds=1)
    else:
        due_ms = as_whole(when, 0)
        if due_ms is None:
            raise InvalidInputError(
                "a time must be a datetime, a timedelta from now, or milliseconds since the epoch",
                when=when,
            )
        _check_unit(due_ms)
    if not 0 <= due_ms < 2**48:
        raise InvalidInputError("a time must be between the years 1970 and 10889", when=when)
    return due_ms


def check_start(start: Start) -> Start:
    """A start that is valid: ``"earliest"`` and ``"latest"`` as they are, and the ID of any other
    position.

    Raises:
        InvalidInputError: it is neither a position nor ``"latest"``.
    """
    if isinstance(start, str) and start in (EARLIEST, LATEST):
        return start
    return as_message_id(start)


def parse_position(
    text: str, *, now_ms: int | None = None, local: datetime.tzinfo | None = None
) -> MessageID:
    """The smallest ID that a message at this position, or written at this time, can have.

    Args:
        text: the position, in a form that `POSITION_HELP` lists.
        now_ms: the present time in milliseconds since the epoch; this machine's clock if None.
        local: the time zone of times without one; the system's if None.

    Raises:
        InvalidInputError: the text can't be read, is out of range, or could mean two things.
    """
    stripped = text.strip()
    now_ms = _now_ms() if now_ms is None else now_ms
    before = _BEFORE.fullmatch(stripped)
    if stripped == EARLIEST:
        return MessageID(0)
    if stripped == "now":
        return MessageID(now_ms)
    if stripped == LATEST:
        raise InvalidInputError(
            "only subscribers and groups begin at 'latest': give 'now' for the present",
            position=text,
        )
    if before is not None:
        return MessageID(max(0, now_ms - _span_ms(before[1] or before[2])))
    if _NUMBER.fullmatch(stripped):
        if len(stripped) < MILLISECONDS_DIGITS_MIN and stripped != "0":
            raise InvalidInputError(
                "the number is too small for milliseconds since the epoch: multiply seconds by "
                "1000, or write a date as 2024-05-01",
                position=text,
            )
        return MessageID(int(stripped))
    if _is_id(stripped):
        return MessageID.parse(stripped)
    return as_message_id(_parse_iso(stripped, text, local))


def parse_duration_ms(text: str) -> int:
    """Read a duration in milliseconds: a whole number, or a text such as ``5s`` or ``1m30s``.

    Raises:
        InvalidInputError: the text can't be read.
    """
    stripped = text.strip()
    if _NUMBER.fullmatch(stripped):
        return int(stripped)
    if _SPANS.fullmatch(stripped) is None:
        raise InvalidInputError(
            "a duration must be milliseconds, or be written as 5s, 2m or 1m30s", duration=text
        )
    return _span_ms(stripped)


def is_relative(text: str) -> bool:
    """Whether a position depends on the present time: 'now', or a time before now."""
    stripped = text.strip()
    return stripped == "now" or _BEFORE.fullmatch(stripped) is not None


def is_time(position: Position) -> bool:
    """Whether a position is a time. If not, it is an ID or ``"earliest"``."""
    if isinstance(position, str):
        stripped = position.strip()
        return stripped != EARLIEST and not _is_id(stripped)
    return not isinstance(position, MessageID)


def _is_id(stripped: str) -> bool:
    """Whether a text is an ID and not a month of a year, such as 2024-05."""
    return bool(_ID.fullmatch(stripped)) and not re.fullmatch(r"\d{4}-\d\d", stripped)


def _span_ms(text: str) -> int:
    return sum(int(number) * _UNITS_MS[unit] for number, unit in _PART.findall(text))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _parse_iso(stripped: str, text: str, local: datetime.tzinfo | None) -> datetime.datetime:
    if stripped[-1:] in ("Z", "z"):
        stripped = stripped[:-1] + "+00:00"
    try:
        position = datetime.datetime.fromisoformat(stripped)
        if position.tzinfo is None:
            position = position.replace(tzinfo=local) if local else position.astimezone()
        return position.astimezone(datetime.timezone.utc)
    except (ValueError, OverflowError) as exc:
        raise InvalidInputError(f"a position must be {POSITION_HELP}", position=text) from exc
