"""The verdict: from the history alone, whether the queue kept its promises.

As Jepsen's queue and Kafka checkers do, each operation is ok, fail or unknown. What is looked for:

    lost          an ok message that the last reader did not find
    doubled       a token that lies in the log more than once
    resurrected   a message of a failed put that is in the log all the same
    invented      a message that nobody put
    moved         an ok message that lies elsewhere than its put was told
    unordered     IDs of a partition that do not grow; a put that began after another had ended and
                  lies before it; messages of one put that are torn apart or out of order
    skipped       a reader that passed a message by: it would appear behind its cursor
    disagreeing   a reader that got something else at an ID than the last reader
    miscounted    a partition whose newest header counts other than what is there
"""

from __future__ import annotations

import bisect
import collections
import dataclasses
import itertools
from collections.abc import Iterator, Mapping

from .history import History, Put, Read

__all__ = ["KINDS", "Violation", "check"]

KINDS = (
    "lost",
    "doubled",
    "resurrected",
    "invented",
    "moved",
    "unordered",
    "skipped",
    "disagreeing",
    "miscounted",
)


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
        *_readers(history),
        *_counts(history),
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
    for token, found in places.items():
        if len(found) > 1:
            yield Violation("doubled", f"{token} at {found}")
        if token not in known:
            yield Violation("invented", f"{token} at {found}")


def _kept(put: Put, places: Mapping[str, list[tuple[int, int]]]) -> Iterator[Violation]:
    for token, id_ in zip(put.tokens, put.ids, strict=True):
        found = places.get(token, [])
        if not found:
            yield Violation("lost", f"{token} of {_name(put)}")
        elif id_ not in [place[1] for place in found]:
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


def _readers(history: History) -> Iterator[Violation]:
    for reader, reads in history.reads.items():
        by_partition: dict[int, list[Read]] = collections.defaultdict(list)
        for read in reads:
            by_partition[read.partition].append(read)
        for partition, start in history.starts.get(reader, {}).items():
            final = history.final.get(partition, [])
            got = by_partition.get(partition, [])
            first = bisect.bisect_left(final, start, key=lambda read: read.id)
            end = len(final) if reader in history.complete else first + len(got)
            expected = final[first:end]
            yield from _compare(reader, partition, got, expected)


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
