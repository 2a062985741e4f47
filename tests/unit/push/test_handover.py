"""The order in which a member takes partitions over, and hands them over."""

from __future__ import annotations

from hqueue.push.handover import Handover


def present_in(*partitions: int) -> Handover:
    handover = Handover()
    handover.claimed(partitions)
    assert handover.to_appear() == set(partitions)
    handover.appeared(partitions)
    return handover


def test_it_becomes_present_in_what_it_has_claimed() -> None:
    handover = Handover()
    assert handover.done
    handover.claimed([1, 2])
    assert not handover.done
    assert not handover.present
    assert handover.to_appear() == {1, 2}
    handover.appeared([1])
    assert handover.present == {1}
    assert handover.to_appear() == {2}
    assert not handover.to_withdraw()


def test_it_withdraws_then_waits_for_calls_and_then_releases() -> None:
    handover = present_in(1, 2)
    handover.revoked([1])
    assert handover.present == {2}
    assert not handover.to_release(busy=[])
    assert handover.to_withdraw() == {1}
    handover.withdrawn([1])
    assert not handover.to_withdraw()
    assert not handover.to_release(busy=[1])
    assert handover.draining == {1}
    assert handover.to_release(busy=[2]) == {1}
    handover.released([1])
    assert not handover.to_appear()
    handover.revoked([2])
    handover.withdrawn([2])
    handover.released([2])
    assert handover.done


def test_it_withdraws_also_from_where_it_did_not_hear_that_it_appeared() -> None:
    handover = Handover()
    handover.claimed([1])
    handover.revoked([1])
    assert not handover.to_appear()
    assert handover.to_withdraw() == {1}


def test_what_was_lost_is_withdrawn_from_but_not_released() -> None:
    handover = present_in(1, 2)
    handover.lost([1])
    assert handover.present == {2}
    assert handover.to_withdraw() == {1}
    assert not handover.done
    handover.withdrawn([1])
    assert not handover.to_withdraw()
    assert not handover.to_release(busy=[])


def test_what_was_lost_and_claimed_again_is_appeared_in_again() -> None:
    handover = present_in(1)
    handover.lost([1])
    handover.claimed([1])
    assert not handover.to_withdraw()
    assert handover.to_appear() == {1}


def test_what_was_lost_while_it_was_given_up_is_not_released() -> None:
    handover = present_in(1)
    handover.revoked([1])
    handover.withdrawn([1])
    handover.lost([1])
    assert not handover.to_release(busy=[])
    handover.withdrawn([1])
    assert handover.done
