"""What a member does next, one thing at a time. Every order of things is tried in `tests/model`."""

from __future__ import annotations

from hqueue.groups.assignors import GroupView, assign_range, assign_sticky
from hqueue.groups.membership import Membership, Steps
from hqueue.metadata import PartitionKey

KEYS = tuple(PartitionKey("q", number) for number in range(4))


def _view(*members: str, **owned: int) -> GroupView:
    """A view with these members, each of which owns the first so many that are left."""
    left = iter(KEYS)
    owners = {next(left): member for member, count in owned.items() for _ in range(count)}
    return GroupView({member: {"q": 1} for member in members}, dict.fromkeys(KEYS), owners)


def _alone() -> Membership:
    """A member that has everything."""
    membership = Membership("a", assign_sticky)
    membership.see(_view("a"))
    for key in membership.steps().claim:
        membership.claimed(key)
    return membership


def test_it_claims_its_share_once() -> None:
    membership = Membership("a", assign_sticky)
    assert membership.steps() == Steps()
    membership.see(_view("a", "b"))
    claim = membership.steps().claim
    assert len(claim) == 2
    assert membership.steps() == Steps()
    assert not membership.owned
    for key in claim:
        membership.claimed(key)
    assert membership.owned == claim
    assert membership.steps() == Steps()


def test_it_waits_for_what_another_has() -> None:
    membership = Membership("a", assign_sticky)
    membership.see(_view("a", "b", b=4))
    assert membership.steps() == Steps()
    assert not membership.held
    membership.see(_view("a", "b", b=2))
    assert membership.steps().claim == set(KEYS[2:])


def test_what_was_refused_is_named_again() -> None:
    membership = Membership("a", assign_sticky)
    membership.see(_view("a"))
    for key in membership.steps().claim:
        membership.refused(key)
    assert membership.steps().claim == set(KEYS)


def test_of_a_claim_that_it_does_not_see_yet_it_gives_nothing_up() -> None:
    membership = _alone()
    membership.see(_view("a"))
    assert membership.steps() == Steps()


def test_it_gives_up_only_what_evenness_needs() -> None:
    membership = _alone()
    membership.see(_view("a", "b", a=4))
    steps = membership.steps()
    assert len(steps.revoke) == 2
    assert not steps.claim
    for key in steps.revoke:
        membership.released(key)
    assert membership.steps() == Steps()
    assert membership.owned == set(KEYS) - steps.revoke


def test_an_eager_one_gives_up_everything_before_it_claims() -> None:
    membership = Membership("a", assign_range, eager=True)
    membership.see(_view("a"))
    for key in membership.steps().claim:
        membership.claimed(key)
    membership.see(_view("a", "b", a=4))
    assert membership.steps() == Steps(revoke=frozenset(KEYS))
    for key in KEYS[1:]:
        membership.released(key)
    assert membership.steps() == Steps()
    membership.released(KEYS[0])
    assert membership.steps() == Steps(claim=frozenset(KEYS[:2]))


def test_with_its_session_everything_is_lost_and_begins_again() -> None:
    membership = _alone()
    assert membership.lost() == set(KEYS)
    assert not membership.held
    assert membership.steps().claim == set(KEYS)


def test_one_that_leaves_gives_up_everything_and_claims_nothing() -> None:
    membership = _alone()
    membership.leave()
    assert membership.steps() == Steps(revoke=frozenset(KEYS))
    for key in KEYS:
        membership.released(key)
    assert membership.steps() == Steps()
    assert not membership.held
