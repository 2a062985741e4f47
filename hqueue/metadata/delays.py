"""Delayed messages, and the delays that the record of a group or a subscriber names."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from hqueue.settings.limits import TIMESTAMP_MS_MAX
from hqueue.settings.numbers import check_whole

__all__ = [
    "DELAYED_TOGETHER_MAX",
    "DELAYS_MAX",
    "Delay",
    "Delayed",
    "delays_of",
    "merged_with",
    "name_of",
]

DELAYED_TOGETHER_MAX = 10_000
"""The most messages in one record."""
DELAYS_MAX = 2_000
"""How many records of delays one partition may have. Each name takes some 60 bytes in the record of
the group or subscriber, which must stay below the size that every store can keep."""
MERGED_TOGETHER = 16
"""How many records are merged into one, if their counts have the same power of 16."""

NAME = re.compile("[0-9a-f]{32}")


class Delayed(NamedTuple):
    """A message that is not due yet."""

    due_ms: int
    """When the message is due, in milliseconds since the epoch."""
    id: int
    deliveries: int
    """How often the message was delivered so far."""


class Delay(NamedTuple):
    """A record of delays, as a window or a checkpoint names it: it has messages that are not due
    yet.
    """

    name: str
    due_ms: int
    """When the first of its messages is due, in milliseconds since the epoch."""
    messages: int
    """How many messages the record has."""


def merged_with(delays: Sequence[Delay], count: int) -> list[Delay]:
    """The records that are merged with a new record of so many messages. Merging keeps the number
    of records small although messages come one by one: at most 15 of each power of 16, and the full
    ones. A message is rewritten at most once for each power.

    Args:
        delays: the present records.
        count: how many messages the new record has.
    """
    by_size: defaultdict[int, list[Delay]] = defaultdict(list)
    for delay in delays:
        if delay.messages < DELAYED_TOGETHER_MAX:
            by_size[_size(delay.messages)].append(delay)
    merged: list[Delay] = []
    left = count % DELAYED_TOGETHER_MAX  # Messages in full records stay there.
    while left:
        size = _size(left)
        # Two records of the largest size fill one.
        others = 1 if size == LARGEST else MERGED_TOGETHER - 1
        same = by_size.pop(size, [])[:others]
        if len(same) < others:
            break
        merged += same
        left = (left + sum(each.messages for each in same)) % DELAYED_TOGETHER_MAX
    return merged


def _size(count: int) -> int:
    """The power of 16 of a count."""
    return (count.bit_length() - 1) // 4


LARGEST = _size(DELAYED_TOGETHER_MAX)


def delays_of(listed: Iterable[Any]) -> tuple[Delay, ...]:
    """The delays that a record names, from its JSON: a list of lists.

    Raises:
        TypeError, ValueError: the list has something that is not a delay.
    """
    return tuple(_delay_of(*each) for each in listed)


def _delay_of(name: object, due_ms: object, count: object) -> Delay:
    return Delay(
        name_of(name),
        check_whole(due_ms, 0, TIMESTAMP_MS_MAX),
        check_whole(count, 1, DELAYED_TOGETHER_MAX),
    )


def name_of(name: object) -> str:
    """Check the name of a record of delays, and return it.

    Raises:
        ValueError: the name is not valid.
    """
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ValueError("the name of a record of delays must be 32 hexadecimal digits")
    return name
