"""What a run tells: figures, the longest stalls, and the verdict."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .checker import KINDS
from .delivery_checker import DELIVERY_KINDS
from .group_checker import GROUP_KINDS, takeovers
from .messages import has_extras
from .nemesis import Event
from .run import Result
from .schedule import FAULTS, SERVERS
from .share_checker import SHARE_KINDS
from .topic_checker import TOPIC_KINDS
from .upgrade_checker import UPGRADE_KINDS

__all__ = ["ALL_KINDS", "figures", "longest", "publish_stalls", "stalls", "summary", "unproven"]

ALL_KINDS = KINDS | DELIVERY_KINDS | GROUP_KINDS | TOPIC_KINDS | SHARE_KINDS | UPGRADE_KINDS
"""Every kind of violation, and what it is."""

SHOWN_MAX = 50
AFTERMATH_S = 5.0
BUSY = ("messages", "reads", "deliveries", "consumed", "published", "listened", "shared")
"""The figures of all that processes do, but for the puts."""
BUSY_MIN = 0.2
"""So many a second there must be of each, over the whole run."""


def stalls(result: Result) -> dict[str, float]:
    """For each kind of fault the longest time in which some partition took no put, in seconds.

    It counts for the fault that was under way or had just ended; for one of the servers rather
    than one of the producers.
    """
    partitions = {
        read.token: partition for partition, reads in result.history.final.items() for read in reads
    }
    return longest(
        result.events,
        (
            (partitions[put.tokens[0]], put.completed_s)
            for put in result.history.puts
            if put.outcome == "ok" and put.completed_s is not None and put.tokens[0] in partitions
        ),
    )


def publish_stalls(result: Result) -> dict[str, float]:
    """As `stalls`, in which some topic of hubs took no message."""
    return longest(
        result.events,
        (
            (publish.topic, publish.ended_s)
            for publish in result.topics.publishes
            if publish.outcome == "ok" and publish.ended_s is not None
        ),
    )


def longest(events: Sequence[Event], done: Iterable[tuple[object, float]]) -> dict[str, float]:
    """For each kind of fault the longest time between two successes at the same place.

    Args:
        events: the faults.
        done: where something succeeded, and when.
    """
    times: dict[object, list[float]] = collections.defaultdict(list)
    for place, at_s in done:
        times[place].append(at_s)
    found: dict[str, float] = collections.defaultdict(float)
    for ends in times.values():
        for before_s, after_s in itertools.pairwise(sorted(ends)):
            cause = _cause(events, before_s, after_s)
            if cause is not None:
                found[cause.fault] = max(found[cause.fault], after_s - before_s)
    return dict(found)


def _cause(events: Sequence[Event], before_s: float, after_s: float) -> Event | None:
    under_way = [
        event
        for event in events
        if event.began_s <= after_s and event.ended_s + AFTERMATH_S >= before_s
    ]
    if not under_way:
        return None
    return min(under_way, key=lambda e: (FAULTS[e.fault].track != SERVERS, e.ended_s < before_s))


def figures(result: Result) -> dict[str, object]:
    """The run in numbers."""
    history = result.history
    outcomes = collections.Counter(put.outcome for put in history.puts)
    faults = collections.Counter(event.fault for event in result.events if not event.problem)
    violations = collections.Counter(violation.kind for violation in result.violations)
    part = result.options.part
    took_place = [kind for kind in faults if faults[kind]]
    return {
        "seed": result.options.seed,
        **(part.figures([e.fault for e in result.events], took_place) if part else {}),
        "duration_s": round(result.ended_s - result.began_s),
        "puts": {outcome: outcomes[outcome] for outcome in ("ok", "fail", "unknown")},
        "messages": sum(map(len, history.final.values())),
        "with_key_or_headers": sum(
            has_extras(read.token) for reads in history.final.values() for read in reads
        ),
        "reads": sum(len(view.reads) for view in history.views),
        "scans": sum(len(view.passes) for view in history.views),
        "faults": {kind: faults[kind] for kind in FAULTS if kind in result.options.faults},
        "deliveries": sum(len(delivery.messages) for delivery in history.deliveries),
        "consumed": sum(len(handed.messages) for handed in history.group.handed),
        "published": sum(map(len, result.topics.final.values())),
        "listened": sum(len(given.messages) for given in result.topics.given),
        "shared": len(result.shares.handed),
        "takeovers_s": _takeovers_s(result),
        "switches": [dataclasses.asdict(each) for each in result.switches],
        "violations": {kind: violations[kind] for kind in ALL_KINDS},
        "failures": len(result.failures),
        "longest_stall_s": _by_kind(stalls(result)),
        "longest_publish_stall_s": _by_kind(publish_stalls(result)),
        "events": [
            {
                "fault": event.fault,
                "target": event.target,
                "began_s": round(event.began_s - result.began_s, 1),
                "ended_s": round(event.ended_s - result.began_s, 1),
                "problem": event.problem,
            }
            for event in result.events
        ],
    }


def _by_kind(stalls_s: Mapping[str, float]) -> dict[str, float]:
    return {kind: round(stalls_s[kind], 1) for kind in FAULTS if kind in stalls_s}


def _takeovers_s(result: Result) -> list[float]:
    """How long each partition of a killed consumer was consumed by nobody, the longest first."""
    killed_s = {
        event.target: event.began_s
        for event in result.events
        if event.fault == "kill-consumer" and event.target
    }
    took_s = takeovers(result.history, killed_s).values()
    return sorted((round(each, 1) for each in took_s if each < float("inf")), reverse=True)


def summary(result: Result) -> str:
    """The verdict in words."""
    numbers = figures(result)
    events, switches = numbers.pop("events"), numbers.pop("switches")
    lines = [json.dumps(numbers, indent=2)]
    lines += [f"not as it should: {event}" for event in events if event["problem"]]  # type: ignore[attr-defined]
    if switches:
        lines.append(_switched(result))
    verdict = "nothing lost, doubled or reordered"
    if result.violations:
        lines += [f"{v.kind}: {v.text}" for v in result.violations[:SHOWN_MAX]]
        verdict = f"{len(result.violations)} VIOLATIONS"
    elif reasons := unproven(result):
        verdict = "proves nothing: " + "; ".join(reasons)
    if result.options.part and (kinds := _to_come(result)):
        lines.append(f"in no part so far: {', '.join(kinds)}")
    return "\n".join([*lines, f"seed {result.options.chosen_by}: {verdict}"])


def _switched(result: Result) -> str:
    """How many processes of each kind were switched to each version, and how soon they worked."""
    counts = collections.Counter((each.kind, each.version) for each in result.switches)
    kinds = sorted({each.kind for each in result.switches})
    parts = [f"{kind} {counts[kind, 'present']}/{counts[kind, 'older']}" for kind in kinds]
    slowest_s = max(each.took_s for each in result.switches)
    return f"to the present code/back: {', '.join(parts)}; the slowest took {slowest_s} s"


def unproven(result: Result) -> list[str]:
    """Why the run proves nothing; empty if it proves something."""
    return [*result.failures, *_missing(result), *_idle(result)]


def _missing(result: Result) -> list[str]:
    """The kinds of faults that were wanted, and took place too rarely. A part alone need not have
    any.
    """
    if result.options.part:
        return []
    done = collections.Counter(event.fault for event in result.events if not event.problem)
    return [
        f"{kind} took place {done[kind]} times instead of {FAULTS[kind].times}"
        if done[kind]
        else f"no {kind} took place"
        for kind in result.options.faults
        if done[kind] < FAULTS[kind].times
    ]


def _to_come(result: Result) -> list[str]:
    """The kinds that took place in no part so far."""
    done = {event.fault for event in result.events if not event.problem}
    if result.options.part:
        done |= result.options.part.came
    return [kind for kind in result.options.faults if kind not in done]


def _idle(result: Result) -> list[str]:
    """What processes hardly did: then faults met nothing that they could break."""
    numbers = figures(result)
    puts: Any = numbers["puts"]
    amounts = {"ok puts": puts["ok"], **{each: numbers[each] for each in BUSY}}
    least = BUSY_MIN * (result.ended_s - result.began_s)
    return [
        f"{name}: {amount} in the whole run, and fewer than {least:.0f} prove nothing"
        for name, amount in amounts.items()
        if amount < least  # type: ignore[operator]
    ]
