"""Groups keep their promises, and need every rule for that."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

from hqueue.groups.assignors import Assignor, assign_range, assign_sticky
from hqueue.groups.offsets import GroupOffsets, Offset
from hqueue.groups.planning import Planning
from hqueue.metadata import PartitionKey
from hqueue.metadata.claiming import Claiming, Steps

from .explorer import CounterexampleError, explore
from .rules import Bounds, Rules
from .world import Action, World

BOUNDS = {
    "a session ends": Bounds(partitions=1),
    "a session ends, and a plan is late": Bounds(partitions=1, commits=0, late_plans=1),
    "a member crashes": Bounds(partitions=1, ends=0, crashes=1),
    "a member comes": Bounds(members=("a",), late=("b",), ends=0, commits=0),
    "a member comes, and one is cut off": Bounds(
        partitions=1, members=("b",), late=("a",), ends=0, cuts=1, commits=0
    ),
    "a member leaves": Bounds(ends=0, leaves=1, commits=0),
    "a session ends while its member leaves": Bounds(partitions=1, leaves=1, commits=0),
    "a session ends, and a commit gets no answer": Bounds(
        partitions=1, members=("a",), commits=2, missed_commits=1
    ),
}
LARGE = {
    "an answer gets lost and a member comes": Bounds(
        members=("a",), late=("b",), ends=0, lost_answers=1, commits=0
    ),
    "a member comes and another crashes": Bounds(
        partitions=1, late=("c",), ends=0, crashes=1, commits=1
    ),
    "a session ends, and another consumes": Bounds(partitions=1, commits=2, missed_commits=1),
    "a session ends, another crashes, and a commit gets no answer": Bounds(
        partitions=1, commits=1, crashes=1, missed_commits=1
    ),
    "a member leaves, and a commit gets no answer": Bounds(
        partitions=1, leaves=1, commits=1, missed_commits=1
    ),
    "commits of two partitions get no answer": Bounds(members=("a",), commits=3, missed_commits=2),
}
STATES_MAX = 1_000_000
ASSIGNORS = pytest.mark.parametrize(
    ("assignor", "eager"), [(assign_sticky, False), (assign_range, True)], ids=("sticky", "range")
)


@ASSIGNORS
@pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS)
def test_groups_keep_their_promises(bounds: Bounds, assignor: Assignor, eager: bool) -> None:
    explore(World(bounds, assignor, eager=eager), states_max=STATES_MAX)


@pytest.mark.larger
@ASSIGNORS
@pytest.mark.parametrize("bounds", LARGE.values(), ids=LARGE)
def test_groups_keep_their_promises_when_more_happens(
    bounds: Bounds, assignor: Assignor, eager: bool
) -> None:
    explore(World(bounds, assignor, eager=eager), states_max=STATES_MAX)


class _GivesNothingUp(Claiming):
    def steps(self) -> Steps:
        before = self._phases.copy()
        steps = super().steps()
        self._phases |= {key: before[key] for key in steps.revoke}
        return Steps(steps.claim)


class _TakesItsSessionForOver(Claiming):
    def lost(self) -> frozenset[PartitionKey]:
        owned = super().lost()
        self._doubtful = frozenset()
        return owned


class _TrustsAnyPlan(Planning):
    def see_plan(self, plan: Mapping[PartitionKey, str]) -> None:
        stands = self._stands or self._plan is not None
        super().see_plan(plan)
        self._stands = stands


class _TakesTheNextClaimForItsCommit(GroupOffsets):
    def _look_up(self, consumer: str, moves: Any, *args: Any) -> Any:
        last = {
            key: (dataclasses.replace(offset, claim=self._claims[key]), to)
            for key, (offset, to) in moves.items()
        }
        return super()._look_up(consumer, last, *args)


class _SendsAgainForTheNextClaim(GroupOffsets):
    def _changed_late(self, consumer: str, refused: Mapping[PartitionKey, Offset]) -> Any:
        last = {
            key: dataclasses.replace(offset, claim=self._claims[key])
            for key, offset in refused.items()
        }
        return super()._changed_late(consumer, last)


class _SendsNothingAgain(GroupOffsets):
    def _changed_late(self, consumer: str, refused: Mapping[PartitionKey, Offset]) -> Any:
        return {}
        yield


RULES = {
    "claims bump the version": Rules(claims_bump_the_version=False),
    "bumps compare the version": Rules(bumps_compare_the_version=False),
    "asks for its session": Rules(asks_for_its_session_before_it_bumps=False),
    "commits compare the version": Rules(commits_compare_the_version=False),
    "commits for what it accepted only": Rules(commits_for_what_it_accepted_only=False),
    "ends its commits before it accepts": Rules(ends_its_commits_before_it_accepts=False),
    "hands out with a lease only": Rules(hands_out_with_a_lease_only=False),
    "releases only its own": Rules(releases_only_its_own=False),
    "releases what is revoked only": Rules(releases_what_is_revoked_only=False),
    "forgets with its session": Rules(forgets_with_its_session=False),
    "claims again what was refused": Rules(claims_again_what_was_refused=False),
    "doubts what got no answer": Rules(doubts_what_got_no_answer=False),
    "doubts what it had with its session": Rules(member=_TakesItsSessionForOver),
    "plans again what another wrote": Rules(planning=_TrustsAnyPlan),
    "gives up what is another's": Rules(member=_GivesNothingUp),
    "looks up what its own claim wrote": Rules(offsets=_TakesTheNextClaimForItsCommit),
    "sends again for its own claim only": Rules(offsets=_SendsAgainForTheNextClaim),
    "sends again after a late commit of its own": Rules(offsets=_SendsNothingAgain),
}


NEEDED_WHEN = {
    "releases only its own": BOUNDS["a session ends while its member leaves"],
    "releases what is revoked only": Bounds(members=("a",), late=("b",), commits=0),
    "plans again what another wrote": BOUNDS["a member comes"],
    "doubts what it had with its session": BOUNDS["a member comes, and one is cut off"],
    "doubts what got no answer": LARGE["an answer gets lost and a member comes"],
    **dict.fromkeys(
        [name for name, rules in RULES.items() if rules.offsets is not GroupOffsets],
        BOUNDS["a session ends, and a commit gets no answer"],
    ),
}
"""Where that is seen; else in one of `BOUNDS`."""

_FIRST = PartitionKey("q", 0)
BEGUN: dict[str, list[Action]] = {
    "releases what is revoked only": [
        ("see members", "a", None), ("see plan", "a", None), ("step", "a", None),
        ("see plan", "a", None),
        ("join", "b", None), ("see members", "a", None), ("step", "a", None),
        ("see plan", "a", None),
        *[("request", "a", _FIRST)] * 3, ("step", "a", None),
    ],
}  # fmt: skip
"""What has happened when the exploration begins; else nothing. Here `a` had claims under way for
both partitions when `b` came, and has one of them now: from the very beginning it takes minutes to
go so far in every order.
"""


@pytest.mark.thorough("that each rule is needed; `make check` shows that all of them suffice")
@pytest.mark.parametrize("name", RULES)
def test_every_rule_is_needed(name: str) -> None:
    scenarios = [NEEDED_WHEN[name]] if name in NEEDED_WHEN else [*BOUNDS.values()]

    def explore_all() -> None:
        for bounds in scenarios:
            world = World(bounds, assign_sticky, rules=RULES[name])
            for action in BEGUN.get(name, ()):
                assert action in list(world.actions())
                world.perform(action)
            explore(world, states_max=STATES_MAX)

    with pytest.raises(CounterexampleError):
        explore_all()


def test_there_is_a_mutant_for_every_rule() -> None:
    taken_out = [
        field.name for field in dataclasses.fields(Rules)
        for rules in RULES.values() if getattr(rules, field.name) != field.default
    ]  # fmt: skip
    assert set(taken_out) == {field.name for field in dataclasses.fields(Rules)}
