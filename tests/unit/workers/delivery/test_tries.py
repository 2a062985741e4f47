"""What an answer means, for push and for hubs: decided without waiting for anything."""

from __future__ import annotations

import pytest

from hqueue.metadata import DeliveryOptions
from hqueue.push.listener import Status
from hqueue_workers.delivery.tries import UNTRIED, Decision, Tries
from hqueue_workers.delivery.wire import Reply

DONE, RETRY, REJECT, UNKNOWN = 0, 1, 2, 77
OPTIONS = DeliveryOptions(attempts_max=3, backoff_ms_min=100, backoff_ms_max=300)
BEFORE = Tries(9, 1, 4, "busy")


@pytest.mark.parametrize(
    ("reply", "decision"),
    [
        (Reply(DONE), Decision(UNTRIED, Status.DONE)),
        (Reply(RETRY), Decision(Tries(9, 2, 0, "busy"), Status.RETRY, 200)),
        (Reply(UNKNOWN, "what?"), Decision(Tries(9, 2, 0, "what?"), Status.RETRY, 200)),
        (
            Reply(REJECT),
            Decision(Tries(9, 2, 0, ""), Status.DEAD_LETTER, dead="rejected by the subscriber"),
        ),
        (
            Reply(REJECT, "bad"),
            Decision(
                Tries(9, 2, 0, "bad"), Status.DEAD_LETTER, dead="rejected by the subscriber: bad"
            ),
        ),
    ],
)
def test_each_answer_says_what_follows(reply: Reply, decision: Decision) -> None:
    assert BEFORE.answered(reply, 9, OPTIONS) == decision


def test_the_last_attempt_that_may_be_made_ends_with_the_dead_letters() -> None:
    tries, found = UNTRIED, []
    for reply in (Reply(RETRY, "one"), Reply(RETRY), Reply(RETRY)):
        decision = tries.answered(reply, 5, OPTIONS)
        tries = decision.tries
        found.append((decision.pause_ms, decision.dead))
    assert found == [
        (100, None),
        (200, None),
        (0, "the subscriber's attempts are used up: one"),
    ]
    assert tries == Tries(5, 3, 0, "one"), "it is kept for a dead letter that can't be put now"
    assert tries.passed() is UNTRIED


def test_no_answer_is_no_attempt_and_its_pauses_are_bounded() -> None:
    tries, pauses = Tries(5, 2, 0, "busy"), []
    for _ in range(2_000):
        decision = tries.unanswered(5, OPTIONS)
        tries = decision.tries
        assert (decision.status, decision.dead) == (None, None)
        pauses.append(decision.pause_ms)
    assert pauses[:4] == [100, 200, 300, 300]
    assert max(pauses) == 300
    assert tries == Tries(5, 2, 2_000, "busy")
    assert tries.passed() == Tries(failures=2_000), "what comes next is not answered by that"
    assert tries.answered(Reply(RETRY), 5, DeliveryOptions()).tries == Tries(5, 3, 0, "busy")
