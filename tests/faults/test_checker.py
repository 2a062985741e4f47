"""The checker catches a planted fault of each kind, and lets a right history pass."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hqueue import Message

from .checker import KINDS, check
from .history import History, Pass, Put, Read, View
from .messages import token_of


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
        0: [Read(0, i, t, 9.0) for i, t in ((10, "a0"), (20, "a1"), (21, "a1'"), (30, "b3"))],
        1: [Read(1, i, t, 9.0) for i, t in ((10, "b0"), (20, "b2"))],
    }
    views = [
        View("whole", {0: 0, 1: 0}, [*final[0], *final[1]], [Pass(7.0, 7.2, 6)]),
        View("middle", {0: 15}, final[0][1:], [Pass(3.5, 3.7, 2), Pass(7.0, 7.2, 3)]),
        View("cut short", {0: 0}, final[0][:2]),
    ]
    return History(puts, views, final, {0: 4, 1: 2}, [])


def test_a_right_history_passes() -> None:
    assert check(right_history()) == []


def test_a_scan_beside_a_deposed_server_may_end_early() -> None:
    history = right_history()
    see_nothing(history)
    assert check(history)
    history.deposed = [(2.0, 8.0)]
    assert check(history) == []


def lose(history: History) -> None:
    del history.final[0][0]


def double(history: History) -> None:
    history.final[1].append(Read(1, 40, "a0", 9.0))


def resurrect(history: History) -> None:
    history.final[0].append(Read(0, 40, "a2", 9.0))


def invent(history: History) -> None:
    history.final[1].append(Read(1, 40, "nobody's", 9.0))


def alter(history: History) -> None:
    plain, other = Message("t", b"a0|"), Message("t", b"a0|", headers=[("trace", b"1")])
    history.puts[0].tokens = [token_of(plain)]
    history.final[0][0] = Read(0, 10, token_of(other), 9.0)


def move(history: History) -> None:
    history.final[0][0] = Read(0, 11, "a0", 9.0)


def move_to_another_partition(history: History) -> None:
    history.final[1].insert(0, history.final[0].pop(0))


def reorder_ids(history: History) -> None:
    history.final[0][2], history.final[0][3] = history.final[0][3], history.final[0][2]


def reorder_puts(history: History) -> None:
    history.puts[0].ids, history.puts[1].ids = [22], [10, 11]
    history.final[0][:3] = [Read(0, i, t, 9.0) for i, t in ((10, "a1"), (11, "a1'"), (22, "a0"))]


def reorder_within_a_put(history: History) -> None:
    history.puts[1].ids = [21, 20]
    history.final[0][1:3] = [Read(0, i, t, 9.0) for i, t in ((20, "a1'"), (21, "a1"))]


def tear_apart(history: History) -> None:
    history.puts[1].outcome = "unknown"
    del history.final[0][2]


def swap_puts_of_a_producer(history: History) -> None:
    # Both are under way at once, as the puts of a `Producer` may be.
    history.puts[0].completed_s, history.puts[1].invoked_s = 3.0, 0.0
    reorder_puts(history)


def skip(history: History) -> None:
    del history.views[0].reads[1]


def skip_before_the_end(history: History) -> None:
    del history.views[2].reads[0]


def end_early(history: History) -> None:
    del history.views[1].reads[-1]


def see_nothing(history: History) -> None:
    history.views[1].reads.clear()


def disagree(history: History) -> None:
    history.views[0].reads[0] = Read(0, 10, "a1", 8.0)


def go_back(history: History) -> None:
    history.views[0].reads.insert(2, history.views[0].reads[0])


def miscount(history: History) -> None:
    history.counts[0] = 5


def break_a_link(history: History) -> None:
    history.findings.append("a row does not lie where the batch before ends")


@pytest.mark.parametrize(
    ("plant", "kind"),
    [
        (lose, "lost"),
        (double, "doubled"),
        (resurrect, "resurrected"),
        (invent, "invented"),
        (alter, "altered"),
        (move, "moved"),
        (move_to_another_partition, "moved"),
        (reorder_ids, "unordered"),
        (reorder_puts, "unordered"),
        (reorder_within_a_put, "unordered"),
        (swap_puts_of_a_producer, "unordered"),
        (tear_apart, "unordered"),
        (skip, "skipped"),
        (skip_before_the_end, "skipped"),
        (end_early, "stale"),
        (see_nothing, "stale"),
        (disagree, "disagreeing"),
        (go_back, "unordered"),
        (miscount, "miscounted"),
        (break_a_link, "broken"),
    ],
)
def test_a_planted_fault_is_caught(plant: Callable[[History], None], kind: str) -> None:
    history = right_history()
    plant(history)
    assert kind in {violation.kind for violation in check(history)}


def test_every_kind_of_violation_is_planted() -> None:
    (planted,) = [m for m in test_a_planted_fault_is_caught.pytestmark if m.name == "parametrize"]
    assert {kind for _, kind in planted.args[1]} == set(KINDS)
