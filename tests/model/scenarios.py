"""What is explored: who takes part in each scenario, and what may go wrong at most.

Assumptions that hold in all of them: a row is atomic; of the headers that one call deletes, those
named first go first (but in one scenario); monotonic clocks run alike. Where a queue is truncated,
no write lives longer than `TRUNCATE_PAUSE_MS` minus `TAIL_TRUST_MS`, and elsewhere none longer than
half of `HEADER_GRACE_MS`; standing still before a put counts as the put's life. Where a deposed
server answers, the queue is not truncated.
"""

from __future__ import annotations

from hqueue.limits import HEADER_GRACE_MS, TAIL_TRUST_MS, TRUNCATE_PAUSE_MS

from .participants import appender, collector, in_turn, once, prefilled, reader, truncator
from .scenario import Scenario

__all__ = ["DEEP", "SCENARIOS", "scenario_named"]

TTL_MS = 60_000
OLD_MS = TTL_MS + HEADER_GRACE_MS + 1
LONG_LIFE_MS = HEADER_GRACE_MS // 2
SHORT_LIFE_MS = TRUNCATE_PAUSE_MS - TAIL_TRUST_MS - 100
UNKNOWN = frozenset({"unknown"})
PUT_FAULTS = UNKNOWN | {"refused", "repeated"}
ALL_FAULTS = PUT_FAULTS | {"slow", "unavailable", "echo"}

SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        "two writers, one fault of any kind",
        {"w1": appender(1, 2), "w2": appender(1)},
        faults=1,
        fault_kinds=ALL_FAULTS,
    ),
    Scenario(
        "two writers, a crash and a lost put",
        {"w1": appender(1, 2), "w2": appender(1)},
        faults=1,
        crashes=1,
    ),
    Scenario(
        "two writers, two lost puts",
        {"w1": appender(2), "w2": appender(1)},
        faults=2,
        fault_kinds=UNKNOWN,
        switches=2,
    ),
    Scenario(
        "three writers",
        {"w1": appender(1), "w2": appender(2), "w3": appender(0)},
    ),
    Scenario(
        "deadlines pass",
        {"w1": appender(1, 1, bound_ms=50), "w2": appender(1)},
        faults=1,
        fault_kinds=ALL_FAULTS,
    ),
    Scenario(
        "the deadline passes for a lone writer",
        {"w1": appender(1, 1, bound_ms=50)},
        faults=3,
        fault_kinds=ALL_FAULTS,
    ),
    Scenario(
        "a clock that is behind",
        {"w1": appender(2, 1), "w2": appender(1)},
        faults=1,
        fault_kinds=PUT_FAULTS,
        skew_ms={"w2": -4_000},
    ),
    Scenario(
        "a clock that is ahead",
        {"w1": appender(2, 1), "w2": appender(1)},
        faults=1,
        fault_kinds=PUT_FAULTS,
        skew_ms={"w2": 4_000},
    ),
    Scenario(
        "one nonce, tried by two",
        {"w1": once("n"), "w2": once("n")},
        faults=1,
        fault_kinds=ALL_FAULTS,
    ),
    Scenario(
        "one nonce, tried again after a crash",
        {"w1": once("n"), "w2": once("n")},
        faults=1,
        fault_kinds=PUT_FAULTS,
        crashes=1,
        before=prefilled(1),
    ),
    Scenario(
        "one nonce, and another writer",
        {"w1": once("n"), "w2": appender(1), "w3": once("n")},
    ),
    Scenario(
        "a deposed server answers two writers, of which one lost a put",
        {"w1": appender(1), "w2": appender(1)},
        faults=3,
        fault_kinds=UNKNOWN | {"stale"},
        switches=1,
        before=prefilled(1),
    ),
    Scenario(
        "a deposed server answers two writers that are slow",
        {"w1": appender(1), "w2": appender(1)},
        faults=2,
        fault_kinds=frozenset({"slow", "stale"}),
        switches=2,
        jumps=(TAIL_TRUST_MS + 1,),
        life_ms=LONG_LIFE_MS,
        before=prefilled(1),
    ),
    Scenario(
        "a deposed server answers one nonce, tried by two",
        {"w1": once("n"), "w2": once("n")},
        faults=2,
        fault_kinds=UNKNOWN | {"stale"},
        before=prefilled(1),
    ),
    Scenario(
        "a deposed server answers a reader",
        {"w1": appender(1, 1), "r1": reader(3)},
        faults=2,
        fault_kinds=frozenset({"stale"}),
        before=prefilled(1),
    ),
    Scenario(
        "a deposed server answers a follower",
        {"w1": appender(1, 1), "r1": reader(4, poll=True)},
        faults=2,
        fault_kinds=frozenset({"stale"}),
        before=prefilled(1),
    ),
    Scenario(
        "a reader behind a writer",
        {"w1": appender(1, 0, 2), "r1": reader(2)},
        faults=1,
        fault_kinds=UNKNOWN | {"unavailable"},
    ),
    Scenario(
        "a follower behind two writers",
        {"w1": appender(1), "w2": appender(2), "r1": reader(2, poll=True)},
    ),
    Scenario(
        "a follower whose requests fail",
        {"w1": appender(1, 1), "r1": reader(4, poll=True)},
        faults=1,
        fault_kinds=UNKNOWN | {"unavailable"},
    ),
    Scenario(
        "a scan that sees the log as it was when it began",
        {"w1": appender(1, 1), "r1": reader(3)},
        snapshot_scans=True,
        before=prefilled(1),
    ),
    Scenario(
        "bodies expire and headers are collected",
        {"w1": appender(1), "c1": collector(TTL_MS), "r1": reader(2)},
        jumps=(OLD_MS,),
        life_ms=LONG_LIFE_MS,
        ttl_ms=TTL_MS,
        before=prefilled(2),
    ),
    Scenario(
        "a put that is late among collections",
        {"w1": appender(1), "w2": appender(1, collect_ttl_ms=TTL_MS)},
        faults=1,
        fault_kinds=UNKNOWN,
        switches=3,
        jumps=(OLD_MS,),
        life_ms=LONG_LIFE_MS,
        ttl_ms=TTL_MS,
    ),
    Scenario(
        "a put that is late when bodies have just expired",
        {"w1": appender(1), "w2": in_turn(appender(1, 1), collector(TTL_MS))},
        faults=1,
        fault_kinds=UNKNOWN,
        switches=1,
        jumps=(TTL_MS + 1,),
        life_ms=LONG_LIFE_MS,
        ttl_ms=TTL_MS,
    ),
    Scenario(
        "headers go in another order than they are named",
        {"c1": collector(TTL_MS), "w1": appender(1), "r1": reader(2)},
        life_ms=LONG_LIFE_MS,
        ttl_ms=TTL_MS,
        before=prefilled(3, OLD_MS),
        deletes_backwards=True,
    ),
    Scenario(
        "a collection is cut off",
        {"c1": collector(TTL_MS), "w1": appender(1)},
        faults=1,
        life_ms=LONG_LIFE_MS,
        ttl_ms=TTL_MS,
        before=prefilled(3, OLD_MS),
    ),
    Scenario(
        "a header is found long after it was written",
        {"w1": appender(1), "w2": in_turn(appender(1, 1), collector(TTL_MS))},
        faults=1,
        fault_kinds=UNKNOWN,
        switches=2,
        jumps=(OLD_MS,),
        life_ms=LONG_LIFE_MS,
        ttl_ms=TTL_MS,
    ),
    Scenario(
        "two collectors",
        {"c1": collector(TTL_MS), "c2": collector(TTL_MS), "w1": appender(1)},
        faults=1,
        switches=3,
        life_ms=LONG_LIFE_MS,
        ttl_ms=TTL_MS,
        before=prefilled(3, OLD_MS),
    ),
    Scenario(
        "the queue is truncated under two writers",
        {"w1": appender(1, 1), "w2": appender(1), "t": truncator()},
        faults=1,
        fault_kinds=frozenset({"unknown", "repeated", "disabled"}),
        switches=2,
        life_ms=SHORT_LIFE_MS,
        before=prefilled(1),
        truncates=True,
    ),
    Scenario(
        "the queue is truncated between two appends of a writer",
        {"w1": appender(1, 1, pauses=True), "t": truncator()},
        life_ms=SHORT_LIFE_MS,
        before=prefilled(1),
        truncates=True,
    ),
    Scenario(
        "the queue is truncated before an outcome is known",
        {"w1": appender(1, bound_ms=3_150), "t": in_turn(truncator(), appender(1))},
        faults=3,
        fault_kinds=frozenset({"unknown", "refused"}),
        switches=1,
        life_ms=SHORT_LIFE_MS,
        before=prefilled(1),
        truncates=True,
    ),
    Scenario(
        "the queue is truncated while a writer tries again",
        {"w1": appender(1, 1), "w2": appender(1), "t": truncator()},
        faults=1,
        fault_kinds=frozenset({"refused"}),
        switches=3,
        life_ms=SHORT_LIFE_MS,
        before=prefilled(1),
        truncates=True,
    ),
    Scenario(
        "the queue is truncated while the tail is read",
        {"w1": appender(1), "w2": appender(1), "t": truncator()},
        faults=1,
        fault_kinds=frozenset({"slow"}),
        switches=4,
        life_ms=SHORT_LIFE_MS,
        before=prefilled(1),
        truncates=True,
    ),
    Scenario(
        "the queue is truncated under a reader",
        {"w1": appender(1, 1), "r1": reader(2), "t": truncator()},
        life_ms=SHORT_LIFE_MS,
        before=prefilled(1),
        truncates=True,
    ),
    Scenario(
        "the queue is truncated under a follower",
        {"w1": appender(1), "r1": reader(3, poll=True), "t": truncator()},
        life_ms=SHORT_LIFE_MS,
        before=prefilled(1),
        truncates=True,
    ),
    Scenario(
        "the queue is truncated under one nonce",
        {"w1": once("n"), "w2": once("n"), "t": truncator()},
        faults=1,
        fault_kinds=frozenset({"slow"}),
        switches=3,
        life_ms=SHORT_LIFE_MS,
        before=prefilled(1),
        truncates=True,
    ),
    Scenario(
        "a collector that knew the log before it was truncated",
        {"c1": collector(TTL_MS, times=2), "w1": appender(1, 1, 1), "t": truncator()},
        switches=2,
        jumps=(OLD_MS,),
        life_ms=SHORT_LIFE_MS,
        ttl_ms=TTL_MS,
        before=prefilled(2, OLD_MS),
        truncates=True,
    ),
    Scenario(
        "writers are paused",
        {"w1": appender(1, 1), "w2": appender(1)},
        faults=1,
        fault_kinds=frozenset({"unknown", "slow"}),
        switches=1,
        jumps=(TAIL_TRUST_MS + 1,),
        life_ms=LONG_LIFE_MS,
    ),
    Scenario(
        "a writer stands still beyond every bound",
        {"w1": appender(1), "w2": in_turn(appender(1, 1), collector(TTL_MS))},
        faults=1,
        fault_kinds=frozenset({"slow"}),
        switches=2,
        jumps=(OLD_MS,),
        life_ms=LONG_LIFE_MS,
        stands_still="w1",
        ttl_ms=TTL_MS,
        skew_ms={"w2": 1},
        orphans_allowed=True,
    ),
)

DEEP: tuple[Scenario, ...] = (
    Scenario(
        "deep: three writers and two readers",
        {
            "w1": appender(1, 2, 1, 0, 1),
            "w2": appender(3, 1, 1, 1, bound_ms=250),
            "w3": appender(1, 1, 2, 1),
            "r1": reader(8),
            "r2": reader(12, poll=True),
        },
        faults=6,
        fault_kinds=ALL_FAULTS,
        crashes=1,
        jumps=(TAIL_TRUST_MS + 1, TAIL_TRUST_MS - 1, 20_000),
        life_ms=LONG_LIFE_MS,
        skew_ms={"w2": -3_000, "w3": 2_000},
    ),
    Scenario(
        "deep: collections",
        {
            "w1": appender(1, 2, 1, 1, collect_ttl_ms=TTL_MS),
            "w2": appender(1, 1, 1, collect_ttl_ms=TTL_MS),
            "c1": collector(TTL_MS, times=3),
            "r1": reader(6),
            "r2": reader(8, poll=True),
        },
        faults=4,
        fault_kinds=ALL_FAULTS,
        crashes=1,
        jumps=(TTL_MS + 1, OLD_MS, OLD_MS + 1, HEADER_GRACE_MS // 3),
        life_ms=LONG_LIFE_MS,
        ttl_ms=TTL_MS,
        before=prefilled(3),
    ),
    Scenario(
        "deep: one nonce",
        {
            "w1": once("n"),
            "w2": once("n"),
            "w3": once("m"),
            "w4": once("n", bound_ms=250),
            "w5": appender(1, 1, 1),
            "r1": reader(6),
        },
        faults=5,
        fault_kinds=ALL_FAULTS,
        crashes=2,
        jumps=(TAIL_TRUST_MS + 1,),
        life_ms=LONG_LIFE_MS,
        skew_ms={"w2": -3_000},
        before=prefilled(1),
    ),
    Scenario(
        "deep: truncations",
        {
            "w1": appender(1, 2, 1, 1),
            "w2": appender(1, 1, 1, bound_ms=250),
            "w3": once("n"),
            "t1": truncator(),
            "r1": reader(6),
            "r2": reader(8, poll=True),
        },
        faults=4,
        fault_kinds=ALL_FAULTS | {"disabled"},
        crashes=1,
        jumps=(TAIL_TRUST_MS + 1,),
        life_ms=SHORT_LIFE_MS,
        before=prefilled(2),
        truncates=True,
    ),
)


def scenario_named(name: str) -> Scenario:
    """The scenario with this name."""
    return next(s for s in (*SCENARIOS, *DEEP) if s.name == name)
