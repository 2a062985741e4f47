"""The partition log over a store of forged rows: it is read, checked, followed and appended to."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from hypothesis import strategies as st

from hqueue.consume.arrow import record_batch
from hqueue.consume.decode import messages_of
from hqueue.consume.follow import follow
from hqueue.errors import CorruptLogError, HQueueError
from hqueue.format import rowkey
from hqueue.format.cells import encode_bodies
from hqueue.format.header import Bodies
from hqueue.log import PartitionReader, PartitionWriter
from hqueue.log.ranges import RangeVerifier
from hqueue.log.skew import StoreClock
from hqueue.log.steps import Work
from hqueue.log.verify import PartitionVerifier
from hqueue.message import Message
from hqueue.message_id import MessageID, id_of
from hqueue.metadata.managers import LogRange
from hqueue.runtime.clock import Deadline, drive, drive_each

from .fuzz_store import WHIMS, Rows, SteppedClock
from .rows import GOLDEN, Forgery, Stored, batches, forgeries, written
from .target import Target

__all__ = ["TARGETS", "Table", "tables"]

WALL_MS = 1_700_000_000_000
BOUND_MS = 3_000
PARTITION, OTHER = 0, 1
MESSAGE = Message("t", b"appended")
MOVED_AT = id_of(WALL_MS) + 4
RANGES = {
    topic: [
        LogRange(PARTITION, MessageID(WALL_MS), MessageID.from_int(MOVED_AT), 1),
        LogRange(PARTITION, MessageID.from_int(MOVED_AT + 1), None, 2),
    ]
    for topic in "ab"
}
"""What is said of where two topics lie, true or not."""


@dataclasses.dataclass(frozen=True)
class Table:
    """Two partitions: a chain of batches with forged ones among them, and one that is intact."""

    chain: Sequence[Bodies]
    forged: Mapping[int, Forgery]
    missing: Sequence[int]

    def rows(self) -> Iterator[Stored]:
        for index, row in enumerate(chained(PARTITION, self.chain)):
            if index in self.forged:
                row = self.forged[index].apply(row, GOLDEN[1].header)  # noqa: PLW2901
            if index not in self.missing:
                yield row
        yield from chained(OTHER, self.chain[:2])


def chained(partition: int, chain: Sequence[Bodies]) -> Iterator[Stored]:
    """The rows of batches that were appended one after the other."""
    slot = ordinal = 0
    for bodies in chain:
        base = max(slot, id_of(WALL_MS))
        yield written(bodies, rowkey.encode(partition, slot), base=base, ordinal=ordinal)
        slot, ordinal = base + bodies.span, ordinal + bodies.count


tables: st.SearchStrategy[Table] = st.builds(
    Table,
    st.lists(batches, min_size=1, max_size=5),
    st.dictionaries(st.integers(0, 4), forgeries, max_size=2),
    st.lists(st.integers(0, 4), max_size=1),
)
whims = st.dictionaries(st.integers(1, 12), st.sampled_from(WHIMS), max_size=3)


class _Log:
    """What uses the port, all with one clock."""

    def __init__(self, rows: Rows) -> None:
        self.rows: Any = rows
        self.clock = SteppedClock(WALL_MS + 5_000)

    def deadline(self) -> Deadline:
        return Deadline(self.clock, BOUND_MS)

    def reader(self, partition: int = PARTITION, **options: Any) -> PartitionReader:
        return PartitionReader(partition, self.rows, clock=self.clock, **options)

    def read(self) -> None:
        for options in ({}, {"start": id_of(WALL_MS) + 3, "bytes_max": 50}):
            reader = self.reader(**options)
            while not reader.at_tail:
                for batch in reader.read(self.deadline()):
                    messages_of(batch)
                    record_batch([batch]).validate(full=True)
            reader.check_tail(self.deadline())

    def follow(self) -> None:
        readers = [self.reader(), self.reader(OTHER, topics=frozenset("ab"))]
        work = follow(
            [reader.steps for reader in readers],
            self.deadline,
            idle_ms_max=6_000,
            closed=lambda: False,
            bytes_max=100,
            clock=self.clock,
        )
        for batches_found in drive_each(work, self.rows, self.clock):
            for batch in batches_found:
                messages_of(batch)

    def verify(self) -> None:
        checker = PartitionVerifier(
            PARTITION,
            self.deadline,
            ttl_ms=60_000,
            now_ms=StoreClock(self.clock).now_ms,
            ranges=RangeVerifier(PARTITION, RANGES),
        )
        for _ in drive_each(checker.run(), self.rows, self.clock):
            pass

    def do(self, decide: Callable[[Deadline], Work[Any]]) -> None:
        deadline = self.deadline()
        drive(decide(deadline), self.rows, deadline)

    def append(self) -> None:
        writer = PartitionWriter(PARTITION, self.clock)
        for _ in range(2):
            self.do(partial(writer.append, encode_bodies([MESSAGE])))
        self.do(lambda _: writer.collect(self.clock.wall_ms() - 60_000))

    def append_once(self) -> None:
        writer = PartitionWriter(PARTITION, self.clock)
        for since in (None, 0, id_of(WALL_MS)):
            try:
                append = partial(
                    writer.append_once, encode_bodies([MESSAGE]), nonce=b"mynonce!", since=since
                )
                self.do(append)
            except HQueueError:
                pass


USES: dict[str, Callable[[_Log], None]] = {
    "read": _Log.read,
    "follow": _Log.follow,
    "verify": _Log.verify,
    "append": _Log.append,
    "append once": _Log.append_once,
}


def _use(given: tuple[Table, Mapping[int, str], str]) -> None:
    """Whatever a store answers, it ends, and with no other error than the library's own."""
    logging.getLogger("hqueue").setLevel(logging.CRITICAL)
    table, whims_given, use = given
    try:
        USES[use](_Log(Rows(table.rows(), whims_given)))
    except HQueueError:
        pass


def _verified(table: Table) -> None:
    """What stops a reader is found by a check, and another partition is read nevertheless."""
    logging.getLogger("hqueue").setLevel(logging.CRITICAL)
    log = _Log(Rows(table.rows()))
    try:
        log.read()
    except CorruptLogError as exc:
        now_ms = StoreClock(log.clock).now_ms
        checker = PartitionVerifier(PARTITION, log.deadline, ttl_ms=None, now_ms=now_ms)
        *_, result = drive_each(checker.run(), log.rows, log.clock)
        found = result.findings or len(bytes.fromhex(str(exc.row))) < rowkey.ROW_KEY_BYTES
        assert found, f"the check does not find {exc}"
    other = log.reader(OTHER)
    read = 0
    while not other.at_tail:
        read += sum(len(messages_of(batch)) for batch in other.read(log.deadline()))
    assert read == sum(bodies.count for bodies in table.chain[:2])


TARGETS: list[Target[Any]] = [
    Target("log", st.tuples(tables, whims, st.sampled_from(list(USES))), _use),
    Target("verify", tables, _verified),
]
