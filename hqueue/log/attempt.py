"""A batch's attempt for one slot of the chain."""

from __future__ import annotations

import dataclasses

from hqueue.errors import (
    HQueueError,
    IdempotencyKeyReusedError,
    Outcome,
    RequestRefusedError,
    StoreUnavailableError,
)
from hqueue.format import rowkey
from hqueue.format.header import Bodies, Header, decode_header, encode_header
from hqueue.log.ports import Row, header_of
from hqueue.log.steps import Backwards, DeleteRow, HeaderAt, Headers, PutIfAbsent, Work
from hqueue.log.tail import LogPosition, TailCache
from hqueue.message_id import id_of
from hqueue.runtime.clock import Clock
from hqueue.settings.limits import HEADER_GRACE_MS, TAIL_TRUST_MS

__all__ = ["Appended", "Attempt", "check_same"]

LOOKS_MAX = 5


@dataclasses.dataclass(slots=True)
class Appended:
    """A batch that is in the log: its messages have the IDs ``[base, base + count)``.

    Not frozen, as `Bodies` is not.
    """

    base: int
    count: int
    end: int
    """The first ID beyond it, and the slot of the batch after it."""
    contended: bool = False
    """Whether another writer took a slot that this append wanted."""
    slot: int | None = None
    """The slot it lies at, if this process put it there."""
    header: bytes = b""
    """The header that it lies there with."""


def check_same(bodies: Bodies, count: int, fingerprint: int) -> None:
    """Refuse a batch whose nonce belongs to another in the log.

    Raises:
        IdempotencyKeyReusedError: that has this many messages, or a fingerprint, that this one has
            not.
    """
    if (bodies.count, bodies.fingerprint) != (count, fingerprint):
        raise IdempotencyKeyReusedError(
            "the batch with this idempotency key in the log has other messages: an idempotency key "
            "stands for the same "
            "messages in the same order each time",
            count=bodies.count,
            count_before=count,
        )


class Attempt:
    """One conditional put at one slot, in as many tries as it takes to learn whose the slot is.

    Args:
        partition: the partition.
        clock: where time comes from.
        tail: what the writer knows of the log's end. It is forgotten until the attempt is decided.
        position: the slot, which is where the log ends by that knowledge.
        bodies: the batch.
        nonce: what tells this batch from another at the same slot.
        now_ms: the time of the batch.
        floor: its first ID is not below this one.
    """

    __slots__ = (
        "_asked_ms",
        "_base",
        "_bodies",
        "_clock",
        "_count",
        "_end",
        "_header",
        "_key",
        "_nonce",
        "_partition",
        "_position",
        "_sent",
        "_shorter",
        "_tail",
        "_tail_seen_ms",
        "_tried",
        "in_doubt",
    )

    def __init__(
        self,
        *,
        partition: int,
        clock: Clock,
        tail: TailCache,
        position: LogPosition,
        bodies: Bodies,
        nonce: bytes,
        now_ms: int,
        floor: int = 0,
    ) -> None:
        self._partition, self._clock, self._tail = partition, clock, tail
        self._position, self._bodies, self._nonce = position, bodies, nonce
        self._base = base = max(position.slot, id_of(now_ms), floor)
        self._count = count = bodies.count
        self._end = LogPosition(base + bodies.span, position.ordinal + count)
        self._key = rowkey.encode(partition, position.slot)
        self._header = encode_header(
            self._key,
            bodies,
            base=base,
            ordinal=position.ordinal,
            nonce=nonce,
            published_ms=now_ms,
        )
        self._tail_seen_ms = tail.seen_ms
        tail.invalidate()
        self._tried = self._sent = False
        self._shorter = 0
        self.in_doubt = False
        """Whether a put of this attempt may have been applied, or may be yet."""

    def once(self) -> Work[Appended | None]:
        """One try: the batch is in; or it is not, and never will be (None).

        Raises:
            StoreUnavailableError: neither is known yet. Try again.
        """
        self._asked_ms = self._clock.monotonic_ms()
        owner = None
        if self._sent:
            owner, is_free = yield from self._look()
            if owner is None and not is_free:
                return None
        elif self._tried and self._is_late():
            return None
        if owner is None:
            self._tried = True
            try:
                won: bool = yield PutIfAbsent(
                    self._partition, self._position.slot, self._header, self._bodies.cells
                )
            except HQueueError as exc:
                self._note_failure(exc)
                raise
            except BaseException:  # It is cut off, as by cancelling: nobody learns the answer.
                self._sent = self.in_doubt = True
                raise
            self._sent = self.in_doubt = True
            if not won:
                owner = yield from self._owner()
        if owner is not None and not self._is_own(owner):
            return None
        # Our batch lies at the slot; but is it in the log? Had the tail been trusted for too long,
        # the slot could be one that was filled once, and collected or truncated away: no reader
        # would come by.
        if self._is_late() and not (yield from self._is_linked()):
            yield DeleteRow(self._partition, self._position.slot, self._bodies.cells)
            return None
        self._tail.update(self._end, self._asked_ms)
        slot = self._position.slot if owner is None else None
        return Appended(self._base, self._count, self._end.slot, slot=slot, header=self._header)

    def _look(self) -> Work[tuple[Header | None, bool]]:
        """Whose batch lies at the slot; and if it is empty, whether a batch can still arrive there.

        It is one request, for two could be answered by two servers, one of which lost the
        partition and knows less than the other: then the slot would seem to be passed by.
        """
        rows: list[Row] = yield Backwards(self._partition, self._position.slot, 1)
        end = LogPosition(0, 0)
        if rows:
            header = header_of(rows[0])
            if rows[0].slot == self._position.slot:
                return header, False
            end = LogPosition.after(header)
        # The slot could have been collected; and what is sent again carries the time of the
        # first try.
        self._check_stillness()
        if end == self._position:
            return None, True
        if end.slot < self._position.slot:
            self._seen_shorter()
        return None, False  # The log was truncated.

    def _seen_shorter(self) -> None:
        """The log seems to end before our position: it was truncated, or a deposed server answered.

        Such a server ends soon after it goes on, so another look is worth it.
        """
        self._shorter += 1
        if self._shorter < LOOKS_MAX:
            raise StoreUnavailableError(
                "the log seems to end before a position that it had reached",
                outcome=Outcome.NOT_APPLIED,
                partition=self._partition,
            )
        raise RequestRefusedError(
            "the log ends before a position that it had reached: it was truncated",
            partition=self._partition,
        )

    def _note_failure(self, exc: HQueueError) -> None:
        """The put failed so."""
        self._sent = self._sent or exc.outcome is Outcome.UNKNOWN
        self.in_doubt = self._sent

    def _owner(self) -> Work[Header]:
        """Whose batch lies at the slot, which is filled."""
        data: bytes | None = yield HeaderAt(self._partition, self._position.slot)
        if data is None:
            raise StoreUnavailableError(
                "a batch that is in the log can't be seen yet",
                outcome=Outcome.NOT_APPLIED,
                partition=self._partition,
            )
        return decode_header(self._key, data)

    def _is_own(self, owner: Header) -> bool:
        # One with our nonce need not be what we sent: another may append it, too.
        in_doubt, self.in_doubt = self.in_doubt, False
        self._base, self._count = owner.base, owner.count
        self._end = LogPosition.after(owner)
        if owner.nonce == self._nonce:
            check_same(self._bodies, owner.count, owner.fingerprint)
            self.in_doubt = in_doubt
            return True
        # A header that was found says nothing of when it was written.
        self._tail.update(self._end, self._tail_seen_ms)
        return False

    def _is_linked(self) -> Work[bool]:
        """Whether our batch is a link of the chain that readers follow.

        What a server says of the batches beside it counts only if it knows our batch as well.
        """
        slot = self._position.slot
        rows: list[Row] = yield Backwards(self._partition, slot, 2)
        if len(rows) < 2:
            rows = yield Headers(self._partition, slot, 2)
        if not rows or rows[0].slot != slot:
            raise StoreUnavailableError(
                "a batch that is in the log can't be seen yet",
                outcome=Outcome.NOT_APPLIED,
                partition=self._partition,
            )
        if len(rows) < 2:
            return True
        beside = rows[1]
        if beside.slot < slot:
            return header_of(beside).end == slot
        return beside.slot == self._end.slot

    def _is_late(self) -> bool:
        return self._clock.monotonic_ms() - self._tail_seen_ms > TAIL_TRUST_MS

    def _check_stillness(self) -> None:
        """Refuse to continue an append that was paused until its slot could have been collected."""
        if self._clock.monotonic_ms() - self._tail_seen_ms > HEADER_GRACE_MS / 2:
            raise RequestRefusedError(
                "the process was paused for too long to learn the outcome of the append",
                partition=self._partition,
            )
