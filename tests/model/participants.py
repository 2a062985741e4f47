"""Who takes part in a run: each a function that runs the real protocol over the world's ports."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from hqueue.consume.decode import messages_of
from hqueue.errors import (
    CorruptLogError,
    HQueueError,
    IdempotencyKeyReusedError,
    IdempotencyKeyTooOldError,
    QueueDisabledError,
    RequestRefusedError,
    StoreUnavailableError,
)
from hqueue.format.cells import control_record, encode_bodies
from hqueue.format.header import Bodies
from hqueue.log import Appended, Batch, LogPosition, PartitionCursor, PartitionWriter
from hqueue.log.history import History, SeenBatch
from hqueue.log.ports import Row
from hqueue.log.steps import Work
from hqueue.message import Message
from hqueue.runtime.clock import Deadline, drive
from hqueue.settings.limits import TRUNCATE_PAUSE_MS

from .checker import Given, ViolationError
from .model_store import PARTITION
from .world import World

__all__ = [
    "appender",
    "collector",
    "in_turn",
    "once",
    "prefilled",
    "reader",
    "settle",
    "truncator",
]

BOUND_MS = 10**9
"""The deadline of an operation: never, unless a scenario wants it."""

Result = TypeVar("Result")
Participant = Callable[[World, str], None]


class WorldClock:
    """The world's time; a participant's wall clock may be off."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._skew_ms = world.scenario.skew_ms.get(name, 0)

    def wall_ms(self) -> int:
        return self._world.now_ms + self._skew_ms

    def monotonic_ms(self) -> float:
        return float(self._world.now_ms)

    def sleep_ms(self, duration_ms: float) -> None:
        self._world.ask("sleep", duration_ms)


class WorldPort:
    """All of `hqueue.log.ports`, each method one request that is put before the explorer."""

    def __init__(self, world: World) -> None:
        self._world = world

    def newest(self, partition: int, at_or_below: int) -> Row | None:
        return self._world.ask("newest", at_or_below)  # type: ignore[no-any-return]

    def backwards(self, partition: int, at_or_below: int, limit: int) -> list[Row]:
        return self._world.ask("backwards", at_or_below, limit)  # type: ignore[no-any-return]

    def headers(self, partition: int, start: int, limit: int) -> list[Row]:
        return self._world.ask("headers", start, limit)  # type: ignore[no-any-return]

    def header(self, partition: int, slot: int) -> bytes | None:
        return self._world.ask("header", slot)  # type: ignore[no-any-return]

    def put_if_absent(
        self, partition: int, slot: int, header: bytes, cells: Mapping[bytes, bytes]
    ) -> bool:
        return self._world.ask("put_if_absent", slot, header, dict(cells))  # type: ignore[no-any-return]

    def delete_headers(self, partition: int, slots: Sequence[int], until_ms: int) -> None:
        self._world.ask("delete_headers", tuple(slots), until_ms)

    def delete_row(self, partition: int, slot: int, topics: Iterable[bytes]) -> None:
        self._world.ask("delete_row", slot)

    def clock_offset_ms(self) -> tuple[float, float]:
        return 0.0, 0.0

    def get(self, asked: Sequence[tuple[int, int]], topics: Iterable[str] | None) -> list[Row]:
        world = self._world

        def read() -> list[Row]:
            slots = [slot for _, slot in asked if slot in world.store.rows]
            return [world.store.row(slot, topics, world.now_ms) for slot in slots]

        return world.ask("read", read)  # type: ignore[no-any-return]

    def open(self, partition: int, start: int, stop: int, topics: Iterable[str] | None) -> Stream:
        world = self._world

        def read() -> list[int] | None:
            return world.store.slots(start, stop) if world.scenario.snapshot_scans else None

        return Stream(world, start, stop, topics, world.ask("read", read))


class Stream:
    """A scan: of the rows as they come, or of those that were there when it was opened."""

    def __init__(
        self,
        world: World,
        start: int,
        stop: int,
        topics: Iterable[str] | None,
        snapshot: list[int] | None,
    ) -> None:
        self._world, self._next, self._stop = world, start, stop
        self._topics, self._snapshot = topics, snapshot

    def read(self, rows: int) -> list[Row]:
        return self._world.ask("read", functools.partial(self._read, rows))  # type: ignore[no-any-return]

    def _read(self, rows: int) -> list[Row]:
        store, now_ms = self._world.store, self._world.now_ms
        slots = store.slots(self._next, self._stop)
        if self._snapshot is not None:
            slots = [slot for slot in slots if slot in self._snapshot]
        found = slots[:rows]
        if found:
            self._next = found[-1] + 1
        return [store.row(slot, self._topics, now_ms) for slot in found]

    def close(self) -> None:
        """Nothing is held."""


@functools.lru_cache(maxsize=1_000)
def bodies_of(nonce: bytes, count: int) -> Bodies:
    """A batch of messages that say whose they are; a control record if it has none."""
    if count == 0:
        return control_record(nonce)
    return encode_bodies([Message("t", nonce + b"/%d" % n) for n in range(count)])


def nonce_of(name: str, index: int) -> bytes:
    return f"{name}{index:02}".encode().rjust(8, b".")


def _append(
    world: World,
    name: str,
    nonce: bytes,
    bound_ms: int,
    append: Callable[[Deadline], Work[Appended]],
) -> None:
    """Append, and write down what the caller learned."""
    try:
        appended = _carried_out(world, name, bound_ms, append)
    except (CorruptLogError, IdempotencyKeyReusedError) as exc:
        raise ViolationError(f"{name} found what nobody wrote: {exc}") from exc
    except (StoreUnavailableError, QueueDisabledError, RequestRefusedError) as exc:
        world.ledger.raised(name, nonce, exc.outcome.value)
    except IdempotencyKeyTooOldError as exc:
        if not world.ledger.collected():
            raise ViolationError(f"{name} learned of a collection: {exc}") from exc
        world.ledger.raised(name, nonce, exc.outcome.value)
    else:
        world.ledger.returned(name, nonce, appended.base, appended.count, appended.end)


def _carried_out(
    world: World, name: str, bound_ms: int, decide: Callable[[Deadline], Work[Result]]
) -> Result:
    """What comes of decisions of the log, which are given their deadline: the explorer answers each
    of their steps.
    """
    deadline = Deadline(WorldClock(world, name), bound_ms)
    return drive(decide(deadline), WorldPort(world), deadline)


def _writer(world: World, name: str) -> PartitionWriter:
    return world.writer_class(PARTITION, WorldClock(world, name))


def appender(
    *counts: int,
    bound_ms: int = BOUND_MS,
    collect_ttl_ms: int | None = None,
    first: int = 0,
    pauses: bool = False,
) -> Participant:
    """Appends batches of so many messages (0 for a control record), and may collect after each.

    If it pauses, others may act for any time between two batches.
    """

    def run(world: World, name: str) -> None:
        writer = _writer(world, name)
        for index, count in enumerate(counts, first):
            if pauses and index > first:
                world.ask("pause", 0)
            nonce = nonce_of(name, index)
            bodies = bodies_of(nonce, count)
            _append(world, name, nonce, bound_ms, lambda d: writer.append(bodies, d, nonce))  # noqa: B023
            if collect_ttl_ms is not None:
                _collect(world, name, writer, collect_ttl_ms)

    return run


def prefilled(
    count: int, age_ms: int = 0, *, nonce: str = "", after: int = 0
) -> Callable[[World], None]:
    """So many batches of one message, written so long before the run; with a nonce, a batch of
    two that has it follows, and so many more.
    """

    def run(world: World) -> None:
        appender(*[1] * count)(world, "w")
        if nonce:
            once(nonce)(world, "w")
            appender(*[1] * after)(world, "y")
        world.now_ms += age_ms

    return run


def once(
    *nonces: str,
    bound_ms: int = BOUND_MS,
    since: int | None = None,
    plain: int = 0,
    pauses: bool = False,
) -> Participant:
    """Appends batches of two messages with nonces that others may use for them, too.

    Args:
        nonces: one a batch, in order; each author's appends stay in it.
        bound_ms: the bound of each append.
        since: the ID where the search for them begins; the oldest header if None.
        plain: so many batches with nonces of its own come after each.
        pauses: whether others may act for any time between two batches.
    """

    def run(world: World, name: str) -> None:
        writer = _writer(world, name)
        for index, nonce in enumerate(nonces):
            if pauses and index:
                world.ask("pause", 0)
            used = nonce_of(nonce, 0)
            bodies = bodies_of(used, 2)
            _append(
                world,
                name,
                used,
                bound_ms,
                lambda d: writer.append_once(bodies, d, used, since),  # noqa: B023
            )
            for number in range(plain):
                own = nonce_of(nonce, 10 * int(name[1:]) + number)
                more = bodies_of(own, 1)
                _append(world, name, own, bound_ms, lambda d: writer.append(more, d, own))  # noqa: B023

    return run


def in_turn(*participants: Participant) -> Participant:
    """Several participants as one, one after the other."""

    def run(world: World, name: str) -> None:
        for each in participants:
            each(world, name)

    return run


def collector(ttl_ms: int, times: int = 1) -> Participant:
    """Collects headers."""

    def run(world: World, name: str) -> None:
        writer = _writer(world, name)
        for _ in range(times):
            _collect(world, name, writer, ttl_ms)

    return run


def _collect(world: World, name: str, writer: PartitionWriter, ttl_ms: int) -> None:
    world.ask("pause", 0)  # The TTL is asked for.
    try:
        expired_ms = WorldClock(world, name).wall_ms() - ttl_ms
        _carried_out(world, name, BOUND_MS, lambda _: writer.collect(expired_ms))
    except (StoreUnavailableError, QueueDisabledError):
        pass


def truncator(pause_ms: int = TRUNCATE_PAUSE_MS) -> Participant:
    """Truncates the queue, as `hqueue.hbase.table_procedures` does."""

    def run(world: World, name: str) -> None:
        world.ask("disable")
        world.ask("pause", pause_ms)
        world.ask("truncate")

    return run


def reader(
    reads: int = 2, *, start: int = 0, poll: bool = False, check_tail: bool = True
) -> Participant:
    """Reads on, so many times: by scans, or as a follower once it has come to the end."""

    def run(world: World, name: str) -> None:
        cursor = world.reader_class(
            PARTITION, start=start, clock=WorldClock(world, name), bytes_max=1
        )
        world.readers[name], world.starts[name] = cursor, start
        for index in range(reads):
            try:
                if poll and cursor.at_tail:
                    _poll(world, name, cursor)
                    if check_tail and index % 2:
                        _carried_out(world, name, BOUND_MS, cursor.check_tail)
                else:
                    _gave(world, name, _carried_out(world, name, BOUND_MS, cursor.read))
            except CorruptLogError as exc:
                raise ViolationError(f"{name} found the log corrupt: {exc}") from exc
            except (StoreUnavailableError, QueueDisabledError):
                continue
            _check_reader(world, name)

    return run


def _poll(world: World, name: str, cursor: PartitionCursor) -> None:
    for row in WorldPort(world).get([cursor.next_slot], cursor.topics):
        found = _carried_out(world, name, BOUND_MS, functools.partial(cursor.accept, row))
        _gave(world, name, [found] if found else [])


def _gave(world: World, name: str, batches: Sequence[Batch]) -> None:
    for found in batches:
        header = found.header
        world.ledger.gave(
            name, Given(header.nonce, header.base, header.ordinal, found.start, found.stop)
        )
        first, last = found.start - header.base, found.stop - header.base
        expected = [header.nonce + b"/%d" % n for n in range(first, last)]
        if [message.value for message in messages_of(found)] != expected:
            raise ViolationError(f"{name} gave other bodies than were written: {header}")


def _check_reader(world: World, name: str) -> None:
    cursor = world.readers[name]
    world.ledger.check_reader(
        name,
        start=world.starts[name],
        cursor=cursor.cursor,
        readable=world.readable(),
        expired=None if world.scenario.truncates else cursor.expired,
    )


def settle(world: World) -> None:
    """The log goes on, and every reader comes to its end without missing anything."""
    world.settle()
    world.ledger.check_outcomes()
    if world.store.disabled:
        return
    appender(1, first=99)(world, "wlast")
    world.ledger.check_orphans(world.store.slots())
    reader(0)(world, "rlast")
    for name, cursor in world.readers.items():
        try:
            _carried_out(world, name, BOUND_MS, lambda _: cursor.release())  # noqa: B023
            _carried_out(world, name, BOUND_MS, cursor.check_tail)
            cursor.at_tail = False
            while not cursor.at_tail:
                _gave(world, name, _carried_out(world, name, BOUND_MS, cursor.read))
        except HQueueError as exc:
            raise ViolationError(f"{name} could not read to the end: {exc}") from exc
        _check_reader(world, name)
        if (cursor.cursor, cursor.ordinal) != world.ledger.end():
            raise ViolationError(f"{name} ends elsewhere than the log: {cursor.next_slot}")
    _check_history(world)


def _check_history(world: World) -> None:
    """A search from the first header on meets every header, and only those."""
    chain = world.ledger.chain()
    if any(entry.deleted for entry in chain):
        return
    history = History(PARTITION)
    end = LogPosition(*world.ledger.end())

    def find(nonce: bytes) -> SeenBatch | None:
        return _carried_out(
            world, "search", BOUND_MS, lambda deadline: history.find(nonce, 0, end, deadline)
        )

    if find(nonce_of("none", 0)) is not None or history.end != end:
        raise ViolationError(f"a search ended at {history.end}")
    for entry in chain:
        found = find(entry.nonce)
        if found is None or (found.base, found.count) != (entry.base, entry.count):
            raise ViolationError(f"a search found {found} as {entry}")
