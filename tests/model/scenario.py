"""What a scenario says: who takes part in a run, and what may go wrong in it at most."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .world import World

__all__ = ["Scenario"]


@dataclasses.dataclass(frozen=True)
class Scenario:
    """Who takes part, and the bounds of what may go wrong. Times in milliseconds."""

    name: str
    cast: Mapping[str, Callable[[World, str], None]]
    faults: int = 0
    fault_kinds: frozenset[str] = frozenset({"unknown"})
    """``unknown``: the request is under way when the caller gives up: it arrives later, or never.
    ``refused``: it never left. ``repeated``: a put is applied, and its repetition is answered.
    ``slow``: the answer takes its time. ``unavailable``: a read fails. ``disabled``: a put is
    applied, and its repetition learns that the table is disabled. ``echo``: a put is answered,
    and a copy of it is under way. ``stale``: a read is answered by a server that lost the region
    when the run began, and has not noticed."""
    crashes: int = 0
    switches: int = 1_000
    """How often another participant acts although the one that did could go on."""
    jumps: tuple[int, ...] = ()
    """Pauses of everything, each once: a pause of one participant is one in which others act."""
    life_ms: int = 1_900
    """How long a write can be under way, or stand before a writer that was paused."""
    stands_still: str = ""
    """A writer before whom a write can stand for any time."""
    ttl_ms: int = 10**12
    retry_ms: int = 100
    before: Callable[[World], None] = lambda world: None
    """What was done before."""
    skew_ms: Mapping[str, int] = dataclasses.field(default_factory=dict)
    snapshot_scans: bool = False
    deletes_backwards: bool = False
    """Of the headers that one call deletes, those named last go first."""
    orphans_allowed: bool = False
    truncates: bool = False
