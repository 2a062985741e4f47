"""How hubs share their topics: which hub a topic goes to, and which ones a hub gives up.

Each hub decides for itself, by the loads that all hubs report regularly; no hub plans for all. The
unit of load is one topic at rest. Three rules make loads converge without oscillation:

- A topic without an owner goes to a hub that is short of load, in proportion to what each lacks.
- A hub with more than the mean gives up half of its excess, if it is overloaded or another hub is
  short. All hubs together give up half of what the others lack, so no hub gets too much, however
  old the reported loads are.
- A topic stays where it is for a while. A topic that is most of its hub's load always stays: moving
  it would only move the overload.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Hashable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple, TypeVar

__all__ = [
    "MESSAGE_LOAD",
    "OwnedTopic",
    "choose_any",
    "choose_hub",
    "load_of",
    "topics_to_release",
]

Hub = TypeVar("Hub", bound=Hashable)

MESSAGE_LOAD = 10
"""What one message a second adds to a load: as much as this many topics at rest."""
TOLERANCE = 0.1
"""How far from the mean a load may be, as a share of it, without being too much or too little."""
SPREAD = 0.25
"""The share of the topics without an owner that all hubs get, also when some are short of load."""
GAIN = 0.5
"""Which share of what it has more than the mean a hub gives up at a time."""
RELEASED_MAX, RELEASED_SHARE_MAX = 10, 0.02
"""How many topics a hub gives up at a time: this many, or this share of its topics."""
STAY_MS = 60_000.0
"""How long a topic stays at least."""
STAY_MS_MAX = 24 * 3_600_000.0
"""After which time one is given up in any case: so topics are shuffled, a few at a time."""


class OwnedTopic(NamedTuple):
    """A topic that a hub owns."""

    name: str
    load: float
    """Of this topic: see `load_of`."""
    since_ms: float
    """When the hub became its owner, by the monotonic clock."""


def load_of(messages_per_s: float) -> float:
    """The load of a topic with this many messages published a second."""
    return 1 + MESSAGE_LOAD * messages_per_s


def choose_hub(loads: Mapping[Hub, float], chance: random.Random) -> Hub:
    """The hub that a topic without an owner goes to.

    Args:
        loads: of the hubs that are available; not empty.
        chance: decides among them.
    """
    mean = fmean(loads.values())
    lacking = [_lacking(load, mean) for load in loads.values()]
    if any(lacking) and chance.random() >= SPREAD:
        return chance.choices(list(loads), lacking)[0]
    # One more for each: when nothing was done yet all are alike.
    room = [1 + max(0.0, 2 * mean - load) for load in loads.values()]
    return chance.choices(list(loads), room)[0]


def choose_any(hubs: Iterable[Hub], chance: random.Random) -> Hub:
    """Like `choose_hub`, but each hub as often as the others."""
    return chance.choice(list(hubs))


def topics_to_release(
    own: float, others: Sequence[float], topics: Iterable[OwnedTopic], count: int, now_ms: float
) -> list[str]:
    """The topics that a hub gives up now: few, and those of much load first.

    Args:
        own: the hub's load.
        others: the loads of the other hubs that are available.
        topics: what it owns, in the order in which it became the owner.
        count: how many these are.
        now_ms: the time, by the monotonic clock.
    """
    if not others:
        return []
    most = max(RELEASED_MAX, int(RELEASED_SHARE_MAX * count))
    mean = fmean([own, *others])
    more = own - mean
    short = any(_lacking(load, mean) for load in others)
    overloaded = own > mean * (1 + TOLERANCE)
    settled = itertools.takewhile(lambda each: now_ms - each.since_ms >= STAY_MS, topics)
    if more <= 0 or not (short or overloaded):
        oldest = itertools.takewhile(lambda each: now_ms - each.since_ms >= STAY_MS_MAX, settled)
        return [each.name for each in itertools.islice(oldest, RELEASED_MAX)]
    released: list[str] = []
    left = more * GAIN
    # One whose load is more than the surplus would make its next owner what this hub is now.
    for each in heapq.nlargest(most, (t for t in settled if t.load <= more), key=lambda t: t.load):
        if each.load <= left or not released:
            released.append(each.name)
            left -= each.load
        if left <= 0:
            break
    return released


def _lacking(load: float, mean: float) -> float:
    """What a hub with this load is short of."""
    return mean - load if load < mean * (1 - TOLERANCE) else 0.0
