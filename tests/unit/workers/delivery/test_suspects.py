"""Which message is suspected of ending its subscriber's process."""

from __future__ import annotations

import pytest

from hqueue import MessageID
from hqueue.metadata.unanswered_calls import UnansweredCalls
from hqueue_workers.delivery.suspects import Verdict, cleared, messages_max, unanswered
from hqueue_workers.delivery.wire import Call


def call(start: int, count: int) -> Call:
    return Call(start, start + count, (b"",), (range(start, start + count),))


def suspects(first: int, end: int, count: int, most: int | None = None) -> UnansweredCalls:
    return UnansweredCalls(MessageID.from_int(first), MessageID.from_int(end), count, most)


@pytest.mark.parametrize(
    ("before", "made", "verdict"),
    [
        (None, call(5, 8), Verdict(suspects(5, 13, 1), 8)),
        (suspects(5, 13, 1), call(5, 8), Verdict(suspects(5, 13, 2), 8)),
        (suspects(4, 5, 2), call(5, 8), Verdict(suspects(5, 13, 1), 8)),
        (suspects(5, 13, 2), call(5, 8), Verdict(suspects(5, 13, 0, 4), 4)),
        (suspects(5, 13, 2), call(5, 3), Verdict(suspects(5, 8, 0, 1), 1)),
        (suspects(9, 13, 0, 4), call(9, 4), Verdict(suspects(9, 13, 0, 2), 2)),
        (suspects(9, 13, 0, 4), call(5, 4), Verdict(suspects(5, 13, 0, 2), 2)),
        (suspects(12, 13, 0, 1), call(12, 1), Verdict(suspects(12, 13, 1, 1), 1)),
        (suspects(12, 13, 2, 1), call(12, 1), Verdict(suspects(12, 13, 3, 1), 1, True)),
        (suspects(12, 13, 2), call(12, 1), Verdict(suspects(12, 13, 3), 1, True)),
    ],
)
def test_calls_are_counted_then_halved_and_one_message_alone_is_condemned(
    before: UnansweredCalls | None, made: Call, verdict: Verdict
) -> None:
    assert unanswered(before, made, 3) == verdict
    assert unanswered(before, made, 0) == Verdict(None, made.count)


def test_what_is_done_is_suspected_no_more() -> None:
    assert cleared(None, 9) is None
    assert cleared(suspects(5, 13, 2), 9) is None, "it was not halved: a success begins again"
    assert cleared(suspects(5, 13, 2, 4), 9) == suspects(9, 13, 0, 4)
    assert cleared(suspects(5, 13, 2, 4), 13) is None
    for known, position, most in (
        (None, 5, 100),
        (suspects(5, 13, 2), 5, 100),
        (suspects(5, 13, 2, 4), 12, 4),
        (suspects(5, 13, 2, 4), 13, 100),
        (suspects(5, 13, 2, 400), 5, 100),
    ):
        assert messages_max(known, position, 100) == most
