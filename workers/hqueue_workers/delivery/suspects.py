"""Finds the message that ends its subscriber's process: pure decisions for push and for hubs.

A call that the subscriber got and did not answer counts against its messages. When as many calls
had no answer as the subscription allows, one of their messages is suspected. The calls are then
halved until a message is alone:

    a call without an answer        with several messages      with one alone
    before the calls are halved     counted; then halved       counted; then a dead letter
    while they are halved           halved again               counted; then a dead letter

Messages that are done or have become dead letters are no longer suspected, and the count begins
again. The answer *retry* does not count. Only the suspected message becomes a dead letter.
"""

from __future__ import annotations

from typing import NamedTuple

from hqueue import MessageID
from hqueue.metadata.unanswered_calls import UnansweredCalls
from hqueue_workers.delivery.wire import Call

__all__ = ["Verdict", "cleared", "messages_max", "unanswered"]


class Verdict(NamedTuple):
    """What follows from a call without an answer.

    Args:
        suspected: the calls without an answer, to keep; None if nothing is suspected.
        messages: the number of messages of the next call: fewer than this one had, if halved.
        poison: whether the call's only message must become a dead letter.
    """

    suspected: UnansweredCalls | None
    messages: int
    poison: bool = False


def unanswered(before: UnansweredCalls | None, call: Call, calls_max: int) -> Verdict:
    """What follows from a call that had no answer.

    Args:
        before: what was suspected before the call.
        call: the call.
        calls_max: the most calls without an answer that a message may have; 0 for no bound.
    """
    if not calls_max:
        return Verdict(None, call.count)
    first, end = MessageID.from_int(call.start), MessageID.from_int(call.end)
    count, halved = 1, None
    if before is not None and call.start < before.end:
        halved = before.messages_max
        if before.first == first:
            count += before.count
        if halved is not None:
            end = before.end
    if call.count > 1 and (halved is not None or count >= calls_max):
        half = call.count // 2
        return Verdict(UnansweredCalls(first, end, 0, half), half)
    poison = call.count == 1 and count >= calls_max
    return Verdict(UnansweredCalls(first, end, count, halved), call.count, poison)


def cleared(before: UnansweredCalls | None, position: int) -> UnansweredCalls | None:
    """What is still suspected when everything below this position is done."""
    if before is None or before.messages_max is None or position >= before.end:
        return None
    return UnansweredCalls(MessageID.from_int(position), before.end, 0, before.messages_max)


def messages_max(suspected: UnansweredCalls | None, position: int, most: int) -> int:
    """How many messages a call that begins at a position may have, at most `most`."""
    if suspected is None or suspected.messages_max is None or position >= suspected.end:
        return most
    return min(most, suspected.messages_max)
