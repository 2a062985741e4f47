"""Calls that a subscriber did not answer, and how they are stored with its position."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from hqueue.message_id import MessageID
from hqueue.settings.numbers import check_whole

__all__ = ["UnansweredCalls", "unanswered_fields", "unanswered_of"]

COUNT_MAX = 2**31 - 1


@dataclasses.dataclass(frozen=True, slots=True)
class UnansweredCalls:
    """Calls that a subscriber received and did not answer: one of their messages may have ended its
    process. They are stored with the subscriber's position, so that they survive restarts.

    Raises:
        InvalidInputError: a number is out of range.
    """

    first: MessageID
    """The ID from which on the calls had messages."""
    end: MessageID
    """The ID at which the first of the calls ended: the fault may lie in a message before it."""
    count: int
    """How many calls from `first` on, with the present number of messages, got no answer."""
    messages_max: int | None = None
    """How many messages a call before `end` may have; None if that is not reduced yet."""

    def __post_init__(self) -> None:
        check_whole(self.count, 0, COUNT_MAX, option="count")
        if self.messages_max is not None:
            check_whole(self.messages_max, 1, COUNT_MAX, option="messages_max")


def unanswered_fields(unanswered: UnansweredCalls | None) -> dict[str, object]:
    """The field of a record that keeps calls without an answer. Empty if there are none."""
    if unanswered is None:
        return {}
    return {
        "unanswered": {
            "first": str(unanswered.first),
            "end": str(unanswered.end),
            "count": unanswered.count,
            "messages_max": unanswered.messages_max,
        }
    }


def unanswered_of(fields: Mapping[str, Any]) -> UnansweredCalls | None:
    """The calls without an answer that a record keeps; None if it keeps none."""
    given = fields.get("unanswered")
    if given is None:
        return None
    return UnansweredCalls(
        MessageID.parse(given["first"]),
        MessageID.parse(given["end"]),
        given["count"],
        given["messages_max"],
    )
