"""The checker of share groups catches a planted fault of each kind, and lets a right one pass."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .history import Put, Recorder
from .share_checker import SHARE_KINDS, check_shares
from .share_history import (
    ACKNOWLEDGE,
    DELIVERIES_MAX,
    KEYED,
    LATER,
    LOCK_S,
    LOOSE,
    REASON,
    REJECT,
    RELEASE,
    RENEW,
    Answer,
    Handed,
    Letter,
    Logged,
    ShareHistory,
    ShareRecorder,
    load_shares,
)

A, B, C = ("pa", "a"), ("pb", "b"), ("pc", "c")
"""Consumers: process and ID."""

DUE_MS = 5_000


def said(kind: str, at_s: float, *, written: bool = True) -> Answer:
    return Answer(kind, at_s, (at_s + 0.1, at_s + 0.2) if written else None)


def handed(
    of: tuple[str, str], group: str, id_: int, deliveries: int, asked_s: float, *answers: Answer
) -> Handed:
    at_s, wall_ms = asked_s + 0.1, int(asked_s * 1_000)
    place, token = (0, id_), f"m{id_}"
    return Handed(
        *of, group, place, token, deliveries, asked_s, at_s, LOCK_S, wall_ms, list(answers)
    )


def right_history() -> ShareHistory:
    """One partition. The fourth message is delayed; the first two have a key, and the fourth and
    the fifth.
    """
    ids = range(1, 7)
    keys = {1: "aa", 2: "aa", 4: "bb", 5: "bb"}
    final = {
        (0, id_): Logged(f"m{id_}", keys.get(id_), DUE_MS if id_ == 4 else None) for id_ in ids
    }
    puts = [Put("p", id_, [f"m{id_}"], 0, 0.0, 0.5, "ok", [id_]) for id_ in ids]
    lapsed = [handed(C, LOOSE, 5, number, number * 10.0) for number in range(1, 6)]
    return ShareHistory(
        [*puts, Put("p", 7, ["m7"], 0, 0.0, 0.5, "fail")],
        [
            handed(A, LOOSE, 1, 1, 1.0, said(ACKNOWLEDGE, 2.0)),
            handed(A, LOOSE, 2, 1, 1.0),  # Its process was killed.
            handed(B, LOOSE, 2, 2, 6.0, said(ACKNOWLEDGE, 6.5)),
            handed(B, LOOSE, 3, 1, 1.0, said(RELEASE, 2.0)),
            handed(C, LOOSE, 3, 2, 2.5, said(REJECT, 3.0)),
            handed(C, LOOSE, 4, 1, 5.0, said(LATER, 5.3)),
            handed(B, LOOSE, 4, 2, 9.0, said(ACKNOWLEDGE, 9.3)),
            *lapsed,
            handed(A, LOOSE, 6, 1, 1.0, said(RENEW, 3.0), said(ACKNOWLEDGE, 6.0)),
            handed(A, KEYED, 1, 1, 1.0, said(ACKNOWLEDGE, 2.0)),
            handed(B, KEYED, 2, 1, 3.0, said(ACKNOWLEDGE, 3.5)),
            handed(C, KEYED, 3, 1, 3.0, said(ACKNOWLEDGE, 3.5)),
            handed(C, KEYED, 4, 1, 6.0, said(ACKNOWLEDGE, 6.5)),
            handed(A, KEYED, 5, 1, 2.0, said(ACKNOWLEDGE, 2.5)),  # None waits for the fourth.
            handed(A, KEYED, 6, 1, 2.0, said(ACKNOWLEDGE, 2.5)),
        ],
        final,
        {
            LOOSE: {
                (0, 3): Letter(REASON, 2),
                (0, 5): Letter("delivered 5 times, and never acknowledged", DELIVERIES_MAX),
            },
            KEYED: {},
        },
    )


def delivery(history: ShareHistory, group: str, id_: int, deliveries: int) -> Handed:
    (found,) = [
        each
        for each in history.handed
        if (each.group, each.place, each.deliveries) == (group, (0, id_), deliveries)
    ]
    return found


def test_a_right_history_passes() -> None:
    assert check_shares(right_history()) == []


def lose_what_a_killed_consumer_had(history: ShareHistory) -> None:
    history.handed.remove(delivery(history, LOOSE, 2, 2))


def lose_a_message_from_the_log(history: ShareHistory) -> None:
    del history.final[0, 6]


def lose_a_dead_letter(history: ShareHistory) -> None:
    del history.letters[LOOSE][0, 3]


def give_what_is_nowhere(history: ShareHistory) -> None:
    history.handed.append(handed(A, LOOSE, 9, 1, 1.0))


def give_another_in_its_place(history: ShareHistory) -> None:
    delivery(history, LOOSE, 1, 1).token = "m2"


def take_a_lock_too_early(history: ShareHistory) -> None:
    delivery(history, LOOSE, 2, 2).at_s = 4.9


def take_a_renewed_lock(history: ShareHistory) -> None:
    history.handed.append(handed(B, LOOSE, 6, 2, 5.5, said(ACKNOWLEDGE, 5.7)))


def take_what_is_not_released_yet(history: ShareHistory) -> None:
    delivery(history, LOOSE, 3, 2).at_s = 1.9


def give_a_message_to_two_at_once(history: ShareHistory) -> None:
    history.handed.append(handed(B, LOOSE, 1, 1, 1.0, said(ACKNOWLEDGE, 2.0)))


def deliver_what_was_acknowledged(history: ShareHistory) -> None:
    history.handed.append(handed(B, LOOSE, 1, 2, 9.0, said(ACKNOWLEDGE, 9.5)))


def deliver_what_was_rejected(history: ShareHistory) -> None:
    history.handed.append(handed(B, LOOSE, 3, 3, 9.0, said(ACKNOWLEDGE, 9.5)))


def forget_that_it_was_delivered_when_it_was_acknowledged(history: ShareHistory) -> None:
    history.handed.append(handed(B, LOOSE, 2, 1, 9.0))


def forget_the_delivery_to_a_killed_consumer(history: ShareHistory) -> None:
    delivery(history, LOOSE, 2, 2).deliveries = 1


def count_backwards(history: ShareHistory) -> None:
    delivery(history, LOOSE, 4, 1).deliveries = 3


def deliver_once_more(history: ShareHistory) -> None:
    history.handed.append(handed(C, LOOSE, 5, DELIVERIES_MAX + 1, 60.0))


def reject_what_nobody_rejected(history: ShareHistory) -> None:
    history.letters[KEYED][0, 6] = Letter(REASON, 1)


def give_up_too_early(history: ShareHistory) -> None:
    history.letters[LOOSE][0, 5] = Letter("delivered 5 times, and never acknowledged", 4)


def deliver_before_its_time(history: ShareHistory) -> None:
    delivery(history, LOOSE, 4, 1).wall_ms = DUE_MS - 1


def deliver_two_of_a_key_at_once(history: ShareHistory) -> None:
    delivery(history, KEYED, 2, 1).at_s = 1.9


def deliver_an_earlier_one_of_a_key_again(history: ShareHistory) -> None:
    (answer,) = delivery(history, KEYED, 1, 1).answers
    answer.written_s = None
    history.handed.append(handed(C, KEYED, 1, 2, 8.0, said(ACKNOWLEDGE, 8.5)))


def deliver_one_of_a_key_while_another_has_an_earlier_one_again(history: ShareHistory) -> None:
    (answer,) = delivery(history, KEYED, 1, 1).answers
    answer.written_s = None
    history.handed.append(handed(C, KEYED, 1, 2, 5.5))
    delivery(history, KEYED, 2, 1).asked_s = delivery(history, KEYED, 2, 1).at_s = 6.0


@pytest.mark.parametrize(
    ("plant", "kind"),
    [
        (lose_what_a_killed_consumer_had, "abandoned"),
        (lose_a_message_from_the_log, "abandoned"),
        (lose_a_dead_letter, "abandoned"),
        (give_what_is_nowhere, "misshared"),
        (give_another_in_its_place, "misshared"),
        (take_a_lock_too_early, "contended"),
        (take_a_renewed_lock, "contended"),
        (take_what_is_not_released_yet, "contended"),
        (give_a_message_to_two_at_once, "contended"),
        (deliver_what_was_acknowledged, "revived"),
        (deliver_what_was_rejected, "revived"),
        (forget_that_it_was_delivered_when_it_was_acknowledged, "revived"),
        (forget_the_delivery_to_a_killed_consumer, "recounted"),
        (count_backwards, "recounted"),
        (deliver_once_more, "overdelivered"),
        (reject_what_nobody_rejected, "condemned"),
        (give_up_too_early, "condemned"),
        (deliver_before_its_time, "hurried"),
        (deliver_two_of_a_key_at_once, "overtaken"),
        (deliver_an_earlier_one_of_a_key_again, "overtaken"),
        (deliver_one_of_a_key_while_another_has_an_earlier_one_again, "overtaken"),
    ],
)
def test_a_planted_fault_is_caught(plant: Callable[[ShareHistory], None], kind: str) -> None:
    history = right_history()
    plant(history)
    assert kind in {violation.kind for violation in check_shares(history)}


def test_every_kind_of_violation_is_planted() -> None:
    (planted,) = [m for m in test_a_planted_fault_is_caught.pytestmark if m.name == "parametrize"]
    assert {kind for _, kind in planted.args[1]} == set(SHARE_KINDS)


def test_what_came_too_late_to_count_is_no_violation() -> None:
    """An answer when the lock was over, and one that no commit is known to have written."""
    history = right_history()
    late, unknown = delivery(history, LOOSE, 2, 1), delivery(history, LOOSE, 1, 1)
    late.answers.append(said(ACKNOWLEDGE, 6.0))
    unknown.answers[0].written_s = None
    history.handed.append(handed(B, LOOSE, 1, 2, 9.0, said(ACKNOWLEDGE, 9.5)))
    assert check_shares(history) == []


def test_what_is_said_of_a_released_message_counts_for_nothing() -> None:
    history = right_history()
    delivery(history, LOOSE, 3, 1).answers.append(said(ACKNOWLEDGE, 2.3))
    assert check_shares(history) == []


def test_a_process_that_stood_still_may_notice_late_what_it_was_given() -> None:
    history = right_history()
    delivery(history, LOOSE, 2, 1).at_s = 6.3
    assert check_shares(history) == []


def test_a_consumer_that_leaves_has_nothing_any_more() -> None:
    history = right_history()
    delivery(history, LOOSE, 2, 1).left_s = 2.0
    delivery(history, LOOSE, 2, 2).at_s = 2.5
    assert check_shares(history) == []


def test_messages_of_a_key_may_come_again_in_their_order() -> None:
    history = right_history()
    for id_, asked_s in ((1, 9.0), (2, 10.0)):
        delivery(history, KEYED, id_, 1).answers[0].written_s = None
        history.handed.append(handed(C, KEYED, id_, 2, asked_s, said(ACKNOWLEDGE, asked_s + 0.5)))
    assert check_shares(history) == []


def test_a_message_that_is_delayed_waits_for_its_time_alone() -> None:
    history = right_history()
    history.final[0, 2] = history.final[0, 2]._replace(due_ms=1)
    delivery(history, KEYED, 2, 1).at_s = 1.9
    assert check_shares(history) == []


def test_none_waits_for_a_message_of_its_key_that_is_released_for_later_or_is_dead() -> None:
    history = right_history()
    delivery(history, KEYED, 1, 1).answers = [said(LATER, 2.0)]
    history.handed.append(handed(C, KEYED, 1, 2, 8.0, said(ACKNOWLEDGE, 8.5)))
    assert check_shares(history) == []
    history = right_history()
    delivery(history, KEYED, 1, 1).answers.clear()
    history.letters[KEYED][0, 1] = Letter("delivered 5 times", DELIVERIES_MAX)
    assert check_shares(history) == []


def test_what_consumers_write_down_is_read_as_it_was(tmp_path: Path) -> None:
    Recorder(tmp_path / "s.supplier.jsonl").invoke(Put("s", 0, ["m1"], 0, 0.0))
    recorder = ShareRecorder(tmp_path / "one.sharer.jsonl")

    def give(consumer: str, id_: int, deliveries: int) -> None:
        recorder.handed(
            consumer,
            LOOSE,
            asked_s=1.0,
            holds_s=2.0,
            wall_ms=3,
            messages=[(0, id_, f"m{id_}", deliveries)],
        )

    give("a", 1, 1)
    give("a", 2, 1)
    give("b", 3, 1)
    recorder.answering("a", RENEW, [(0, 1)])
    recorder.answering("b", RELEASE, [(0, 3)])
    recorder.committed("a", 5.0)
    recorder.answering("a", RELEASE, [(0, 1)])
    give("a", 1, 2)
    recorder.leaving("a")
    final = ShareRecorder(tmp_path / "final.shares.jsonl")
    final.logged((0, 1), Logged("m1", "6b", 7))
    final.letter(LOOSE, (0, 2), Letter(REASON, 1))
    history = load_shares(tmp_path)
    assert [put.tokens for put in history.puts] == [["m1"]]
    assert history.final == {(0, 1): Logged("m1", "6b", 7)}
    assert history.letters == {LOOSE: {(0, 2): Letter(REASON, 1)}, KEYED: {}}
    said_of = [
        (each.consumer, each.place[1], each.deliveries, [answer.kind for answer in each.answers])
        for each in history.handed
    ]
    assert said_of == [
        ("a", 1, 1, [RENEW, RELEASE]),
        ("a", 2, 1, []),
        ("b", 3, 1, [RELEASE]),
        ("a", 1, 2, []),
    ]
    first, second, other, again = history.handed
    assert first.answers[0].written_s is not None
    assert first.answers[0].written_s[0] == 5.0
    assert first.answers[1].written_s is other.answers[0].written_s is None
    assert (second.left_s, again.left_s) != (None, None)
    assert other.left_s is None
    assert (first.process, first.asked_s, first.holds_s, first.wall_ms) == ("one", 1.0, 2.0, 3)
