"""What an answer means, for push and for hubs: decided without waiting for anything."""

from __future__ import annotations

import pytest

from hqueue.metadata import DeliveryOptions
from hqueue.push.answers import MessageAnswers
from hqueue_workers.delivery.tries import UNTRIED, Decision, Tries
from hqueue_workers.delivery.wire import Call, Reply

DONE, RETRY, REJECT, UNKNOWN = 0, 1, 2, 77
OPTIONS = DeliveryOptions(attempts_max=3, backoff_ms_min=100, backoff_ms_max=300)
BEFORE = Tries(9, 1, 4, "busy")
REJECTED, USED_UP = "rejected by the subscriber", "the subscriber's attempts are used up"


def call(end: int = 9, count: int = 3) -> Call:
    """A call whose messages have the IDs before its end."""
    return Call(0, end, (b"",), (range(end - count, end),))


def all_dead(why: str) -> dict[int, str]:
    return dict.fromkeys(range(3), why)


@pytest.mark.parametrize(
    ("reply", "decision"),
    [
        (Reply(DONE), Decision(UNTRIED, done=3)),
        (Reply(RETRY), Decision(Tries(9, 2, 0, "busy"), 200, retried=3)),
        (Reply(UNKNOWN, "what?"), Decision(Tries(9, 2, 0, "what?"), 200, retried=3)),
        (
            Reply(REJECT),
            Decision(Tries(9, 2, 0, ""), done=3, dead=all_dead(REJECTED), rejected=3),
        ),
        (
            Reply(REJECT, "bad"),
            Decision(Tries(9, 2, 0, "bad"), done=3, dead=all_dead(f"{REJECTED}: bad"), rejected=3),
        ),
    ],
)
def test_each_answer_says_what_follows(reply: Reply, decision: Decision) -> None:
    assert BEFORE.answered(reply, call(), OPTIONS) == decision


def each(
    rejected: dict[int, str], first: int | None = None, reason: str = "", delay: int | None = None
) -> Reply:
    return Reply(RETRY, reason, MessageAnswers(rejected, first, delay))


HEAD = Tries(9, 2, 0, "busy", 1)
"""After a second attempt, in which the first message was named."""


@pytest.mark.parametrize(
    ("reply", "decision"),
    [
        (
            each({1: "bad"}),
            Decision(HEAD, done=3, dead={1: f"{REJECTED}: bad"}, rejected=1),
        ),
        (each({}, 0), Decision(HEAD, 200, retried=3)),
        (each({}, 0, delay=7), Decision(HEAD, 7, retried=3)),
        (each({}, 2), Decision(HEAD, 100, 2, {}, Tries(9, 1, 0, "", 1), 1)),
        (
            each({0: "", 1: "bad"}, 2, "later", 0),
            Decision(
                Tries(9, 2, 0, "later", 1), 0, 2, {0: REJECTED, 1: f"{REJECTED}: bad"},
                Tries(9, 1, 0, "later", 1), 1, 2,
            ),
        ),
    ],
)  # fmt: skip
def test_an_answer_for_each_message_says_it_for_no_other(reply: Reply, decision: Decision) -> None:
    assert BEFORE.answered(reply, call(), OPTIONS) == decision


def test_attempts_that_named_a_message_take_no_neighbour_to_the_dead_letters() -> None:
    tries, found = UNTRIED, []
    for reply in (each({}, 0, "one"), each({}, 0), each({}, 0)):
        decision = tries.answered(reply, call(), OPTIONS)
        tries = decision.tries
        found.append((decision.pause_ms, decision.done, decision.dead, decision.after))
    assert found == [
        (100, None, {}, UNTRIED),
        (200, None, {}, UNTRIED),
        (0, 1, {0: f"{USED_UP}: one"}, UNTRIED),
    ]
    after = tries._replace(attempts=2, alone=2).answered(Reply(RETRY), call(), OPTIONS)
    assert (after.done, list(after.dead)) == (1, [0]), "two of three named the first message"
    after = Tries(9, 2, 0, "").answered(each({}, 1, "two"), call(), OPTIONS)
    assert (after.done, after.dead, after.after) == (1, {}, Tries(9, 1, 0, "two", 1))
    once = DeliveryOptions(attempts_max=1)
    after = UNTRIED.answered(each({0: "bad"}, 1, "two"), call(), once)
    assert (after.done, after.dead) == (2, {0: f"{REJECTED}: bad", 1: f"{USED_UP}: two"})
    assert after.after is UNTRIED


def test_the_last_attempt_that_may_be_made_ends_with_the_dead_letters() -> None:
    tries, found = UNTRIED, []
    for reply in (Reply(RETRY, "one"), Reply(RETRY), Reply(RETRY)):
        decision = tries.answered(reply, call(5), OPTIONS)
        tries = decision.tries
        found.append((decision.pause_ms, decision.dead))
    assert found == [(100, {}), (200, {}), (0, all_dead(f"{USED_UP}: one"))]
    assert tries == Tries(5, 3, 0, "one"), "it is kept for a dead letter that can't be put now"
    assert tries.passed() is UNTRIED


def test_no_answer_is_no_attempt_and_its_pauses_are_bounded() -> None:
    tries, pauses = Tries(5, 2, 0, "busy"), []
    for _ in range(2_000):
        decision = tries.unanswered(call(5), OPTIONS)
        tries = decision.tries
        assert (decision.done, decision.dead) == (None, {})
        pauses.append(decision.pause_ms)
    assert pauses[:4] == [100, 200, 300, 300]
    assert max(pauses) == 300
    assert tries == Tries(5, 2, 2_000, "busy")
    assert tries.passed() == Tries(failures=2_000), "what comes next is not answered by that"
    assert tries.answered(Reply(RETRY), call(5), DeliveryOptions()).tries == Tries(5, 3, 0, "busy")
