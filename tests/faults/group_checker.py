"""The verdict on a consumer group: from the history alone, whether its consumers kept to the rules.

Each write of a group's offset counts its record's version up by one. So the versions put all
take-overs and commits of a partition into the order in which they counted, whatever the clocks of
processes say that stood still.
"""

from __future__ import annotations

import bisect
import collections
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from .checker import Violation
from .group_history import CLAIM, COMMIT, Handed, Write
from .history import History

__all__ = ["GROUP_KINDS", "check_group", "takeovers"]

GROUP_KINDS = {
    "unconsumed": "an ok message that no consumer of the group was given",
    "misconsumed": "a message that a consumer was given but that is not in the log at that "
    "position",
    "jumped": "messages that a consumer was given with a gap, out of the log's order, or "
    "not from its beginning",
    "overcommitted": "a commit beyond a message that its consumer was not given",
    "recommenced": "a consumer that began before the committed position, so that messages come "
    "again that the group had finished",
    "unfounded": "a consumer that began at a position that no consumer had committed",
    "unfenced": "a commit that took effect although another consumer had taken the partition over",
    "trespassed": "messages that a consumer was given, and had requested when another consumer had "
    "the partition already",
}
"""What is looked for."""

Ownership = tuple[str, int, int]
"""A consumer, a partition, and the version of its take-over."""


def check_group(history: History) -> list[Violation]:
    """Every violation that the history shows; none if the consumers kept to the rules."""
    violations: list[Violation] = []
    for partition in sorted(history.counts):
        ids = [read.id for read in history.final.get(partition, [])]
        writes = [write for write in history.group.writes if write.partition == partition]
        handed = [each for each in history.group.handed if each.partition == partition]
        by_owner: dict[Ownership, list[Handed]] = collections.defaultdict(list)
        for each in handed:
            by_owner[each.consumer, partition, each.claim].append(each)
        counted = _counted(writes)
        violations += _contents(history, partition, handed)
        violations += _jumps(ids, counted, by_owner)
        violations += _overcommits(ids, writes, by_owner)
        violations += _begins(counted, writes)
        violations += _fences(counted)
        violations += _trespasses(counted, by_owner)
    return violations


def takeovers(history: History, killed_s: Mapping[str, float]) -> dict[str, float]:
    """How long it took, in seconds, until another consumer had taken over what a killed one had.

    Args:
        history: the history.
        killed_s: when each process was killed, by name.

    Returns:
        For each partition that a consumer of such a process had then: the time. It is infinite
        where none took it over any more.
    """
    took_s: dict[str, float] = {}
    for partition in sorted(history.counts):
        claims = [
            write
            for write in _counted(w for w in history.group.writes if w.partition == partition)
            if write.kind == CLAIM
        ]
        for process, at_s in killed_s.items():
            before = [claim for claim in claims if _ended_s(claim) <= at_s]
            if not before or before[-1].process != process:
                continue
            version = before[-1].version or 0
            over_s = min(
                (_ended_s(claim) for claim in claims if (claim.version or 0) > version),
                default=float("inf"),
            )
            took_s[f"{process} in partition {partition}"] = over_s - at_s
    return took_s


def _counted(writes: Iterable[Write]) -> list[Write]:
    """Those that are known to count, in the order in which they did."""
    known = [write for write in writes if write.version is not None]
    return sorted(known, key=lambda write: write.version or 0)


def _ended_s(write: Write) -> float:
    return float("inf") if write.ended_s is None else write.ended_s


def _contents(history: History, partition: int, handed: Sequence[Handed]) -> Iterator[Violation]:
    there = {read.id: read.token for read in history.final.get(partition, [])}
    ok = {token for put in history.puts if put.outcome == "ok" for token in put.tokens}
    seen: set[int] = set()
    for each in handed:
        for id_, token in each.messages:
            seen.add(id_)
            if there.get(id_) != token:
                yield Violation("misconsumed", f"{_name(each)}: {token} at {id_}")
    for id_ in sorted(there.keys() - seen):
        if there[id_] in ok:
            yield Violation("unconsumed", f"partition {partition}: {there[id_]} at {id_}")


def _jumps(
    ids: Sequence[int], counted: Sequence[Write], by_owner: Mapping[Ownership, Sequence[Handed]]
) -> Iterator[Violation]:
    """What an owner is handed are the log's messages from where it began on."""
    begins = {
        (write.consumer, write.partition, write.version): write.next
        for write in counted
        if write.kind == CLAIM
    }
    for owner, handed in by_owner.items():
        if owner not in begins:
            yield Violation("jumped", f"{_name(handed[0])}: it never took the partition over")
            continue
        first = bisect.bisect_left(ids, begins[owner])
        given = [id_ for each in handed for id_, _ in each.messages]
        for got, wanted in itertools.zip_longest(given, ids[first : first + len(given)]):
            if got != wanted:
                yield Violation("jumped", f"{_name(handed[0])}: {got} instead of {wanted}")
                break


def _overcommits(
    ids: Sequence[int], writes: Sequence[Write], by_owner: Mapping[Ownership, Sequence[Handed]]
) -> Iterator[Violation]:
    """What a commit passes by was handed to its consumer before."""
    begins = {
        (write.consumer, write.version): write.next for write in writes if write.kind == CLAIM
    }
    for write in writes:
        if write.kind != COMMIT or write.outcome == "fail" or write.claim is None:
            continue
        until = begins.get((write.consumer, write.claim), 0)
        for each in by_owner.get((write.consumer, write.partition, write.claim), ()):
            if each.at_s <= write.began_s:
                until = max(until, each.messages[-1][0] + 1)
        passed = ids[bisect.bisect_left(ids, until) : bisect.bisect_left(ids, write.next)]
        if passed:
            yield Violation("overcommitted", f"{_name(write)}: {write.next} beyond {passed[0]}")


def _begins(counted: Sequence[Write], writes: Sequence[Write]) -> Iterator[Violation]:
    """Who takes a partition over begins where the group was."""
    unknown = {w.next for w in writes if w.kind == COMMIT and w.outcome == "unknown"}
    before, version = 0, 0
    for write in counted:
        assert write.version is not None
        if write.kind == CLAIM:
            # A write between them that nobody knows may have been one of these commits.
            possible = unknown if write.version > version + 1 else set()
            if write.next < before:
                yield Violation("recommenced", f"{_name(write)}: at {write.next}, after {before}")
            elif write.next != before and write.next not in possible:
                yield Violation("unfounded", f"{_name(write)}: at {write.next}, after {before}")
        before, version = write.next, write.version


def _fences(counted: Sequence[Write]) -> Iterator[Violation]:
    """Only who took a partition over last commits; and each write has a version of its own."""
    owner: str | None = None
    version = 0
    for write in counted:
        if write.version == version:
            yield Violation("unfenced", f"{_name(write)}: version {version} was another's")
        elif write.kind == COMMIT and write.consumer != owner:
            yield Violation("unfenced", f"{_name(write)}: {write.next}, but {owner} had it")
        if write.kind == CLAIM:
            owner = write.consumer
        version = write.version or 0


def _trespasses(
    counted: Sequence[Write], by_owner: Mapping[Ownership, Sequence[Handed]]
) -> Iterator[Violation]:
    """Who asks for messages when another has taken the partition over is handed none."""
    claims = [write for write in counted if write.kind == CLAIM]
    for (consumer, _, claim), handed in by_owner.items():
        over_s = min(
            (
                _ended_s(write)
                for write in claims
                if (write.version or 0) > claim and write.consumer != consumer
            ),
            default=float("inf"),
        )
        for each in handed:
            if each.began_s > over_s:
                yield Violation("trespassed", f"{_name(each)}: {each.messages[0][1]}")


def _name(of: Handed | Write) -> str:
    return f"{of.process} ({of.consumer}) in partition {of.partition}"
