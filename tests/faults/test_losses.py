"""What a cut took is counted, and what is gone must be the newest."""

from __future__ import annotations

from .losses import Acknowledged, Loss, losses_of


def test_what_each_cut_took_is_counted_from_the_first_that_is_gone() -> None:
    acknowledged = [
        *(Acknowledged(0, number, float(number)) for number in range(10)),
        *(Acknowledged(1, number, float(number)) for number in range(10)),
    ]
    left = {0: {0, 1, 2, 3, 5, 6, 7, 8, 9}, 1: {0, 1, 2, 5, 6, 7, 8, 9}}
    assert losses_of(acknowledged, left, [4.5, 7.5]) == [
        Loss(messages=3, lost_ms=1_500.0, whole=True),
        Loss(messages=0, lost_ms=0.0, whole=True),
        Loss(messages=0, lost_ms=0.0, whole=True),
    ]


def test_a_message_that_is_gone_before_one_that_is_left_is_no_suffix() -> None:
    acknowledged = [Acknowledged(0, number, float(number)) for number in range(5)]
    (lost, after) = losses_of(acknowledged, {0: {0, 2, 3, 4}}, [3.5])
    assert not lost.whole
    assert after.whole


def test_what_is_gone_without_a_cut_is_found() -> None:
    acknowledged = [Acknowledged(0, number, float(number)) for number in range(5)]
    (_, after) = losses_of(acknowledged, {0: {0, 1, 2, 3}}, [2.5])
    assert after.messages == 1
