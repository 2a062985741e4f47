"""What a member should have, by its leader's plan or by its own reckoning."""

from __future__ import annotations

import copy

import pytest

from hqueue.groups.assignors import assign_range, assign_sticky
from hqueue.groups.planning import Planning
from hqueue.metadata import PartitionKey

KEYS = tuple(PartitionKey("q", number) for number in range(4))
PARTITIONS: dict[PartitionKey, str | None] = dict.fromkeys(KEYS)
BOTH = {"a": {"q": 1}, "b": {"q": 1}}


def _seen(member: str, *, led: bool = True) -> Planning:
    planning = Planning(member, assign_sticky if led else assign_range, led=led)
    planning.see_members(BOTH)
    planning.see_partitions(PARTITIONS)
    return planning


def test_only_the_leader_plans_and_only_what_it_knows_the_plan_before_of() -> None:
    leader, follower = _seen("a"), _seen("b")
    assert leader.reckons
    assert not follower.reckons
    assert leader.replan() is None
    for each in (leader, follower):
        each.see_plan({})
    assert follower.replan() is None
    plan = leader.replan()
    assert plan is not None
    assert sorted(plan.values()) == ["a", "a", "b", "b"]
    assert leader.replan() is None
    for each in (leader, follower):
        each.see_plan(plan)
        assert each.replan() is None
    assert leader.wanted() | follower.wanted() == set(KEYS)
    assert not leader.wanted() & follower.wanted()


def test_the_next_one_leads_when_the_leader_is_gone_and_moves_only_what_it_must() -> None:
    planning = _seen("b")
    before = dict.fromkeys(KEYS[:2], "a") | dict.fromkeys(KEYS[2:], "b")
    planning.see_plan(before)
    planning.see_members({"b": {"q": 1}, "c": {"q": 1}})
    plan = planning.replan()
    assert plan == dict.fromkeys(KEYS[:2], "c") | dict.fromkeys(KEYS[2:], "b")


def test_what_another_wrote_meanwhile_is_planned_again() -> None:
    planning = _seen("a")
    planning.see_plan(dict.fromkeys(KEYS, "b"))
    assert planning.replan() is not None
    planning.see_plan(dict.fromkeys(KEYS, "b"))
    assert planning.replan() is not None


def test_a_plan_that_can_not_be_read_is_replaced_and_the_one_before_followed_until_then() -> None:
    leader, follower, joined = _seen("a"), _seen("b"), _seen("b")
    plan = dict.fromkeys(KEYS[:2], "a") | dict.fromkeys(KEYS[2:], "b")
    for each in (leader, follower):
        each.see_plan(plan)
        assert each.replan() is None
        each.see_plan(None)
    joined.see_plan(None)
    assert leader.replan() == plan
    assert leader.wanted() | follower.wanted() == set(KEYS)
    assert joined.wanted() == set()
    leader.see_plan(plan)
    assert leader.replan() is None


def test_of_queues_that_it_consumes_no_more_it_is_to_have_nothing() -> None:
    planning = _seen("b")
    planning.see_plan(dict.fromkeys(KEYS, "b"))
    assert planning.wanted() == set(KEYS)
    planning.see_members({"b": {"r": 1}})
    assert not planning.wanted()


def test_a_leader_plans_nothing_of_queues_that_it_has_not_looked_at() -> None:
    planning = Planning("a", assign_sticky, led=True)
    planning.see_members(BOTH)
    planning.see_plan(dict.fromkeys(KEYS, "b"))
    assert planning.replan() is None
    planning.see_partitions({PartitionKey("r", 0): None})
    planning.see_members({"a": {"r": 1}, "b": {"q": 1}})
    assert planning.replan() == dict.fromkeys(KEYS, "b") | {PartitionKey("r", 0): "a"}
    planning.see_members({"a": {"r": 1}})
    assert planning.replan() == {PartitionKey("r", 0): "a"}


def test_without_a_leader_each_reckons_for_itself() -> None:
    planning = _seen("b", led=False)
    assert planning.reckons
    assert planning.replan() is None
    assert planning.wanted() == set(KEYS[2:])


def test_it_notices_that_the_group_changed_and_not_that_a_region_moved() -> None:
    planning = _seen("a")
    planning.regrouped = False
    planning.see_partitions(dict.fromkeys(KEYS, "host"))
    planning.see_members(dict(BOTH))
    assert not planning.regrouped
    planning.see_members({"a": {"q": 1}})
    assert planning.regrouped


@pytest.mark.parametrize("heard", ["members", "partitions", "plan", "unreadable plan"])
def test_what_is_heard_while_a_copy_plans_is_planned_next(heard: str) -> None:
    planning = _seen("a")
    plan = dict.fromkeys(KEYS[:2], "a") | dict.fromkeys(KEYS[2:], "b")
    planning.see_plan(plan)
    seen = copy.copy(planning)
    assert seen.replan() is None
    if heard == "members":
        planning.see_members({"a": {"q": 1}})
    elif heard == "partitions":
        planning.see_partitions(dict.fromkeys(KEYS[:3]))
    else:
        planning.see_plan(None if heard == "unreadable plan" else dict.fromkeys(KEYS, "b"))
    planning.acted_on(seen)
    assert planning.replan() is not None
