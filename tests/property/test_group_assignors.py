"""How groups share partitions."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections import Counter
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hqueue.groups import assignors
from hqueue.groups.assignors import (
    ASSIGNORS,
    Assignment,
    Assignor,
    GroupView,
    assign_range,
    assign_sticky,
)
from hqueue.metadata import PartitionKey

QUEUES = ("q", "r", "s")
NAMES = "tuvwxyz"
HOSTS = st.sampled_from(("a", "b", None))
KEYS = st.builds(PartitionKey, st.sampled_from(QUEUES), st.integers(0, 12))
PARTITIONS = st.dictionaries(KEYS, HOSTS, max_size=24)
OWNERS = st.dictionaries(KEYS, st.sampled_from(NAMES), max_size=24)
ALIKE = st.sets(st.sampled_from(NAMES[1:]), min_size=1).map(
    lambda names: {name: dict.fromkeys(QUEUES, 1) for name in names}
)
MIXED = st.dictionaries(
    st.sampled_from(NAMES[1:]),
    st.dictionaries(st.sampled_from(QUEUES), st.just(1), min_size=1),
    min_size=1,
)
STREAMS = st.dictionaries(
    st.sampled_from(NAMES[1:]),
    st.dictionaries(st.sampled_from(QUEUES), st.integers(1, 3), min_size=1),
)
ANY_VIEW = st.builds(GroupView, STREAMS, PARTITIONS, OWNERS)
ANY_ASSIGNOR = pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=ASSIGNORS)


def _loads(view: GroupView, plan: Assignment) -> list[int]:
    counted = Counter(plan.values())
    return sorted(counted[member] for member in view.members)


def _moved(view: GroupView, plan: Assignment) -> int:
    return sum(
        view.owners[key] != member
        for key, member in plan.items()
        if key in view.owners and key.queue in view.members.get(view.owners[key], {})
    )


@ANY_ASSIGNOR
@given(view=ANY_VIEW)
def test_every_partition_has_a_member_that_consumes_its_queue(
    assignor: Assignor, view: GroupView
) -> None:
    plan = assignor(view)
    consumed = {queue for streams in view.members.values() for queue in streams}
    assert plan.keys() == {key for key in view.partitions if key.queue in consumed}
    assert all(key.queue in view.members[member] for key, member in plan.items())


@ANY_ASSIGNOR
@given(view=ANY_VIEW, seed=st.integers())
def test_all_members_come_to_the_same_assignment(
    assignor: Assignor, view: GroupView, seed: int
) -> None:
    shuffled = []
    for field in dataclasses.fields(view):
        items = list(getattr(view, field.name).items())
        random.Random(seed).shuffle(items)
        shuffled.append(dict(items))
    assert assignor(GroupView(*shuffled)) == assignor(view)


@ANY_ASSIGNOR
@given(view=ANY_VIEW)
def test_an_assignment_that_was_carried_out_is_kept(assignor: Assignor, view: GroupView) -> None:
    plan = assignor(view)
    assert assignor(dataclasses.replace(view, owners=plan)) == plan


@given(st.builds(GroupView, ALIKE, PARTITIONS, OWNERS))
def test_sticky_moves_as_few_as_evenness_needs(view: GroupView) -> None:
    plan = assign_sticky(view)
    loads = _loads(view, plan)
    assert loads[-1] - loads[0] <= 1
    held = Counter(
        owner for key, owner in view.owners.items()
        if key in view.partitions and owner in view.members
    )  # fmt: skip
    low, high = divmod(len(view.partitions), len(view.members))
    kept = sorted((min(count, low + 1) for count in held.values()), reverse=True)
    full = sum(count > low for count in kept[:high])
    most_kept = sum(min(count, low) for count in kept) + full
    assert _moved(view, plan) == sum(held.values()) - most_kept


@given(st.builds(GroupView, MIXED, st.dictionaries(KEYS, HOSTS, max_size=6), OWNERS))
def test_sticky_is_as_even_as_can_be_where_members_consume_different_queues(
    view: GroupView,
) -> None:
    plan = assign_sticky(view)
    keys = sorted(plan)
    able = [[m for m, queues in view.members.items() if key.queue in queues] for key in keys]
    best = min(
        (
            sum(count**2 for count in Counter(chosen).values())
            for chosen in itertools.islice(itertools.product(*able), 50_000)
        ),
        default=0,
    )
    assert sum(count**2 for count in Counter(plan.values()).values()) <= best


@given(
    st.builds(
        GroupView,
        MIXED,
        st.dictionaries(KEYS, HOSTS, max_size=6),
        st.dictionaries(KEYS, st.sampled_from(NAMES[1:4]), max_size=24),
    )
)
@example(
    GroupView(
        {"m0": {"q": 1, "r": 1}, "m1": {"r": 1}, "m2": {"q": 1, "r": 1}},
        dict.fromkeys([PartitionKey("q", 0), PartitionKey("q", 1), PartitionKey("r", 0)]),
        {PartitionKey("q", 0): "m0", PartitionKey("q", 1): "m1", PartitionKey("r", 0): "m2"},
    )
)
def test_sticky_moves_as_few_as_evenness_needs_where_members_consume_different_queues(
    view: GroupView,
) -> None:
    plan = assign_sticky(view)
    keys = sorted(plan)
    able = [[m for m, queues in view.members.items() if key.queue in queues] for key in keys]
    if math.prod(map(len, able)) > 50_000:
        return
    best = min(
        (
            sum(count**2 for count in Counter(chosen).values()),
            _moved(view, dict(zip(keys, chosen, strict=True))),
        )
        for chosen in itertools.product(*able)
    )
    assert (sum(count**2 for count in Counter(plan.values()).values()), _moved(view, plan)) == best


@given(st.builds(GroupView, MIXED, PARTITIONS, OWNERS), st.integers())
def test_members_that_see_different_owners_come_to_an_even_assignment(
    view: GroupView, seed: int
) -> None:
    """Each acts alone, now and then, by what it sees, which may be old: gives up what is not its
    own, and claims what nobody has.
    """
    random_ = random.Random(seed)
    even = sorted(load**2 for load in _loads(view, assign_sticky(view)))
    owners = {key: who for key, who in view.owners.items() if who in view.members}
    old = dict(owners)
    for turn in range(100):
        member = random_.choice(sorted(view.members))
        seen = old if turn < 50 and random_.random() < 0.3 else owners
        plan = assign_sticky(dataclasses.replace(view, owners=seen))
        if random_.random() < 0.2:
            old = dict(owners)
        for key in list(owners):
            if owners[key] == member and plan.get(key) != member:
                del owners[key]
        wanted = [key for key, who in plan.items() if who == member and key not in owners]
        owners.update(dict.fromkeys(wanted[: random_.randint(0, 3)], member))
    for member in sorted(view.members) * 3:
        plan = assign_sticky(dataclasses.replace(view, owners=owners))
        owners = {k: who for k, who in owners.items() if who != member or plan.get(k) == member}
        owners.update({k: who for k, who in plan.items() if who == member and k not in owners})
    plan = assign_sticky(dataclasses.replace(view, owners=owners))
    assert sorted(load**2 for load in _loads(view, plan)) == even
    assert owners == plan


def test_partitions_of_one_host_stay_together_where_that_costs_no_evenness() -> None:
    partitions = {PartitionKey("q", number): "ab"[number % 2] for number in range(8)}
    members = {"u": {"q": 1}, "v": {"q": 1}}
    plan = assign_sticky(GroupView(members, partitions))
    assert {frozenset((member, partitions[key])) for key, member in plan.items()} == {
        frozenset(("u", "a")), frozenset(("v", "b")),
    }  # fmt: skip


def test_a_member_with_more_streams_has_more() -> None:
    partitions = {PartitionKey("q", number): None for number in range(9)}
    members = {"u": {"q": 1}, "v": {"q": 2}}
    for assignor in ASSIGNORS.values():
        assert Counter(assignor(GroupView(members, partitions)).values()) == {"u": 3, "v": 6}


@given(
    streams=st.dictionaries(st.sampled_from(NAMES[1:]), st.integers(1, 4), min_size=1),
    count=st.integers(0, 24),
    owners=st.lists(st.sampled_from(NAMES), max_size=24),
)
def test_no_stream_has_more_than_it_has_to_whoever_had_what_before(
    streams: dict[str, int], count: int, owners: list[str]
) -> None:
    keys = [PartitionKey("q", number) for number in range(count)]
    members = {name: {"q": number} for name, number in streams.items()}
    view = GroupView(members, dict.fromkeys(keys), dict(zip(keys, owners, strict=False)))
    plan = Counter(assign_sticky(view).values())
    largest = max(plan[name] / number for name, number in streams.items())
    # With less in each, not all would have a place.
    places = sum(math.ceil(largest * number - 1e-9) - 1 for number in streams.values())
    assert count == 0 or places < count


def test_range_gives_slices_as_kafkas_first_consumers_had_them() -> None:
    partitions = {PartitionKey("q", number): "ba"[number % 2] for number in range(5)}
    plan = assign_range(GroupView({"v": {"q": 1}, "u": {"q": 1}}, partitions))
    assert [plan[PartitionKey("q", number)] for number in (1, 3, 0, 2, 4)] == list("uuuvv")


@given(members=st.one_of(ALIKE, MIXED, STREAMS), partitions=PARTITIONS, owners=OWNERS)
def test_what_is_not_searched_because_the_group_is_even_would_not_have_been_found(
    members: dict[str, dict[str, int]],
    partitions: dict[PartitionKey, str | None],
    owners: dict[PartitionKey, str],
) -> None:
    view = GroupView(members, partitions, owners)
    with mock.patch.object(assignors._Plan, "_may_even", return_value=True):
        searched = assign_sticky(view)
    assert assign_sticky(view) == searched
