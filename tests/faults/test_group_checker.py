"""The checker of groups catches a planted fault of each kind, and lets a right history pass."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .group_checker import GROUP_KINDS, check_group, takeovers
from .group_history import CLAIM, COMMIT, GroupHistory, Handed, Write
from .history import History, Put, Read

A, B, C = ("pa", "a"), ("pb", "b"), ("pc", "c")
"""Consumers: process and ID."""


def claim(of: tuple[str, str], at: int, version: int, at_s: float) -> Write:
    return Write(*of, CLAIM, 0, at, at_s, None, version, "ok", at_s + 0.1)


def commit(
    of: tuple[str, str], at: int, claimed: int, version: int | None, at_s: float
) -> Write:  # Without a version it is not known what became of it.
    outcome = "unknown" if version is None else "ok"
    return Write(*of, COMMIT, 0, at, at_s, claimed, version, outcome, at_s + 0.1)


def handed(of: tuple[str, str], claimed: int, ids: range, at_s: float) -> Handed:
    return Handed(*of, 0, claimed, [(id_, f"m{id_}") for id_ in ids], at_s, at_s + 0.1)


def right_history() -> History:
    """One partition. A was killed when it had committed two of three messages; B had them next,
    stood still with one that it did not commit, and was refused; C has the rest.
    """
    ids = range(1, 8)
    return History(
        [Put("p", id_, [f"m{id_}"], 0, 0.0, 0.5, "ok", [id_]) for id_ in ids],
        [],
        {0: [Read(0, id_, f"m{id_}", 90.0) for id_ in ids]},
        {0: 7},
        [],
        group=GroupHistory(
            [
                claim(A, 0, 1, 1.0),
                commit(A, 2, 1, 2, 3.0),
                commit(A, 3, 1, 3, 4.0),
                claim(B, 3, 4, 8.0),
                commit(B, 5, 4, 5, 10.0),
                commit(B, 6, 4, None, 12.0),  # It counted, but nobody learned it: version 6.
                claim(C, 6, 7, 20.0),
                Write(*B, COMMIT, 0, 7, 30.0, 4, None, "fail", 30.1),
                commit(C, 8, 7, 8, 40.0),
            ],
            [
                handed(A, 1, range(1, 2), 2.0),
                handed(A, 1, range(2, 4), 2.5),
                handed(B, 4, range(3, 5), 9.0),
                handed(B, 4, range(5, 7), 11.0),
                handed(C, 7, range(6, 8), 21.0),
            ],
        ),
    )


def test_a_right_history_passes() -> None:
    assert check_group(right_history()) == []


def test_takeovers_last_from_the_kill_until_another_has_the_partition() -> None:
    history = right_history()
    (took_s,) = takeovers(history, {"pa": 5.0}).values()
    assert took_s == pytest.approx(8.1 - 5.0)
    assert takeovers(history, {"pb": 5.0}) == {}, "it did not have the partition yet"
    del history.group.writes[3:]
    assert list(takeovers(history, {"pa": 5.0}).values()) == [float("inf")]


def leave_the_last_message_out(history: History) -> None:
    history.group.handed[-1].messages.pop()


def hand_out_what_is_nowhere(history: History) -> None:
    history.group.handed[-1].messages.append((9, "m9"))


def hand_out_another_in_its_place(history: History) -> None:
    history.group.handed[0].messages[0] = (1, "m2")


def leave_one_out_between(history: History) -> None:
    del history.group.handed[1].messages[0]


def swap_two(history: History) -> None:
    history.group.handed[1].messages.reverse()


def begin_with_a_message_too_late(history: History) -> None:
    del history.group.handed[2].messages[0]


def begin_with_a_message_too_early(history: History) -> None:
    history.group.handed[2].messages.insert(0, (2, "m2"))


def hand_out_without_a_take_over(history: History) -> None:
    history.group.handed.append(handed(A, 9, range(1, 2), 50.0))


def commit_too_far(history: History) -> None:
    history.group.writes[1].next = 3
    history.group.handed[1] = history.group.handed[1]._replace(at_s=3.5)


def commit_what_was_never_handed_out(history: History) -> None:
    history.group.writes[5].next = 8


def forget_a_commit(history: History) -> None:
    history.group.writes[3].next = 2
    history.group.handed[2].messages.insert(0, (2, "m2"))


def begin_where_nobody_was(history: History) -> None:
    history.group.writes[3].next = 4


def begin_beyond_what_is_known_to_be_committed(history: History) -> None:
    del history.group.writes[5]


def commit_without_compare(history: History) -> None:
    """The zombie's commit counts; and the new owner's, too, which is one later."""
    history.group.writes[7] = commit(B, 7, 4, 8, 30.0)
    history.group.writes[8].version = 9


def count_twice_in_one_version(history: History) -> None:
    history.group.writes[7] = commit(B, 7, 4, 8, 30.0)


def hand_out_without_being_certain(history: History) -> None:
    history.group.handed.append(handed(B, 4, range(7, 8), 25.0))


@pytest.mark.parametrize(
    ("plant", "kind"),
    [
        (leave_the_last_message_out, "unconsumed"),
        (hand_out_what_is_nowhere, "misconsumed"),
        (hand_out_another_in_its_place, "misconsumed"),
        (leave_one_out_between, "jumped"),
        (swap_two, "jumped"),
        (begin_with_a_message_too_late, "jumped"),
        (begin_with_a_message_too_early, "jumped"),
        (hand_out_without_a_take_over, "jumped"),
        (commit_too_far, "overcommitted"),
        (commit_what_was_never_handed_out, "overcommitted"),
        (forget_a_commit, "recommenced"),
        (begin_where_nobody_was, "unfounded"),
        (begin_beyond_what_is_known_to_be_committed, "unfounded"),
        (commit_without_compare, "unfenced"),
        (count_twice_in_one_version, "unfenced"),
        (hand_out_without_being_certain, "trespassed"),
    ],
)
def test_a_planted_fault_is_caught(plant: Callable[[History], None], kind: str) -> None:
    history = right_history()
    plant(history)
    assert kind in {violation.kind for violation in check_group(history)}


def test_what_a_zombie_asked_for_before_another_took_over_may_come_late() -> None:
    history = right_history()
    late = handed(B, 4, range(7, 8), 19.0)._replace(at_s=50.0)
    history.group.handed.append(late)
    assert check_group(history) == []


def test_every_kind_of_violation_is_planted() -> None:
    (planted,) = [m for m in test_a_planted_fault_is_caught.pytestmark if m.name == "parametrize"]
    assert {kind for _, kind in planted.args[1]} == set(GROUP_KINDS)
