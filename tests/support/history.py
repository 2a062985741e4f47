"""What was acknowledged against what was read, message by message."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterable, Sequence

import hqueue

__all__ = ["Seen", "check", "seen_by"]


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """A message as a writer or a reader knows it. Values are ``writer:number``."""

    partition: int
    id: int
    value: str

    @classmethod
    def parse(cls, line: str) -> Seen:
        partition, message_id, value = line.split()
        return cls(int(partition), int(message_id), value)


def seen_by(messages: Iterable[hqueue.ReceivedMessage]) -> list[Seen]:
    """What a scanner gave."""
    return [Seen(m.partition, int(m.id), m.value.decode()) for m in messages]


def check(
    acknowledged: Sequence[Seen],
    *readers: Sequence[Seen],
    in_doubt: Iterable[str] = (),
    ordered: bool = True,
) -> None:
    """Each reader saw every acknowledged message once, where its writer put it, in order.

    Args:
        acknowledged: in each writer's order. A partition of -1 was not known to the writer.
        readers: what each reader saw, in its order.
        in_doubt: values whose put failed with an unknown outcome: once or not at all.
        ordered: each writer's messages lie in the order of its numbers in each partition.
    """
    promised = {seen.value: seen for seen in acknowledged}
    assert len(promised) == len(acknowledged), "a value was written twice by the test itself"
    allowed = set(promised) | set(in_doubt)
    first = _by_partition(readers[0])
    for reader in readers:
        counts = collections.Counter(seen.value for seen in reader)
        assert [v for v, number in counts.items() if number > 1] == [], "doubled"
        assert [v for v in promised if v not in counts] == [], "lost"
        assert [v for v in counts if v not in allowed] == [], "unexpected"
        for seen in reader:
            told = promised.get(seen.value)
            if told is not None:
                assert seen.id == told.id
                assert told.partition in (-1, seen.partition)
        by_partition = _by_partition(reader)
        for partition, found in by_partition.items():
            ids = [seen.id for seen in found]
            assert all(a < b for a, b in itertools.pairwise(ids)), "IDs do not grow"
            if ordered:
                _check_writers_order(partition, found)
        assert by_partition == first, "the readers disagree"


def _by_partition(reader: Sequence[Seen]) -> dict[int, list[Seen]]:
    by_partition: dict[int, list[Seen]] = {}
    for seen in reader:
        by_partition.setdefault(seen.partition, []).append(seen)
    return by_partition


def _check_writers_order(partition: int, found: Sequence[Seen]) -> None:
    last: dict[str, int] = {}
    for seen in found:
        writer, _, number = seen.value.partition(":")
        assert last.get(writer, -1) < int(number), f"reordered in partition {partition}: {seen}"
        last[writer] = int(number)
