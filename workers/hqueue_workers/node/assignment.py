"""Which worker serves which partition, and which hub writes to which: pure functions that every
worker and hub computes for itself.

Sooner or later all processes see the same partitions, workers and claims, and compute the same
plan. Until then the claims decide: no worker serves a partition that another has claimed.

Groups plan differently (`hqueue.groups.assignors`): there one member plans for all, and evenness
comes first, for members with different queues and numbers of streams. Here each process plans for
itself, and near partitions come first. The plan must be the same in every release, or workers of
two releases would hand a partition to each other for ever.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping

from hqueue.metadata import PartitionKey

__all__ = ["NEAR_SHARE_MAX", "assign", "assigned_to", "claimed_by"]

NEAR_SHARE_MAX = 2
"""How many times its even share a worker serves at most because it is the nearest."""


def assign(
    partitions: Mapping[PartitionKey, str | None],
    workers: Mapping[str, str],
    owners: Mapping[PartitionKey, str],
) -> dict[PartitionKey, str]:
    """A worker for each partition.

    Each partition goes to a worker on its region's host, if there is one that has not twice its
    even share already; those of one host evenly. All others go where they make the totals even. A
    partition stays with the worker that has it wherever that is as good. What comes out, taken as
    the owners, gives the same again.

    Args:
        partitions: each partition that must be served, with its region's host; None if that is
            not known.
        workers: each worker that is present, with the host that it sits on.
        owners: who has what now; also of workers that are gone.

    Returns:
        A present worker for every partition; nothing if there is no worker.
    """
    if not workers:
        return {}
    near_max = NEAR_SHARE_MAX * -(-len(partitions) // len(workers))
    plan: dict[PartitionKey, str] = {}
    for host in sorted(set(workers.values())):
        at_host = [worker for worker in workers if workers[worker] == host]
        near = sorted(key for key, region in partitions.items() if region == host)
        # Those that are elsewhere already are the first to stay away.
        near.sort(key=lambda key: owners.get(key) not in at_host)
        plan |= _spread(near[: near_max * len(at_host)], dict.fromkeys(at_host, 0), owners)
    loads = dict.fromkeys(workers, 0)
    for worker in plan.values():
        loads[worker] += 1
    rest = sorted(key for key in partitions if key not in plan)
    return plan | _spread(rest, loads, owners)


def assigned_to(
    name: str,
    partitions: Mapping[PartitionKey, str | None],
    workers: Mapping[str, str],
    owners: Mapping[PartitionKey, str],
) -> set[PartitionKey]:
    """What a worker has, or claims, by this plan now: not what another that is present has still.

    Args:
        name: the worker.
        partitions: as `assign` takes them.
        workers: as `assign` takes them.
        owners: as `assign` takes them.
    """
    plan = assign(partitions, workers, owners)
    return {
        key
        for key, worker in plan.items()
        if worker == name and (owners.get(key, name) == name or owners[key] not in workers)
    }


def claimed_by(name: str, owners: Mapping[PartitionKey, str]) -> set[PartitionKey]:
    """What lies under a worker's name, whether or not it knows of that."""
    return {key for key, owner in owners.items() if owner == name}


def _spread(
    keys: Collection[PartitionKey], loads: Mapping[str, int], owners: Mapping[PartitionKey, str]
) -> dict[PartitionKey, str]:
    """Give keys to workers with these loads so that the totals get even, and few keys move."""
    held = dict.fromkeys(loads, 0)
    for key in keys:
        if owners.get(key) in held:
            held[owners[key]] += 1
    room = _quotas(len(keys), loads, held)
    plan: dict[PartitionKey, str] = {}
    for key in keys:
        owner = owners.get(key)
        if owner is not None and room.get(owner, 0) > 0:
            plan[key] = owner
            room[owner] -= 1
    free = (worker for worker in sorted(room) for _ in range(room[worker]))
    return plan | dict(zip((key for key in keys if key not in plan), free, strict=True))


def _quotas(count: int, loads: Mapping[str, int], held: Mapping[str, int]) -> dict[str, int]:
    """How many of `count` keys each worker takes: each goes where the total is least.

    Among those with the same total it goes to the one that would have to give up most.
    """
    quotas = dict.fromkeys(loads, 0)
    heap = [(load, -held[worker], worker) for worker, load in loads.items()]
    heapq.heapify(heap)
    for _ in range(count):
        load, surplus, worker = heap[0]
        quotas[worker] += 1
        heapq.heapreplace(heap, (load + 1, surplus + 1, worker))
    return quotas
