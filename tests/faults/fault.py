"""What a kind of fault is."""

from __future__ import annotations

import dataclasses

__all__ = [
    "GATEWAYS",
    "GROUPS",
    "HUBS",
    "NATIVE",
    "PRODUCERS",
    "PUSH",
    "SERVERS",
    "SHARES",
    "Fault",
]

NATIVE, GATEWAYS = "native", "gateways"
SERVERS, PRODUCERS, PUSH, GROUPS, HUBS = "servers", "producers", "push", "groups", "hubs"
SHARES = "share groups"


@dataclasses.dataclass(frozen=True)
class Fault:
    """A kind of fault.

    Args:
        name: its name.
        doc: what it does.
        lasts_s: for how long, from and to.
        track: whom it harms.
        over: how HBase is spoken to where there is such a fault.
        apart: whether it needs servers on hosts that are apart.
        power: whether it needs servers with disks of their own.
        slow: whether it needs disks whose speed can be set.
        clocks: whether it needs servers with clocks of their own.
        often: how many times it comes while others come once.
        upgrades: whether it needs the code of the last release.
        times: how often a run must have it at least.
    """

    name: str
    doc: str
    lasts_s: tuple[float, float]
    track: str = SERVERS
    over: tuple[str, ...] = (NATIVE, GATEWAYS)
    apart: bool = False
    power: bool = False
    slow: bool = False
    clocks: bool = False
    often: int = 1
    upgrades: bool = False
    times: int = 1
