"""What one claims and gives up, one thing at a time. `tests/model/groups` tries every order."""

from __future__ import annotations

from hqueue.metadata import PartitionKey
from hqueue.metadata.claiming import Claiming, Steps

KEYS = tuple(PartitionKey("q", number) for number in range(4))


def _having(*keys: PartitionKey, eager: bool = False) -> Claiming:
    """A member that has these."""
    claiming = Claiming(eager=eager)
    claiming.request(keys, regrouped=True)
    claiming.answered(claiming.steps(), keys)
    return claiming


def test_it_claims_what_it_is_to_have_once() -> None:
    claiming = Claiming()
    assert claiming.steps() == Steps()
    claiming.request(KEYS[:2])
    steps = claiming.steps()
    assert steps.claim == set(KEYS[:2])
    assert claiming.steps() == Steps()
    assert not claiming.owned
    assert claiming.answered(steps, steps.claim) == claiming.owned == steps.claim
    assert claiming.steps() == Steps()


def test_what_was_refused_is_named_again() -> None:
    claiming = Claiming()
    claiming.request(KEYS)
    assert not claiming.answered(claiming.steps(), ())
    assert claiming.steps().claim == set(KEYS)


def test_it_gives_up_only_what_it_is_not_to_have() -> None:
    claiming = _having(*KEYS)
    claiming.request(KEYS[:2], regrouped=True)
    steps = claiming.steps()
    assert steps == Steps(revoke=frozenset(KEYS[2:]))
    for key in steps.revoke:
        claiming.released(key)
    assert claiming.steps() == Steps()
    assert claiming.owned == set(KEYS[:2])


def test_what_it_is_to_have_again_is_given_up_first_if_that_has_begun() -> None:
    claiming = _having(*KEYS)
    claiming.request(())
    assert claiming.steps().revoke == set(KEYS)
    claiming.request(KEYS)
    assert claiming.steps() == Steps()
    claiming.released(KEYS[0])
    assert claiming.steps().claim == {KEYS[0]}


def test_an_eager_one_gives_up_everything_before_it_claims() -> None:
    claiming = _having(*KEYS, eager=True)
    claiming.request(KEYS[:2], regrouped=True)
    assert claiming.steps() == Steps(revoke=frozenset(KEYS))
    for key in KEYS[1:]:
        claiming.released(key)
    assert claiming.steps() == Steps()
    claiming.released(KEYS[0])
    assert claiming.steps() == Steps(claim=frozenset(KEYS[:2]))


def test_with_its_session_everything_is_lost_and_begins_again() -> None:
    claiming = _having(*KEYS)
    assert claiming.lost() == set(KEYS)
    assert not claiming.owned
    assert claiming.steps() == Steps(claim=frozenset(KEYS))


def test_what_it_had_or_was_claiming_when_its_session_was_lost_it_may_still_have() -> None:
    claiming = _having(*KEYS[:2])
    claiming.request(KEYS[1:3])
    assert claiming.steps() == Steps(claim=frozenset(KEYS[2:3]), revoke=frozenset(KEYS[:1]))
    assert claiming.lost() == set(KEYS[:2])
    assert claiming.held == set(KEYS[:3])
    claiming.request(KEYS[1:2])
    assert claiming.steps() == Steps(
        claim=frozenset(KEYS[1:2]), release=frozenset([KEYS[0], KEYS[2]])
    )


def test_one_that_leaves_gives_up_everything_and_claims_nothing() -> None:
    claiming = _having(*KEYS)
    claiming.leave()
    assert claiming.steps() == Steps(revoke=frozenset(KEYS))
    for key in KEYS:
        claiming.released(key)
    assert claiming.steps() == Steps()
    assert not claiming.held


def test_what_it_may_have_without_an_answer_is_claimed_again_or_released() -> None:
    claiming = Claiming()
    claiming.request(KEYS[:2])
    claiming.answered(claiming.steps(), (), KEYS[:2])
    assert claiming.held == set(KEYS[:2])
    claiming.request(KEYS[:1])
    assert claiming.steps() == Steps(claim=frozenset(KEYS[:1]), release=frozenset(KEYS[1:2]))
    claiming.doubt(KEYS[1:2])
    assert claiming.steps() == Steps(release=frozenset(KEYS[1:2]))


def test_an_answer_that_comes_when_its_session_is_over_counts_for_none_after_it() -> None:
    claiming = Claiming()
    claiming.request(KEYS[:2])
    late = claiming.steps()
    claiming.lost()
    again = claiming.steps()
    assert again.claim == late.claim
    assert not claiming.answered(late, KEYS[:2])
    assert not claiming.owned
    claiming.request(KEYS[:1])
    assert claiming.answered(again, KEYS[:2]) == set(KEYS[:2])
    assert claiming.steps() == Steps(revoke=frozenset(KEYS[1:2]))


def test_a_release_without_an_answer_of_a_session_that_is_over_stays_in_doubt() -> None:
    claiming = Claiming()
    claiming.doubt(KEYS[:1])
    release = claiming.steps()
    assert release == Steps(release=frozenset(KEYS[:1]))
    claiming.lost()
    claiming.answered(release, (), release.release)
    assert claiming.steps() == release


def test_an_answer_leaves_alone_what_was_taken_away_meanwhile() -> None:
    claiming = _having(*KEYS[:1])
    claiming.request(KEYS[:2])
    steps = claiming.steps()
    assert claiming.taken_away(KEYS) == set(KEYS[:1])
    assert claiming.answered(steps, KEYS[:2]) == claiming.owned == set(KEYS[1:2])
