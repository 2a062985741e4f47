"""What a member does next, one thing at a time. Every order of things is tried in `tests/model`."""

from __future__ import annotations

from hqueue.groups.membership import Membership, Steps
from hqueue.metadata import PartitionKey

KEYS = tuple(PartitionKey("q", number) for number in range(4))


def _having(*keys: PartitionKey, eager: bool = False) -> Membership:
    """A member that has these."""
    membership = Membership(eager=eager)
    membership.want(keys, regrouped=True)
    for key in membership.steps().claim:
        membership.claimed(key)
    return membership


def test_it_claims_what_it_is_to_have_once() -> None:
    membership = Membership()
    assert membership.steps() == Steps()
    membership.want(KEYS[:2])
    claim = membership.steps().claim
    assert claim == set(KEYS[:2])
    assert membership.steps() == Steps()
    assert not membership.owned
    for key in claim:
        membership.claimed(key)
    assert membership.owned == claim
    assert membership.steps() == Steps()


def test_what_was_refused_is_named_again() -> None:
    membership = Membership()
    membership.want(KEYS)
    for key in membership.steps().claim:
        membership.refused(key)
    assert membership.steps().claim == set(KEYS)


def test_it_gives_up_only_what_it_is_not_to_have() -> None:
    membership = _having(*KEYS)
    membership.want(KEYS[:2], regrouped=True)
    steps = membership.steps()
    assert steps == Steps(revoke=frozenset(KEYS[2:]))
    for key in steps.revoke:
        membership.released(key)
    assert membership.steps() == Steps()
    assert membership.owned == set(KEYS[:2])


def test_what_it_is_to_have_again_is_given_up_first_if_that_has_begun() -> None:
    membership = _having(*KEYS)
    membership.want(())
    assert membership.steps().revoke == set(KEYS)
    membership.want(KEYS)
    assert membership.steps() == Steps()
    membership.released(KEYS[0])
    assert membership.steps().claim == {KEYS[0]}


def test_an_eager_one_gives_up_everything_before_it_claims() -> None:
    membership = _having(*KEYS, eager=True)
    membership.want(KEYS[:2], regrouped=True)
    assert membership.steps() == Steps(revoke=frozenset(KEYS))
    for key in KEYS[1:]:
        membership.released(key)
    assert membership.steps() == Steps()
    membership.released(KEYS[0])
    assert membership.steps() == Steps(claim=frozenset(KEYS[:2]))


def test_with_its_session_everything_is_lost_and_begins_again() -> None:
    membership = _having(*KEYS)
    assert membership.lost() == set(KEYS)
    assert not membership.owned
    assert membership.steps() == Steps(claim=frozenset(KEYS))


def test_what_it_had_or_was_claiming_when_its_session_was_lost_it_may_still_have() -> None:
    membership = _having(*KEYS[:2])
    membership.want(KEYS[1:3])
    assert membership.steps() == Steps(claim=frozenset(KEYS[2:3]), revoke=frozenset(KEYS[:1]))
    assert membership.lost() == set(KEYS[:2])
    assert membership.held == set(KEYS[:3])
    membership.want(KEYS[1:2])
    assert membership.steps() == Steps(
        claim=frozenset(KEYS[1:2]), release=frozenset([KEYS[0], KEYS[2]])
    )


def test_one_that_leaves_gives_up_everything_and_claims_nothing() -> None:
    membership = _having(*KEYS)
    membership.leave()
    assert membership.steps() == Steps(revoke=frozenset(KEYS))
    for key in KEYS:
        membership.released(key)
    assert membership.steps() == Steps()
    assert not membership.held


def test_what_it_may_have_without_an_answer_is_claimed_again_or_released() -> None:
    membership = Membership()
    membership.want(KEYS[:2])
    for key in membership.steps().claim:
        membership.refused(key)
    membership.doubt(KEYS[:2])
    assert membership.held == set(KEYS[:2])
    membership.want(KEYS[:1])
    assert membership.steps() == Steps(claim=frozenset(KEYS[:1]), release=frozenset(KEYS[1:2]))
    membership.doubt(KEYS[1:2])
    assert membership.steps() == Steps(release=frozenset(KEYS[1:2]))
