"""Which faults of servers may be under way at once, and those that are: drawn.

The limits leave what must hold able to hold. Of three data nodes at most two are gone, and at most
one loses or gets wrong what it stored: the third has what was acknowledged. What asks the cluster
for something (to move regions, to compact) and what harms all servers alone joins nothing.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Sequence

__all__ = ["AT_ONCE", "can_draw", "drawn", "may_join"]

AT_ONCE = {"two-at-once": 2, "three-at-once": 3}
"""The kinds of faults that are several others at once, and how many."""

_ROT_OF_BLOCKS = ("rot-blocks", "rot-checksums", "rot-stopped-datanode")
_UNPLUGS = ("unplug-datanode", "unplug-host")

LIMITS: Sequence[tuple[Collection[str], int]] = (
    # Each harms another region server.
    (
        (
            *("kill-regionserver", "kill-meta", "pause-regionserver", "cut-off-regionserver"),
            *("cut-from-zookeeper", "cut-from-master", "cut-from-namenode", "cut-from-clients"),
            *("flap-regionserver", "unplug-host", "rot-blocks", "rot-checksums"),
        ),
        3,
    ),
    (("kill-regionserver", "kill-meta"), 1),
    (("kill-datanode", "cut-off-datanode", *_UNPLUGS, *_ROT_OF_BLOCKS), 2),
    ((*_UNPLUGS, *_ROT_OF_BLOCKS, "rot-zookeeper"), 1),
    # A second one would find no leader to harm, or a server that is down.
    (
        (
            *("restart-zookeeper", "kill-zookeeper", "kill-zookeeper-leader"),
            *("lose-zookeeper-quorum", "rot-zookeeper", "cut-off-zookeeper"),
            *("cut-off-zookeeper-leader", "cut-clients-from-leader", "cut-clients-from-zookeeper"),
        ),
        1,
    ),
    (("restart-master", "cut-off-master"), 1),
    (("kill-namenode",), 1),
    (("slow-disk", "slow-zookeeper-disks"), 1),
    (("halve-network", "bridge-network", "cut-one-way"), 1),
    (("set-regionserver-clock", "set-server-clock", "jump-server-clock"), 1),
    # The proxies before region servers or gateways have one fate.
    (("cut-connections", "delay-connections"), 1),
    (("kill-gateway", "pause-gateway"), 1),
)
"""Kinds of faults, and how many of them may be under way at once."""

_MEMBERS = frozenset(kind for kinds, _ in LIMITS for kind in kinds)


def may_join(kinds: Collection[str]) -> bool:
    """Whether these kinds may be under way at once."""
    within = all(sum(kind in limited for kind in kinds) <= most for limited, most in LIMITS)
    return within and _MEMBERS.issuperset(kinds)


def can_draw(count: int, kinds: Collection[str]) -> bool:
    """Whether so many of these kinds may be under way at once."""
    return _first(count, kinds) is not None


def drawn(rng: random.Random, count: int, kinds: Sequence[str]) -> list[str]:
    """So many of these kinds that may be under way at once, in their order.

    Raises:
        ValueError: there are none.
    """
    found = _first(count, rng.sample(kinds, len(kinds)))
    if found is None:
        raise ValueError(f"no {count} of these may be under way at once: {', '.join(kinds)}")
    return [kind for kind in kinds if kind in found]


def _first(count: int, kinds: Collection[str]) -> tuple[str, ...] | None:
    joining = [kind for kind in kinds if kind in _MEMBERS]
    return next(filter(may_join, itertools.combinations(joining, count)), None)
