"""Moments on the command line are read as meant, or refused when they could mean two things."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import pytest

from hqueue.consume.scan import Scan
from hqueue.errors import InvalidInputError
from hqueue.message_id import MessageID
from hqueue.position import Position, as_message_id, check_start, is_time, parse_position
from hqueue.push.subscription import Subscription

NOW_MS = 1_700_000_000_000
EAST = datetime.timezone(datetime.timedelta(hours=8))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1700000000123-7", MessageID(1_700_000_000_123, 7)),
        ("0-0", MessageID(0)),
        ("2024-32767", MessageID(2024, 32_767)),
        ("1700000000123", MessageID(1_700_000_000_123)),
        ("0", MessageID(0)),
        ("now", MessageID(NOW_MS)),
        ("-10m", MessageID(NOW_MS - 600_000)),
        ("10m ago", MessageID(NOW_MS - 600_000)),
        ("-1h30m", MessageID(NOW_MS - 5_400_000)),
        ("1h 30m ago", MessageID(NOW_MS - 5_400_000)),
        ("-250ms", MessageID(NOW_MS - 250)),
        ("-2w", MessageID(NOW_MS - 1_209_600_000)),
        ("-900000w", MessageID(0)),
        ("2023-11-14T22:13:20Z", MessageID(NOW_MS)),
        ("2023-11-14T22:13:20.123+00:00", MessageID(NOW_MS + 123)),
        ("2023-11-15T06:13:20+08:00", MessageID(NOW_MS)),
        (" 2023-11-15 06:13:20 ", MessageID(NOW_MS)),
        ("2023-11-15", MessageID(NOW_MS - 6 * 3_600_000 - 800_000)),
    ],
)
def test_a_moment_is_read_as_meant(text: str, expected: MessageID) -> None:
    assert parse_position(text, now_ms=NOW_MS, local=EAST) == expected


def test_a_time_without_a_zone_is_the_systems_local_time() -> None:
    local = datetime.datetime(2024, 5, 1, 12, 0).astimezone()
    assert parse_position("2024-05-01T12:00") == MessageID(int(local.timestamp() * 1_000))


def test_latest_is_refused_with_what_takes_it_and_what_to_say_here() -> None:
    with pytest.raises(InvalidInputError, match="give 'now' for the present"):
        parse_position("latest")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        "yesterday",
        "10m",
        "-10",
        "-10y",
        "2024",
        "1700000000",
        "20240501",
        "2024-12",
        "2024-13-01",
        "1969-12-31T00:00Z",
        "99999999999999999999",
        "1700000000000-40000",
        "0001-01-01T00:00+14:00",
        "９９９-1",
        "-９m",
    ],
)
def test_what_can_not_be_read_or_could_mean_two_things_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_position(text, now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        (MessageID(NOW_MS), False),
        (" 1700000000123-7 ", False),
        ("earliest", False),
        ("2024-05", True),
        ("now", True),
        ("1h ago", True),
        ("1700000000123", True),
        (NOW_MS, True),
        (datetime.timedelta(hours=1), True),
        (datetime.datetime(2024, 5, 1, tzinfo=EAST), True),
    ],
)
def test_an_id_is_no_time(moment: Position, expected: bool) -> None:
    assert is_time(moment) is expected


ID = MessageID(NOW_MS, 7)


@pytest.mark.parametrize(
    "take",
    [
        as_message_id,
        check_start,
        lambda number: parse_position(str(number)),
        lambda number: Scan(start=number),
        lambda number: Scan(stop=number),
        lambda number: Subscription("s", start=number),
        lambda number: Subscription("s").add_partition(0, number),
    ],
)
def test_an_id_that_is_a_plain_number_is_taken_for_no_time(take: Callable[[Any], object]) -> None:
    take(ID)
    take(str(ID))
    with pytest.raises(InvalidInputError, match=r"MessageID\.from_int"):
        take(int(ID))
