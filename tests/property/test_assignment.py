"""Which worker serves which partition."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from hqueue.metadata import PartitionKey
from hqueue_workers.node.assignment import NEAR_SHARE_MAX, assign

HOSTS = ("a", "b", "c")
KEYS = st.builds(PartitionKey, st.sampled_from(("q", "r")), st.integers(0, 40))
PARTITIONS = st.dictionaries(KEYS, st.sampled_from((*HOSTS, None)), max_size=60)
ANYWHERE = st.dictionaries(KEYS, st.none(), max_size=60)
WORKERS = st.dictionaries(st.sampled_from("uvwxyz"), st.sampled_from(HOSTS), min_size=1)
OWNERS = st.dictionaries(KEYS, st.sampled_from("tuvwxyz"), max_size=60)

Partitions = dict[PartitionKey, str | None]
Workers = dict[str, str]
Owners = dict[PartitionKey, str]


def totals(plan: Owners, workers: Workers) -> list[int]:
    counted = Counter(plan.values())
    return [counted[worker] for worker in workers]


@given(PARTITIONS, WORKERS, OWNERS)
def test_every_partition_has_one_of_the_workers(
    partitions: Partitions, workers: Workers, owners: Owners
) -> None:
    plan = assign(partitions, workers, owners)
    assert plan.keys() == partitions.keys()
    assert set(plan.values()) <= workers.keys()


@given(PARTITIONS, OWNERS)
def test_without_workers_nothing_is_assigned(partitions: Partitions, owners: Owners) -> None:
    assert assign(partitions, {}, owners) == {}


@given(PARTITIONS, WORKERS, OWNERS, st.randoms())
def test_all_workers_come_to_the_same_plan(
    partitions: Partitions, workers: Workers, owners: Owners, random: object
) -> None:
    shuffled = []
    for mapping in (partitions, workers, owners):
        items = list(mapping.items())
        random.shuffle(items)  # type: ignore[attr-defined]
        shuffled.append(dict(items))
    assert assign(*shuffled) == assign(partitions, workers, owners)


@given(PARTITIONS, WORKERS, OWNERS)
def test_a_plan_that_was_carried_out_is_kept(
    partitions: Partitions, workers: Workers, owners: Owners
) -> None:
    plan = assign(partitions, workers, owners)
    assert assign(partitions, workers, plan) == plan


@given(PARTITIONS, WORKERS, OWNERS)
def test_the_nearest_serves_up_to_its_bound(
    partitions: Partitions, workers: Workers, owners: Owners
) -> None:
    plan = assign(partitions, workers, owners)
    near_max = NEAR_SHARE_MAX * -(-len(partitions) // len(workers))
    for host in set(workers.values()):
        at_host = [worker for worker in workers if workers[worker] == host]
        near = [key for key in partitions if partitions[key] == host]
        kept = sum(plan[key] in at_host for key in near)
        assert kept >= min(len(near), near_max * len(at_host))


@given(ANYWHERE, WORKERS, OWNERS)
def test_where_nobody_is_near_the_numbers_are_even(
    partitions: Partitions, workers: Workers, owners: Owners
) -> None:
    numbers = totals(assign(partitions, workers, owners), workers)
    assert max(numbers) - min(numbers) <= 1


@given(ANYWHERE, WORKERS)
def test_one_that_comes_takes_its_share_and_nothing_else_moves(
    partitions: Partitions, workers: Workers
) -> None:
    before = assign(partitions, workers, {})
    after = assign(partitions, {**workers, "new": "a"}, before)
    moved = [key for key in partitions if before[key] != after[key]]
    assert all(after[key] == "new" for key in moved)
    assert len(moved) <= -(-len(partitions) // (len(workers) + 1))


@given(ANYWHERE, WORKERS.filter(lambda workers: len(workers) > 1))
def test_of_one_that_goes_only_its_own_partitions_move(
    partitions: Partitions, workers: Workers
) -> None:
    before = assign(partitions, workers, {})
    gone = min(workers)
    left = {worker: host for worker, host in workers.items() if worker != gone}
    after = assign(partitions, left, before)
    assert all(before[key] == gone for key in partitions if before[key] != after[key])


def test_regions_that_move_take_their_partitions_with_them() -> None:
    workers = {"u": "a", "v": "b"}
    keys = [PartitionKey("q", number) for number in range(4)]
    owners = assign(dict.fromkeys(keys, "a"), workers, {})
    assert set(owners.values()) == {"u"}
    moved = dict.fromkeys(keys[:2], "a") | dict.fromkeys(keys[2:], "b")
    assert assign(moved, workers, owners) == {
        keys[0]: "u", keys[1]: "u", keys[2]: "v", keys[3]: "v",
    }  # fmt: skip


def test_where_the_nearest_has_its_bound_those_stay_away_that_are_elsewhere_already() -> None:
    workers = {"u": "a", "v": "b", "w": "b"}
    keys = [PartitionKey("q", number) for number in range(9)]
    most = NEAR_SHARE_MAX * 3
    owners = dict.fromkeys(keys[-most:], "u") | {keys[0]: "v", keys[1]: "v", keys[2]: "w"}
    assert assign(dict.fromkeys(keys, "a"), workers, owners) == owners
