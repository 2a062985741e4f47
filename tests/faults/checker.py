"""The verdict: from the history alone, whether the queue kept its promises.

As Jepsen's queue and Kafka checkers do, each operation is ok, fail or unknown.
"""

from __future__ import annotations

import bisect
import collections
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence

from .history import History, Put, Read, View
from .messages import name_of

__all__ = ["KINDS", "Violation", "check"]

KINDS = {
    "lost": "an ok message that the last reader did not find",
    "doubled": "a message that lies in the log more than once",
    "resurrected": "a message of a failed put that is in the log nevertheless",
    "invented": "a message that nobody put",
    "altered": "a message that is in the log with another topic, value, key or headers",
    "moved": "an ok message that is not at the position that its put returned",
    "unordered": (
        "IDs of a partition that do not grow; a put that began after another had ended but lies "
        "before it; puts of one producer out of order; messages of one put that are separated or "
        "out of order"
    ),
    "skipped": "a message that a reader skipped: it would appear behind its cursor",
    "stale": (
        "a message that a scan did not return although its put had been acknowledged when the scan "
        "began"
    ),
    "disagreeing": "two readers that got different messages at the same ID",
    "miscounted": "a partition whose newest header has a wrong count of messages",
    "broken": "a wrong link, ordinal or checksum in the log",
}
"""What is looked for."""


@dataclasses.dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was not kept."""

    kind: str
    text: str


def check(history: History) -> list[Violation]:
    """Every violation that the history shows; none if the queue kept its promises."""
    return [
        *_contents(history),
        *_order(history),
        *_real_time(history),
        *_program_order(history),
        *_readers(history),
        *_counts(history),
        *(Violation("broken", finding) for finding in history.findings),
    ]


def _contents(history: History) -> Iterator[Violation]:
    places: dict[str, list[tuple[int, int]]] = collections.defaultdict(list)
    for partition, reads in history.final.items():
        for read in reads:
            places[read.token].append((partition, read.id))
    known: set[str] = set()
    for put in history.puts:
        known.update(put.tokens)
        there = [token for token in put.tokens if token in places]
        if there and len(there) != len(put.tokens):
            yield Violation("unordered", f"{_name(put)} is torn apart: only {there}")
        if put.outcome == "ok":
            yield from _kept(put, places)
        elif put.outcome == "fail" and there:
            yield Violation("resurrected", f"{there} of {_name(put)}: {put.error}")
    names = {name_of(token) for token in known}
    for token, found in places.items():
        if len(found) > 1:
            yield Violation("doubled", f"{token} at {found}")
        if token not in known:
            kind = "altered" if name_of(token) in names else "invented"
            yield Violation(kind, f"{token} at {found}")


def _kept(put: Put, places: Mapping[str, list[tuple[int, int]]]) -> Iterator[Violation]:
    for token, id_ in zip(put.tokens, put.ids, strict=True):
        found = places.get(token, [])
        if not found:
            yield Violation("lost", f"{token} of {_name(put)}")
        elif id_ not in [found_at[1] for found_at in found]:
            yield Violation("moved", f"{token}: put said {id_}, is at {found}")
        elif put.partition is not None and found[0][0] != put.partition:
            yield Violation("moved", f"{token}: partition {put.partition}, is at {found}")


def _order(history: History) -> Iterator[Violation]:
    for partition, reads in history.final.items():
        for before, after in itertools.pairwise(reads):
            if after.id <= before.id:
                yield Violation(
                    "unordered", f"partition {partition}: {after.id} comes after {before.id}"
                )


def _real_time(history: History) -> Iterator[Violation]:
    """A put that began when another had ended lies behind it, if both are in one partition."""
    by_token = {token: put for put in history.puts for token in put.tokens}
    for partition, reads in history.final.items():
        latest: Put | None = None
        current: Put | None = None
        position = 0
        for read in reads:
            put = by_token.get(read.token)
            if put is None:
                continue
            position = position + 1 if put is current else 0
            if put.tokens[position : position + 1] != [read.token]:
                yield Violation(
                    "unordered", f"partition {partition}: {read.token} is not in its put's order"
                )
            if put is current:
                continue
            current = put
            if (
                latest is not None
                and put.completed_s is not None
                and put.outcome == "ok"
                and put.completed_s < latest.invoked_s
            ):
                yield Violation(
                    "unordered",
                    f"partition {partition}: {_name(put)} had ended before {_name(latest)} began, "
                    "and lies behind it",
                )
            if latest is None or put.invoked_s > latest.invoked_s:
                latest = put


def _program_order(history: History) -> Iterator[Violation]:
    """What one producer put into a partition lies there in the order in which it put it.

    That holds for a `Producer` too, which has several puts under way, but not for puts whose
    partition was left to the queue.
    """
    targeted = {
        token: put for put in history.puts if put.partition is not None for token in put.tokens
    }
    for partition, reads in history.final.items():
        latest: dict[str, Put] = {}
        for read in reads:
            put = targeted.get(read.token)
            if put is None:
                continue
            before = latest.setdefault(put.producer, put)
            if put.number < before.number:
                yield Violation(
                    "unordered", f"partition {partition}: {_name(put)} lies behind {_name(before)}"
                )
            latest[put.producer] = put


def _readers(history: History) -> Iterator[Violation]:
    returned = _ReturnedIDs(history)
    for view in history.views:
        by_partition: dict[int, list[Read]] = collections.defaultdict(list)
        for read in view.reads:
            by_partition[read.partition].append(read)
        for partition, start in view.starts.items():
            final = history.final.get(partition, [])
            got = by_partition.get(partition, [])
            first = bisect.bisect_left(final, start, key=lambda read: read.id)
            expected = final[first : first + len(got)]
            yield from _compare(view.reader, partition, got, expected)
        yield from _passes(view, returned, history.deposed)


class _ReturnedIDs:
    """Which IDs had been returned to producers until when, by partition."""

    def __init__(self, history: History) -> None:
        partitions = {
            read.token: partition for partition, reads in history.final.items() for read in reads
        }
        returned: dict[int, list[tuple[float, int]]] = collections.defaultdict(list)
        for put in history.puts:
            if put.outcome == "ok" and put.completed_s is not None:
                partition = partitions.get(put.tokens[-1])
                if partition is not None:
                    returned[partition].append((put.completed_s, put.ids[-1]))
        self._times: dict[int, list[float]] = {}
        self._newest: dict[int, list[int]] = {}
        for partition, entries in returned.items():
            entries.sort()
            self._times[partition] = [at_s for at_s, _ in entries]
            self._newest[partition] = list(itertools.accumulate((i for _, i in entries), max))

    def newest(self, partition: int, before_s: float) -> int:
        """The greatest ID that was returned before a time; -1 if none was."""
        count = bisect.bisect_left(self._times.get(partition, []), before_s)
        return self._newest[partition][count - 1] if count else -1


def _passes(
    view: View, returned: _ReturnedIDs, deposed: Sequence[tuple[float, float]]
) -> Iterator[Violation]:
    """A scan that met the end had read everything that was in the log when it began.

    HBase does not promise that while a server that stood still goes on: it may answer reads from
    what it knew, until it learns that its regions are others'. It is enough to look at the
    greatest ID: that none below it is missing is checked elsewhere.
    """
    reached = dict.fromkeys(view.starts, -1)
    done = 0
    for each in view.passes:
        for read in view.reads[done : each.reads]:
            reached[read.partition] = max(reached[read.partition], read.id)
        done = each.reads
        if any(since <= each.ended_s and each.began_s <= until for since, until in deposed):
            continue
        for partition, start in view.starts.items():
            newest = returned.newest(partition, each.began_s)
            if newest >= start and newest > reached[partition]:
                yield Violation(
                    "stale",
                    f"{view.reader} in partition {partition}: the end at {reached[partition]}, "
                    f"but {newest} was there before",
                )


def _compare(
    reader: str, partition: int, got: list[Read], expected: list[Read]
) -> Iterator[Violation]:
    """Both are sequences of the same partition from the same ID on."""
    tokens = {read.id: read.token for read in expected}
    seen = {read.id for read in got}
    where = f"{reader} in partition {partition}"
    for read in got:
        if tokens.get(read.id) != read.token:
            yield Violation("disagreeing", f"{where}: {read.token} at {read.id}")
    for read in expected:
        if read.id not in seen:
            yield Violation("skipped", f"{where}: {read.token} at {read.id}")
    for before, after in itertools.pairwise(got):
        if after.id <= before.id:
            yield Violation("unordered", f"{where}: {after.id} comes after {before.id}")


def _counts(history: History) -> Iterator[Violation]:
    for partition, count in history.counts.items():
        there = len(history.final.get(partition, []))
        if there != count:
            yield Violation("miscounted", f"partition {partition}: {there} messages, says {count}")


def _name(put: Put) -> str:
    return f"{put.producer}#{put.number}"
