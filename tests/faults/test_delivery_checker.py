"""The checker of push catches a planted fault of each kind, and lets a right history pass."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .checker import check
from .delivery_checker import DELIVERY_KINDS, check_deliveries
from .history import Checkpoint, Delivery, History, Put, Read


def right_history() -> History:
    """Two partitions and two subscribers; one of them died, and got some messages again."""
    puts = [
        Put("a", 0, ["a0"], 0, 0.0, 1.0, "ok", [10]),
        Put("a", 1, ["a1", "a1'"], 0, 2.0, 3.0, "ok", [20, 21]),
        Put("b", 0, ["b0"], 1, 0.5, 1.5, "ok", [10]),
        Put("b", 1, ["b1"], 1, 2.5, None, "unknown"),
    ]
    final = {
        0: [Read(0, 10, "a0", 9.0), Read(0, 20, "a1", 9.0), Read(0, 21, "a1'", 9.0)],
        1: [Read(1, 10, "b0", 9.0), Read(1, 20, "b1", 9.0)],
    }
    deliveries = [
        Delivery("one", 0, [(10, "a0")], True, 2.0),
        Delivery("one", 0, [(20, "a1"), (21, "a1'")], True, 4.0),
        Delivery("one", 0, [(20, "a1")], True, 5.0),
        Delivery("one", 0, [(21, "a1'")], True, 5.1),
        Delivery("one", 1, [(10, "b0")], True, 2.0),
        Delivery("other", 0, [(10, "a0"), (20, "a1")], False, 3.0),
        Delivery("other", 0, [(10, "a0"), (20, "a1"), (21, "a1'")], True, 3.5),
        Delivery("other", 1, [(10, "b0"), (20, "b1")], True, 3.5),
    ]
    checkpoints = [
        *(Checkpoint(name, partition, 0, 0.1) for name in ("one", "other") for partition in (0, 1)),
        Checkpoint("one", 0, 11, 3.0),
        Checkpoint("one", 0, 22, 6.0),
        Checkpoint("other", 0, 22, 4.0),
        Checkpoint("one", 1, 11, 3.0),
        Checkpoint("other", 1, 21, 4.0),
    ]
    return History(
        puts, [], final, {0: 3, 1: 2}, [], deliveries=deliveries, checkpoints=checkpoints
    )


def test_a_right_history_passes() -> None:
    assert check(right_history()) == check_deliveries(right_history()) == []


def leave_one_out(history: History) -> None:
    del history.deliveries[4]
    del history.checkpoints[-2]


def never_be_done(history: History) -> None:
    history.deliveries[6] = history.deliveries[6]._replace(done=False)
    del history.checkpoints[-3]


def leave_a_subscriber_out_in_a_partition(history: History) -> None:
    history.deliveries = [
        d for d in history.deliveries if (d.subscriber, d.partition) != ("one", 1)
    ]
    history.checkpoints = [
        c for c in history.checkpoints if (c.subscriber, c.partition) != ("one", 1)
    ]


def deliver_what_is_nowhere(history: History) -> None:
    history.deliveries.append(Delivery("one", 1, [(30, "b2")], True, 7.0))


def deliver_another_in_its_place(history: History) -> None:
    history.deliveries[4].messages[0] = (10, "a0")


def swap_two_deliveries(history: History) -> None:
    first, second = history.deliveries[:2]
    history.deliveries[:2] = [first._replace(at_s=2.5), second._replace(at_s=2.0)]


def swap_two_messages(history: History) -> None:
    history.deliveries[1].messages.reverse()


def write_a_checkpoint_too_early(history: History) -> None:
    history.checkpoints[4] = Checkpoint("one", 0, 21, 3.0)


def write_a_checkpoint_at_a_retry(history: History) -> None:
    history.checkpoints.insert(6, Checkpoint("other", 0, 11, 3.2))


def forget_a_checkpoint(history: History) -> None:
    history.deliveries.append(Delivery("one", 0, [(20, "a1")], True, 7.0))


def go_back(history: History) -> None:
    history.checkpoints.append(Checkpoint("other", 0, 20, 8.0))


@pytest.mark.parametrize(
    ("plant", "kind"),
    [
        (leave_one_out, "undelivered"),
        (never_be_done, "undelivered"),
        (leave_a_subscriber_out_in_a_partition, "undelivered"),
        (deliver_what_is_nowhere, "misdelivered"),
        (deliver_another_in_its_place, "misdelivered"),
        (swap_two_deliveries, "disordered"),
        (swap_two_messages, "disordered"),
        (write_a_checkpoint_too_early, "premature"),
        (write_a_checkpoint_at_a_retry, "premature"),
        (forget_a_checkpoint, "repeated"),
        (go_back, "retreated"),
    ],
)
def test_a_planted_fault_is_caught(plant: Callable[[History], None], kind: str) -> None:
    history = right_history()
    plant(history)
    assert kind in {violation.kind for violation in check_deliveries(history)}


def test_every_kind_of_violation_is_planted() -> None:
    (planted,) = [m for m in test_a_planted_fault_is_caught.pytestmark if m.name == "parametrize"]
    assert {kind for _, kind in planted.args[1]} == set(DELIVERY_KINDS)
