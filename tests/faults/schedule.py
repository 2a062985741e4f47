"""When which fault comes: drawn from the seed alone, so the same seed gives the same schedule.

There are six tracks: faults of the servers, of the producers, of the workers and subscribers, of
the consumers, of the hubs and whom they serve, and of the share consumers. On each track they come
one after the other, with a calm between them; those of the servers also two and three at once.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Collection, Iterator, Mapping

from .fault import (
    GATEWAYS,
    GROUPS,
    HUBS,
    NATIVE,
    PRODUCERS,
    PUSH,
    SERVERS,
    SHARES,
    Fault,
)
from .server_kinds import SERVER_KINDS
from .together import AT_ONCE, drawn

__all__ = [
    "FAULTS",
    "GATEWAYS",
    "GROUPS",
    "HUBS",
    "NATIVE",
    "PRODUCERS",
    "PUSH",
    "SERVERS",
    "SHARES",
    "TRACKS",
    "UPGRADED",
    "Fault",
    "Planned",
    "Track",
    "kinds",
    "schedule",
]

CALM_S = (1.5, 4.0)
TRACKS = (SERVERS, PRODUCERS, PUSH, GROUPS, HUBS, SHARES)
"""Whom faults harm."""
UPGRADED = {
    "producer": (PRODUCERS, 7),
    "worker": (PUSH, 2),
    "subscriber": (PUSH, 2),
    "consumer": (GROUPS, 4),
    "reader": (GROUPS, 3),
    "hub": (HUBS, 3),
    "publisher": (HUBS, 4),
    "listener": (PUSH, 2),
    "supplier": (SHARES, 2),
    "sharer": (SHARES, 3),
}
"""The kinds of processes that are upgraded; on which track, and how many there are of each."""


FAULTS: dict[str, Fault] = {
    fault.name: fault
    for fault in (
        *SERVER_KINDS,
        Fault(
            "kill-producer",
            "kill -9 a producer while a put is under way, and start another",
            (0, 1),
            PRODUCERS,
        ),
        Fault(
            "pause-producer",
            "SIGSTOP a producer for longer than every time-out, then resume it",
            (22, 26),
            PRODUCERS,
        ),
        Fault(
            "set-clock",
            "set a producer's clock 1 to 5 minutes ahead or back",
            (4, 8),
            PRODUCERS,
        ),
        Fault("kill-worker", "kill -9 a worker, and start another", (0, 4), PUSH),
        Fault(
            "pause-worker",
            "SIGSTOP a worker for longer than its session lasts, then resume it",
            (7, 10),
            PUSH,
        ),
        Fault(
            "kill-subscriber",
            "kill -9 a subscriber, and restart it: it continues at its checkpoints",
            (0, 4),
            PUSH,
        ),
        Fault(
            "pause-subscriber",
            "SIGSTOP a subscriber for longer than its session lasts, then resume it",
            (7, 10),
            PUSH,
        ),
        Fault(
            "kill-consumer",
            "kill -9 a consumer of a group, and start another: other consumers take over its "
            "partitions when its session is over",
            (0, 8),
            GROUPS,
        ),
        Fault(
            "pause-consumer",
            "SIGSTOP a consumer for longer than its session lasts, then resume it",
            (7, 10),
            GROUPS,
        ),
        Fault(
            "kill-hub",
            "kill -9 a hub, and restart it: other hubs take over its topics when its session is "
            "over",
            (0, 8),
            HUBS,
        ),
        Fault(
            "pause-hub",
            "SIGSTOP a hub for longer than its session lasts, then resume it",
            (7, 12),
            HUBS,
        ),
        Fault(
            "expire-hub",
            "let ZooKeeper end a hub's session while the hub keeps running",
            (0, 2),
            HUBS,
        ),
        Fault("move-topics", "move all topics to one hub, under load", (0, 1), HUBS),
        Fault(
            "overload-hub",
            "move all topics to one hub, under load, until it sheds some by itself",
            (0, 1),
            HUBS,
        ),
        Fault(
            "kill-publisher",
            "kill -9 a publisher while a publish is under way, and start another",
            (0, 2),
            HUBS,
        ),
        Fault(
            "kill-listener",
            "kill -9 a subscriber of hubs, and restart it: it continues at its cursors",
            (0, 4),
            HUBS,
        ),
        Fault(
            "pause-listener",
            "SIGSTOP a subscriber of hubs for longer than its session lasts, then resume it",
            (7, 10),
            HUBS,
        ),
        Fault(
            "kill-sharer",
            "kill -9 a process with a consumer in each share group, and start another",
            (0, 4),
            SHARES,
        ),
        Fault(
            "pause-sharer",
            "SIGSTOP such a process for longer than its locks and its session last, then resume it",
            (7, 10),
            SHARES,
        ),
        Fault(
            "cut-sharers",
            "cut all share consumers from ZooKeeper, for as long as a session lasts or longer",
            (3, 8),
            SHARES,
        ),
        *(
            Fault(
                f"upgrade-{kind}",
                f"stop a {kind} (SIGTERM), start it with the other version of the code, and wait "
                "until it works: all are upgraded from the last release one by one, and go back",
                (0, 3),
                track,
                upgrades=True,
                times=2 * count,
            )
            for kind, (track, count) in UPGRADED.items()
        ),
    )
}


@dataclasses.dataclass(frozen=True)
class Planned:
    """One fault of a schedule.

    Args:
        fault: its kind.
        after_s: the calm before it, from the end of the last one of its track.
        lasts_s: for how long it lasts.
        target: a number from which the one is chosen that it harms.
        change: from -1 to 1, where it may go either way.
        at_once: those that it is made of, for several at once.
    """

    fault: str
    after_s: float
    lasts_s: float
    target: int
    change: float
    at_once: tuple[Planned, ...] = ()

    def __str__(self) -> str:
        several = " and ".join(f"{one.fault} {one.target % 1_000}" for one in self.at_once)
        what = several or f"target {self.target % 1_000:3}  change {self.change:+.2f}"
        return f"after {self.after_s:4.1f} s  {self.fault:20} for {self.lasts_s:4.1f} s  {what}"


@dataclasses.dataclass(frozen=True)
class Track:
    """Faults that come one after the other.

    Args:
        name: whom they harm.
        faults: their kinds.
        planned: each kind as often as the others, several at once more often, without an end.
        times: how often a run must have a kind at least, where that is more than once.
    """

    name: str
    faults: Collection[str]
    planned: Iterator[Planned]
    times: Mapping[str, int] = dataclasses.field(default_factory=dict)


def kinds(
    hbase: str,
    *,
    apart: bool,
    power: bool = False,
    slow: bool = False,
    clocks: bool = False,
    upgrades: bool = False,
) -> list[str]:
    """The kinds of faults that there are.

    Args:
        hbase: how HBase is spoken to.
        apart: whether servers are on hosts that are apart.
        power: whether servers have disks of their own.
        slow: whether the speed of these disks can be set.
        clocks: whether servers have clocks of their own.
        upgrades: whether processes have the code of the last release, too.
    """
    return [
        fault.name
        for fault in FAULTS.values()
        if hbase in fault.over
        and (apart or not fault.apart)
        and (power or not fault.power)
        and (slow or not fault.slow)
        and (clocks or not fault.clocks)
        and (upgrades or not fault.upgrades)
    ]


def schedule(
    seed: int, faults: Collection[str], done: Mapping[str, int] | None = None
) -> list[Track]:
    """The tracks that these faults need.

    On each all kinds come as often as they do in a round, in a random order, before the next round.

    Args:
        seed: decides all of it.
        faults: the kinds.
        done: how many of a track's faults have been carried out: it goes on with the next one.
    """
    done = done or {}
    return [
        Track(
            name,
            found,
            itertools.islice(
                _planned(random.Random(f"{seed} {name}"), found), done.get(name, 0), None
            ),
            {kind: FAULTS[kind].times for kind in found},
        )
        for name in TRACKS
        if (found := [kind for kind in FAULTS if kind in faults and FAULTS[kind].track == name])
    ]


def _planned(rng: random.Random, kinds: list[str]) -> Iterator[Planned]:
    often = [FAULTS[name].often for name in kinds]
    while True:
        for name in rng.sample(kinds, sum(often), counts=often):
            item = _drawn(rng, name, rng.uniform(*CALM_S))
            if name in AT_ONCE:
                names = drawn(rng, AT_ONCE[name], kinds)
                several = tuple(_drawn(rng, each, 0.0) for each in names)
                lasts_s = max(each.lasts_s for each in several)
                item = dataclasses.replace(item, lasts_s=lasts_s, at_once=several)
            yield item


def _drawn(rng: random.Random, name: str, after_s: float) -> Planned:
    return Planned(
        name,
        after_s,
        rng.uniform(*FAULTS[name].lasts_s),
        rng.randrange(2**32),
        rng.uniform(-1, 1),
    )
