"""Verifying a partition from its first batch to its last."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from hqueue.errors import CorruptLogError, HQueueError, RowsUnreadableError
from hqueue.format import rowkey
from hqueue.format.cells import decode_bodies, decode_headers, decode_keys, positions
from hqueue.format.compression import plain_cell
from hqueue.format.control import fences_of, owners_of
from hqueue.format.header import CONTROL, MESSAGES, Header
from hqueue.log.decoding import are_much
from hqueue.log.ports import Row, header_of
from hqueue.log.ranges import RangeVerifier, Verdict
from hqueue.log.skipping import NO_DECISIONS, SkipDecisions
from hqueue.log.steps import Get, Headers, Work, ask, operation, request
from hqueue.message_id import timestamp_of
from hqueue.runtime.clock import Deadline
from hqueue.runtime.loop import computing, is_much
from hqueue.runtime.steps import Give

__all__ = ["Finding", "PartitionVerification", "PartitionVerifier", "problems_found", "unmoved"]

HEADERS_READ = 500
BYTES_READ = 4 * 1024 * 1024
EXPIRY_MARGIN_MS = 300_000


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """A fault, and the row where it is or should be, in hexadecimal."""

    partition: int
    row: str
    problem: str


@dataclasses.dataclass(slots=True)
class PartitionVerification:
    """The result of verifying one partition."""

    partition: int
    batches: int = 0
    messages: int = 0
    bytes: int = 0
    expired: int = 0
    """How many messages have expired bodies, so that only their header could be verified."""
    control_records: int = 0
    """How many of the batches are control records, which say which topics have another owner from
    there on.
    """
    outside: int = 0
    """How many messages have the name of a topic with an owner but don't belong to it, since they
    were put into the queue directly. Counted if the topics' ranges were given.
    """
    findings: list[Finding] = dataclasses.field(default_factory=list)
    unfinished: list[Finding] = dataclasses.field(default_factory=list)
    """States that are not damage: a take-over that the topic's next owner finishes, or a topic that
    moved during the verification, so that its ranges were not judged.
    """
    skipped: list[Finding] = dataclasses.field(default_factory=list)
    """Batches that can't be read and that readers skip, since an operator added them. They no
    longer count as findings.
    """


def unmoved(topic: str) -> Work[bool]:
    """Says of each topic that it has not moved."""
    yield from ()
    return False


class PartitionVerifier:
    """Walks a partition's chain: links, ordinals, control records, and the checksums of headers and
    bodies; and compares it with the ranges of topics that have an owner, where they are given.

    A fault does not stop it: it goes on with the next row, unless a row has a key that is not a
    queue's, or the store can't read a header; that ends the verification of the partition, as a
    finding. Batches that are written meanwhile are verified, too.

    Args:
        partition: the partition.
        deadline: makes the bound of each request.
        ttl_ms: the queue's TTL: younger bodies must be there. None if they are kept for ever.
        now_ms: tells the time by the store's clock, by which bodies expire.
        ranges: topics' ranges; None if they are not compared.
        moved: whether a topic's ranges are others by now: then they are not judged.
        decisions: which batches readers skip.
    """

    def __init__(
        self,
        partition: int,
        deadline: Callable[[], Deadline],
        *,
        ttl_ms: int | None,
        now_ms: Callable[[Deadline], Work[int]],
        ranges: RangeVerifier | None = None,
        moved: Callable[[str], Work[bool]] = unmoved,
        decisions: SkipDecisions = NO_DECISIONS,
    ) -> None:
        self.result = PartitionVerification(partition)
        self._partition = partition
        self._deadline = deadline
        self._ttl_ms = ttl_ms
        self._now_ms = now_ms
        self._ranges = ranges
        self._moved = moved
        self._decisions = decisions

    def run(self) -> Work[None]:
        """Gives the same, growing result after every few hundred batches, and at the end.

        Raises:
            StoreUnavailableError: the store stayed away until a deadline.
        """
        try:
            yield from self._walk()
        except CorruptLogError as exc:
            problem = f"{exc.text}; the partition can't be read any further"
            self.result.findings.append(Finding(self._partition, str(exc.row), problem))
            yield Give(self.result)
        except RowsUnreadableError as exc:
            problem = f"{_unreadable(exc)}; the partition can't be read any further"
            self.result.findings.append(Finding(self._partition, str(exc.row), problem))
            yield Give(self.result)

    def _walk(self) -> Work[None]:
        before: Header | None = None
        start = 0
        while True:
            expected = start if before is None else before.end
            rows, is_last = yield from self._read_headers(start, expected)
            headers: list[tuple[Row, Header]] = []
            decode = partial(_decoded, rows)
            for row, header in (yield computing(decode)) if are_much(rows) else decode():
                self.result.batches += 1
                if isinstance(header, CorruptLogError):
                    self._find(row, header.text)
                    before = None
                    continue
                if before is not None:
                    self._check_link(row, header, before)
                before = header
                self.result.messages += header.count
                epochs = self._epochs(row, header)
                if self._ranges is not None:
                    self._ranges.see(row.key, header, epochs)
                headers.append((row, header))
            for group in _groups(headers):
                yield from self._check_bodies(group)
            if is_last:
                yield from self._judge_ranges()
                yield Give(self.result)
                return
            yield Give(self.result)
            start = rows[-1].slot + 1

    def _read_headers(self, start: int, expected: int) -> Work[tuple[list[Row], bool]]:
        """The next rows with their headers, and whether they are the last ones.

        If the store can't read some of them, those before.

        Raises:
            RowsUnreadableError: it can't read the first one, which should lie where it is expected.
        """
        try:
            rows: list[Row] = yield from request(
                Headers(self._partition, start, HEADERS_READ), self._deadline()
            )
            return rows, len(rows) < HEADERS_READ
        except RowsUnreadableError:
            rows = []
        while len(rows) < HEADERS_READ:
            try:
                one = yield from self._once(Headers(self._partition, start, 1))
            except RowsUnreadableError as exc:
                if rows:
                    break
                exc.facts["row"] = rowkey.encode(self._partition, expected).hex()
                raise
            if not one:
                return rows, True
            rows += one
            start = one[0].slot + 1
        return rows, False

    def _once(self, step: Headers | Get) -> Work[list[Row]]:
        """Try it once: what failed until a deadline need not be tried as long again."""
        found: list[Row] = yield from self._deadline().bound(ask(step))
        return found

    def _find(self, row: Row, problem: str) -> None:
        self.result.findings.append(Finding(self._partition, row.key.hex(), problem))

    def _epochs(self, row: Row, header: Header) -> Mapping[str, int]:
        """What a control record says of topics' owners, and a batch of those that appended it."""
        self.result.control_records += header.kind == CONTROL
        try:
            if header.kind == CONTROL:
                return fences_of(row.key, header.control)
            return owners_of(row.key, header)
        except CorruptLogError as exc:
            self._find(row, exc.text)
            return {}

    def _judge_ranges(self) -> Work[None]:
        if self._ranges is None:
            return
        self.result.outside = self._ranges.outside
        moved: dict[str, bool] = {}
        for verdict in self._ranges.verdicts():
            if verdict.topic not in moved:
                moved[verdict.topic] = yield from self._moved(verdict.topic)
                if moved[verdict.topic]:
                    self._say(verdict, "it moved during the check: check it again", damage=False)
            if not moved[verdict.topic]:
                self._say(verdict, verdict.problem, damage=verdict.damage)

    def _say(self, verdict: Verdict, problem: str, *, damage: bool) -> None:
        found = Finding(self._partition, verdict.row.hex(), f"topic {verdict.topic!r}: {problem}")
        (self.result.findings if damage else self.result.unfinished).append(found)

    def _check_link(self, row: Row, header: Header, before: Header) -> None:
        if row.slot != before.end:
            self._find(row, "it does not lie where the batch before ends: batches are missing")
        if header.ordinal != before.next_ordinal:
            missing = header.ordinal - before.next_ordinal
            what = "1 message is" if missing == 1 else f"{missing:,} messages are"
            self._find(row, f"its ordinal does not follow: {what} missing")

    def _check_bodies(
        self, group: Sequence[tuple[Row, Header]], *, again: bool = False
    ) -> Work[None]:
        places = [(row.partition, row.slot) for row, _ in group]
        get = Get(places, None)
        try:
            reading = self._once(get) if again else request(get, self._deadline())
            found: list[Row] = yield from reading
        except (CorruptLogError, RowsUnreadableError) as exc:
            is_unreadable = isinstance(exc, RowsUnreadableError)
            if len(group) == 1:
                self._find(group[0][0], _unreadable(exc) if is_unreadable else exc.text)
            else:
                for one in group:
                    yield from self._check_bodies([one], again=is_unreadable)
            return
        bodies = {row.slot: row for row in found}
        for row, header in group:
            cells = bodies[row.slot].cells if row.slot in bodies else {}
            if header.kind != MESSAGES:
                if cells:
                    self._find(row, "it is a control record, and has messages")
                continue
            if cells:
                self.result.bytes += sum(map(len, cells.values()))
                yield from self._check_cells(row, header, cells)
            else:
                self.result.expired += header.count
                now_ms: int = yield from operation(self._deadline, self._now_ms)
                age_ms = now_ms - timestamp_of(header.base)
                if self._ttl_ms is None or age_ms < self._ttl_ms - EXPIRY_MARGIN_MS:
                    self._find(row, "its bodies are missing, and can't have expired")

    def _check_cells(self, row: Row, header: Header, cells: Mapping[str, bytes]) -> Work[None]:
        problems = yield from problems_found(row, header, cells)
        if problems:
            deadline = self._deadline()
            decided = deadline.insist(lambda: self._decisions.is_skipped(row.key, header))
            if (yield from deadline.bound(decided)):
                found = (Finding(self._partition, row.key.hex(), each) for each in problems)
                self.result.skipped += found
                return
        for problem in problems:
            self._find(row, problem)


def _unreadable(error: HQueueError) -> str:
    return f"the store can't read it: {error.facts.get('answer')}"


def problems_found(row: Row, header: Header, cells: Mapping[str, bytes]) -> Work[list[str]]:
    """What is wrong with the cells of a batch of messages; nothing if all of it can be read."""
    look = partial(_problems, row, header, cells)
    if is_much(header.count, lambda: sum(map(len, cells.values()))):
        problems: list[str] = yield computing(look)
        return problems
    return look()


def _decoded(rows: Sequence[Row]) -> list[tuple[Row, Header | CorruptLogError]]:
    """These rows with their headers, or with the errors of those that can't be read."""
    found: list[tuple[Row, Header | CorruptLogError]] = []
    for row in rows:
        try:
            found.append((row, header_of(row)))
        except CorruptLogError as exc:
            found.append((row, exc))
    return found


def _problems(row: Row, header: Header, cells: Mapping[str, bytes]) -> list[str]:
    if set(cells) != {entry.topic for entry in header.topics}:
        return ["its topics differ from those in its header"]
    places: list[int] = []
    problems: list[str] = []
    for entry in header.topics:
        try:
            cell = plain_cell(row.key, header, entry, cells[entry.topic])
            decode_bodies(entry, cell)
            decode_keys(entry, cell)
            decode_headers(entry, cell)
            places.extend(positions(header, entry, cell))
        except CorruptLogError as exc:
            problems.append(exc.text)
    if not problems and sorted(places) != list(range(header.count)):
        return ["the positions of its topics' messages do not fill it"]
    return problems


def _groups(headers: Sequence[tuple[Row, Header]]) -> Iterator[list[tuple[Row, Header]]]:
    """Batches whose bodies are read in one request, some megabytes each time."""
    group: list[tuple[Row, Header]] = []
    room = BYTES_READ
    for row, header in headers:
        size = sum(entry.size for entry in header.topics)
        if group and size > room:
            yield group
            group, room = [], BYTES_READ
        group.append((row, header))
        room -= size
    if group:
        yield group
