"""Appending to a partition, and collecting its old headers."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import secrets
from collections.abc import Iterator
from itertools import pairwise

from hqueue import rowkey
from hqueue.batch import NONCE_BYTES, Bodies, Header, decode_header, encode_header
from hqueue.clock import SYSTEM_CLOCK, Clock, Deadline
from hqueue.errors import (
    CorruptLogError,
    HQueueError,
    Outcome,
    RequestRefusedError,
    StoreUnavailableError,
)
from hqueue.limits import HEADER_GRACE_MS, MESSAGE_ID_MAX, SEQUENCE_BITS, TAIL_TRUST_MS
from hqueue.ports import AppendPort

__all__ = ["Appended", "PartitionWriter", "Place"]

logger = logging.getLogger(__name__)

COLLECTED_HEADERS_MAX = 1_000
TAIL_READS_MAX = 3
WALKED_HEADERS = 500


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """The end of the chain as far as a writer knows it: where the next batch goes."""

    slot: int
    ordinal: int


@dataclasses.dataclass(frozen=True, slots=True)
class Appended:
    """A batch that is in the log: the IDs ``[base, base + count)``, and what comes after it."""

    base: int
    count: int
    next: Place
    contended: bool = False
    """Whether another writer took a slot that this append wanted."""


class PartitionWriter:
    """Appends to one partition. Any number of them, anywhere, may write at once.

    Not thread-safe, except that `collect` may run beside an append.

    Args:
        partition: the partition.
        port: the store.
        clock: where time comes from.
        skew_ms_max: how far in the future the log's end may lie before that is worth a warning.
    """

    def __init__(
        self,
        partition: int,
        port: AppendPort,
        clock: Clock = SYSTEM_CLOCK,
        skew_ms_max: int = 5_000,
    ) -> None:
        self.partition = partition
        self._port = port
        self._clock = clock
        self._skew_ms_max = skew_ms_max
        self._tail: Place | None = None
        self._tail_seen_ms = 0.0
        self._warned = False
        self._doubtful = False
        """Whether a put of the append under way may have been applied, or may be yet."""
        self._collected_to = 0

    def append(self, bodies: Bodies, deadline: Deadline, nonce: bytes | None = None) -> Appended:
        """Append a batch at the end of the log: exactly once, or with an error.

        When this returns, the batch is durable, and every reader will see it.

        Raises:
            StoreUnavailableError: the store stayed away until the deadline. The outcome is
                not applied unless a put was sent whose fate could not be learned.
            QueueStateError, RequestRefusedError: the store will not take it.
            CorruptLogError: the end of the log can't be read.
        """
        nonce = nonce or secrets.token_bytes(NONCE_BYTES)
        contended = False
        with self._with_outcome():
            while True:
                appended = self._put(self._trusted_tail(deadline), bodies, nonce, deadline)
                if appended is not None:
                    return dataclasses.replace(appended, contended=contended)
                contended = True
                self._check_deadline(deadline)

    def append_once(
        self, bodies: Bodies, deadline: Deadline, nonce: bytes, after: Place
    ) -> Appended:
        """Append a batch unless one with this nonce follows `after` already.

        Every header from `after` to the slot that is won has been seen, and no batch can lie
        between: so the same nonce is never appended twice, whoever tries, and however late.

        Raises:
            CorruptLogError: the log does not go on at `after` (it was truncated, or that part
                was collected), so nothing can be said.
            and as `append`.
        """
        place = after
        with self._with_outcome():
            while True:
                for header in self.walk(place, deadline):
                    place = Place(header.end, header.next_ordinal)
                    if header.nonce == nonce:
                        return Appended(header.base, header.count, place)
                # The walk may have taken long. What it knows counts while it is the tail.
                if self._fresh_tail(deadline) == place:
                    appended = self._put(place, bodies, nonce, deadline)
                    if appended is not None:
                        return appended
                self._check_deadline(deadline)

    def walk(self, place: Place, deadline: Deadline) -> Iterator[Header]:
        """Every header from `place` to the end of the log, in order.

        Raises:
            CorruptLogError: the chain does not go on at `place`.
        """
        while True:
            for attempt in deadline.retrying():
                with attempt:
                    rows = self._port.headers(self.partition, place.slot, WALKED_HEADERS)
                    if not rows and not self._ends_at(place):
                        raise CorruptLogError(
                            "the log does not come up to here",
                            row=rowkey.encode(self.partition, place.slot).hex(),
                        )
            for row in rows:
                header = decode_header(row.key, row.header or b"")
                if row.slot != place.slot or header.ordinal != place.ordinal:
                    raise CorruptLogError("the log does not go on here", row=row.key.hex())
                yield header
                place = Place(header.end, header.next_ordinal)
            if len(rows) < WALKED_HEADERS:
                return

    def _ends_at(self, place: Place) -> bool:
        """Whether the batch before a place ends there: it does, unless the log was truncated."""
        if place.slot == 0:
            return place.ordinal == 0
        before = self._port.newest(self.partition, place.slot - 1)
        if before is None:
            return False
        header = decode_header(before.key, before.header or b"")
        return Place(header.end, header.next_ordinal) == place

    def tail(self, deadline: Deadline) -> Place:
        """Read where the log ends."""
        seen_ms = self._clock.monotonic_ms()
        for attempt in deadline.retrying():
            with attempt:
                seen_ms = self._clock.monotonic_ms()
                row = self._port.newest(self.partition, MESSAGE_ID_MAX)
        if row is None:
            place = Place(0, 0)
        else:
            header = decode_header(row.key, row.header or b"")
            place = Place(header.end, header.next_ordinal)
        self._know(place, seen_ms)
        return place

    def forget_tail(self) -> None:
        """Read the tail again before the next append."""
        self._tail = None

    def _trusted_tail(self, deadline: Deadline) -> Place:
        # Older knowledge could be of a log that was truncated, or whose end was collected.
        if self._tail is not None and self._is_fresh():
            return self._tail
        return self._fresh_tail(deadline)

    def _fresh_tail(self, deadline: Deadline) -> Place:
        """Read the tail; again, when the answer was so slow that it is old already.

        A store that is always so slow is written to nevertheless: `_is_linked` checks it then.
        """
        for _ in range(TAIL_READS_MAX):
            tail = self.tail(deadline)
            if self._is_fresh():
                break
            if deadline.expired:
                raise StoreUnavailableError(
                    "the end of the log was learned too late", partition=self.partition
                )
        return tail

    def _is_fresh(self) -> bool:
        return self._clock.monotonic_ms() - self._tail_seen_ms <= TAIL_TRUST_MS

    def _put(  # noqa: PLR0912  (one decision tree; tests/model takes out each of its rules)
        self, place: Place, bodies: Bodies, nonce: bytes, deadline: Deadline
    ) -> Appended | None:
        """Try for one slot until it is known whose it is; None if it is not ours."""
        now_ms, count = self._clock.wall_ms(), bodies.count
        base = max(place.slot, now_ms << SEQUENCE_BITS)
        self._warn_of_future(place.slot, now_ms)
        key = rowkey.encode(self.partition, place.slot)
        header = encode_header(
            key, bodies, base=base, ordinal=place.ordinal, nonce=nonce, published_ms=now_ms
        )
        end = Place(base + bodies.span, place.ordinal + bodies.count)
        tail_seen_ms, self._tail = self._tail_seen_ms, None
        doubtful_before, sent = self._doubtful, False
        for attempt in deadline.retrying():
            with attempt:
                asked_ms = self._clock.monotonic_ms()
                won, owner = False, None
                retried = attempt.retry_state.attempt_number > 1
                if retried and not sent and asked_ms - tail_seen_ms > TAIL_TRUST_MS:
                    return None
                if sent:
                    owner = self._owner_of(place, tail_seen_ms)
                    if owner is None and self._fresh_tail(deadline) != place:
                        # The slot was filled just now, or the log was truncated.
                        owner = self._owner_of(place, tail_seen_ms)
                        if owner is None:
                            return None
                if owner is None:
                    if sent:  # What is sent again carries the time of the first try.
                        self._check_stillness(tail_seen_ms)
                    try:
                        won = self._port.put_if_absent(
                            self.partition, place.slot, header, bodies.cells
                        )
                    except HQueueError as exc:
                        sent = sent or exc.outcome is Outcome.UNKNOWN
                        self._doubtful = doubtful_before or sent
                        raise
                    sent = self._doubtful = True
                    if not won:
                        owner = self._owner_of(place, tail_seen_ms)
                        if owner is None:
                            return None
                if owner is not None:
                    # One with our nonce need not be what we sent: another may append it, too.
                    base, count = owner.base, owner.count
                    end = Place(owner.end, owner.next_ordinal)
                    if owner.nonce != nonce:
                        self._doubtful = doubtful_before
                        # A header that was found says nothing of when it was written.
                        self._know(end, tail_seen_ms)
                        return None
                # Ours. Had the tail been trusted for too long, the slot could be one that was
                # filled once, and collected or truncated away: no reader would come by.
                if self._clock.monotonic_ms() - tail_seen_ms > TAIL_TRUST_MS:
                    linked = self._is_linked(place, end)
                    if not linked:
                        self._port.delete_row(self.partition, place.slot, bodies.cells)
                    self._check_stillness(tail_seen_ms)
                    if not linked:
                        return None
                self._know(end, asked_ms)
                return Appended(base, count, end)
        raise AssertionError("retrying ends by a return or an error")

    @contextlib.contextmanager
    def _with_outcome(self) -> Iterator[None]:
        """Let an append's errors say what became of it."""
        self._doubtful = False
        try:
            yield
        except HQueueError as exc:
            exc.outcome = Outcome.UNKNOWN if self._doubtful else Outcome.NOT_APPLIED
            raise

    def _check_deadline(self, deadline: Deadline) -> None:
        if deadline.expired:
            raise StoreUnavailableError(
                "other writers took every slot until the deadline", partition=self.partition
            )

    def _check_stillness(self, since_ms: float) -> None:
        """Let no append go on that stood still until its slot could have been collected."""
        if self._clock.monotonic_ms() - since_ms > HEADER_GRACE_MS / 2:
            raise RequestRefusedError(
                "this process stood still for too long to learn what became of the append",
                partition=self.partition,
            )

    def _owner_of(self, place: Place, since_ms: float) -> Header | None:
        """Whose batch lies at a slot. None is believed soon only: it can't be collected yet."""
        data = self._port.header(self.partition, place.slot)
        if data is None:
            self._check_stillness(since_ms)
            return None
        return decode_header(rowkey.encode(self.partition, place.slot), data)

    def _is_linked(self, place: Place, end: Place) -> bool:
        """Whether our batch at `place` is a link of the chain that readers follow."""
        before = self._port.newest(self.partition, place.slot - 1) if place.slot else None
        if before is not None:
            return decode_header(before.key, before.header or b"").end == place.slot
        after = self._port.headers(self.partition, place.slot + 1, 1)
        return not after or after[0].slot == end.slot

    def _know(self, tail: Place, seen_ms: float) -> None:
        self._tail, self._tail_seen_ms = tail, seen_ms

    def _warn_of_future(self, slot: int, now_ms: int) -> None:
        ahead_ms = (slot >> SEQUENCE_BITS) - now_ms
        if ahead_ms > self._skew_ms_max and not self._warned:
            self._warned = True
            logger.warning(
                "partition %d ends %d ms in the future: a writer's clock was ahead. New messages "
                "get IDs from there on until the time has come.",
                self.partition,
                ahead_ms,
            )

    def collect(self, ttl_ms: int) -> int:
        """Delete headers whose bodies expired long ago, 1,000 at most; returns how many.

        The oldest go first, and never the newest header of the partition. One try: whatever
        fails is left for the next time.

        Args:
            ttl_ms: the queue's TTL now. An older, shorter one would delete too much.
        """
        rows = self._port.headers(self.partition, self._collected_to, COLLECTED_HEADERS_MAX + 1)
        if self._collected_to and self._port.header(self.partition, 0) is not None:
            self._collected_to = 0  # The log was truncated, and began anew.
            return 0
        horizon = self._clock.wall_ms() - ttl_ms - HEADER_GRACE_MS
        # A row's end is the slot of the row after it: the whole batch is older than the horizon.
        old = [row.slot for row, after in pairwise(rows) if after.slot >> SEQUENCE_BITS < horizon]
        if old:
            self._port.delete_headers(self.partition, old)
        if rows:
            self._collected_to = rows[len(old)].slot
        return len(old)
