"""The checker catches a planted fault of each kind, and lets a right history pass."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .checker import KINDS, check
from .history import History, Put, Read


def right_history() -> History:
    """Two producers in two partitions, with each outcome; three readers."""
    puts = [
        Put("a", 0, ["a0"], 0, 0.0, 1.0, "ok", [10]),
        Put("a", 1, ["a1", "a1'"], 0, 2.0, 3.0, "ok", [20, 21]),
        Put("a", 2, ["a2"], 0, 4.0, 5.0, "fail"),
        Put("b", 0, ["b0"], 1, 0.5, 1.5, "ok", [10]),
        Put("b", 1, ["b1"], 1, 2.5, 3.5, "unknown"),
        Put("b", 2, ["b2"], 1, 4.5, None, "unknown"),
        Put("b", 3, ["b3"], None, 5.0, 6.0, "ok", [30]),
    ]
    final = {
        0: [Read("z", 0, i, t, 9.0) for i, t in ((10, "a0"), (20, "a1"), (21, "a1'"), (30, "b3"))],
        1: [Read("z", 1, i, t, 9.0) for i, t in ((10, "b0"), (20, "b2"))],
    }
    reads = {
        "whole": [*final[0], *final[1]],
        "middle": final[0][1:],
        "cut short": final[0][:2],
    }
    starts = {"whole": {0: 0, 1: 0}, "middle": {0: 15}, "cut short": {0: 0}}
    return History(puts, reads, final, starts, {"whole", "middle"}, {0: 4, 1: 2})


def test_a_right_history_passes() -> None:
    assert check(right_history()) == []


def lose(history: History) -> None:
    del history.final[0][0]


def double(history: History) -> None:
    history.final[1].append(Read("z", 1, 40, "a0", 9.0))


def resurrect(history: History) -> None:
    history.final[0].append(Read("z", 0, 40, "a2", 9.0))


def invent(history: History) -> None:
    history.final[1].append(Read("z", 1, 40, "nobody's", 9.0))


def move(history: History) -> None:
    history.final[0][0] = Read("z", 0, 11, "a0", 9.0)


def move_to_another_partition(history: History) -> None:
    history.final[1].insert(0, history.final[0].pop(0))


def reorder_ids(history: History) -> None:
    history.final[0][2], history.final[0][3] = history.final[0][3], history.final[0][2]


def reorder_puts(history: History) -> None:
    history.puts[0].ids, history.puts[1].ids = [22], [10, 11]
    history.final[0][:3] = [
        Read("z", 0, i, t, 9.0) for i, t in ((10, "a1"), (11, "a1'"), (22, "a0"))
    ]


def reorder_within_a_put(history: History) -> None:
    history.puts[1].ids = [21, 20]
    history.final[0][1:3] = [Read("z", 0, i, t, 9.0) for i, t in ((20, "a1'"), (21, "a1"))]


def tear_apart(history: History) -> None:
    history.puts[1].outcome = "unknown"
    del history.final[0][2]


def skip(history: History) -> None:
    del history.reads["whole"][1]


def end_early(history: History) -> None:
    del history.reads["middle"][-1]


def skip_before_the_end(history: History) -> None:
    del history.reads["cut short"][0]


def disagree(history: History) -> None:
    history.reads["whole"][0] = Read("whole", 0, 10, "a1", 8.0)


def go_back(history: History) -> None:
    history.reads["whole"].insert(2, history.reads["whole"][0])


def miscount(history: History) -> None:
    history.counts[0] = 5


@pytest.mark.parametrize(
    ("plant", "kind"),
    [
        (lose, "lost"),
        (double, "doubled"),
        (resurrect, "resurrected"),
        (invent, "invented"),
        (move, "moved"),
        (move_to_another_partition, "moved"),
        (reorder_ids, "unordered"),
        (reorder_puts, "unordered"),
        (reorder_within_a_put, "unordered"),
        (tear_apart, "unordered"),
        (skip, "skipped"),
        (end_early, "skipped"),
        (skip_before_the_end, "skipped"),
        (disagree, "disagreeing"),
        (go_back, "unordered"),
        (miscount, "miscounted"),
    ],
)
def test_a_planted_fault_is_caught(plant: Callable[[History], None], kind: str) -> None:
    history = right_history()
    plant(history)
    assert kind in {violation.kind for violation in check(history)}


def test_every_kind_of_violation_is_planted() -> None:
    (planted,) = [m for m in test_a_planted_fault_is_caught.pytestmark if m.name == "parametrize"]
    assert {kind for _, kind in planted.args[1]} == set(KINDS)
