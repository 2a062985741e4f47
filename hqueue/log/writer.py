"""Appending to a partition, and collecting its old headers."""

from __future__ import annotations

import dataclasses
import os
from itertools import pairwise

from hqueue.errors import HQueueError, Outcome, StoreUnavailableError
from hqueue.format.header import NONCE_BYTES, Bodies
from hqueue.log.attempt import Appended, Attempt, check_same
from hqueue.log.history import History
from hqueue.log.ports import Row
from hqueue.log.steps import DeleteHeaders, HeaderAt, Headers, Work
from hqueue.log.tail import LogPosition, TailCache
from hqueue.message_id import timestamp_of
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock, Deadline
from hqueue.runtime.logs import Log
from hqueue.settings.limits import HEADER_GRACE_MS

__all__ = ["PartitionWriter"]

logger = Log(__name__)

COLLECTED_HEADERS_MAX = 1_000


class PartitionWriter:
    """Appends to one partition. Any number of them, anywhere, may write at once.

    Not thread-safe, except that `collect` may run beside an append.

    Args:
        partition: the partition.
        clock: where time comes from.
        skew_ms_max: how far in the future the log's end may lie before that is worth a warning.
    """

    def __init__(
        self,
        partition: int,
        clock: Clock = SYSTEM_CLOCK,
        skew_ms_max: int = 5_000,
    ) -> None:
        self.partition = partition
        self._clock = clock
        self._skew_ms_max = skew_ms_max
        self._tail = TailCache(partition, clock)
        self._history = History(partition)
        self._warned = False
        self._in_doubt = False
        """Whether a put of the append under way may have been applied, or may be yet."""
        self._collected_from = self._collected_to = 0
        """Where the oldest header lay before the last collection, and after it."""

    def append(
        self, bodies: Bodies, deadline: Deadline, nonce: bytes | None = None
    ) -> Work[Appended]:
        """Append a batch at the end of the log: exactly once, or with an error.

        When this returns, the batch is durable, and every reader will see it.

        Raises:
            StoreUnavailableError: the store stayed away until the deadline. The outcome is
                not applied unless a put was sent whose fate could not be learned.
            QueueStateError, RequestRefusedError: the store will not take it.
            CorruptLogError: the end of the log can't be read.
        """
        return self._append(bodies, deadline, nonce or os.urandom(NONCE_BYTES))

    def append_once(
        self, bodies: Bodies, deadline: Deadline, nonce: bytes, since: int | None = None
    ) -> Work[Appended]:
        """Append a batch, unless one with this nonce is in the log already.

        Every header from `since` to the slot that is won has been seen, and no batch can lie
        between: so the same nonce is never appended twice, by any writer, however late.
        Which headers were seen is remembered: another append walks those only that are new.

        Args:
            bodies: the batch.
            deadline: the bound.
            nonce: identifies the batch.
            since: an ID: the batch can't have been appended before it. If None, all headers that
                are kept are searched.

        Raises:
            IdempotencyKeyReusedError: the batch with this nonce has other messages.
            IdempotencyKeyTooOldError: headers after `since` were deleted: nothing can be said.
            and as `append`.
        """
        return self._append(bodies, deadline, nonce, is_searched=True, since=since)

    def _append(
        self,
        bodies: Bodies,
        deadline: Deadline,
        nonce: bytes,
        *,
        is_searched: bool = False,
        since: int | None = None,
    ) -> Work[Appended]:
        """Try for one slot after another."""
        self._in_doubt = contended = False
        try:
            while True:
                end = self._tail.known() or (yield from self._tail.fresh(deadline))
                if is_searched:
                    seen = yield from self._history.find(nonce, since, end, deadline)
                    if seen is not None:
                        check_same(bodies, seen.count, seen.fingerprint)
                        return Appended(seen.base, seen.count, seen.base + bodies.span)
                    # The walk may have taken long. What it knows counts while it is the tail.
                    end = self._history.end
                    if (yield from self._tail.trusted(deadline)) != end:
                        self._tail.invalidate()
                        self._check_deadline(deadline)
                        continue
                attempt = self._attempt(end, bodies, nonce)
                try:
                    appended = yield from deadline.insist(attempt.once)
                finally:
                    self._in_doubt = self._in_doubt or attempt.in_doubt
                if appended is not None:
                    self._history.note(end, nonce, appended.base, bodies)
                    return dataclasses.replace(appended, contended=True) if contended else appended
                contended = True
                self._check_deadline(deadline)
        except HQueueError as exc:
            exc.outcome = Outcome.UNKNOWN if self._in_doubt else Outcome.NOT_APPLIED
            raise

    def _attempt(self, position: LogPosition, bodies: Bodies, nonce: bytes) -> Attempt:
        now_ms = self._clock.wall_ms()
        ahead_ms = timestamp_of(position.slot) - now_ms
        if ahead_ms > self._skew_ms_max and not self._warned:
            self._warn_of_future(ahead_ms)
        return Attempt(
            partition=self.partition,
            clock=self._clock,
            tail=self._tail,
            position=position,
            bodies=bodies,
            nonce=nonce,
            now_ms=now_ms,
        )

    def _check_deadline(self, deadline: Deadline) -> None:
        if deadline.expired:
            raise StoreUnavailableError(
                "other writers took every slot until the deadline",
                outcome=Outcome.NOT_APPLIED,
                partition=self.partition,
            )

    def _warn_of_future(self, ahead_ms: int) -> None:
        self._warned = True
        logger.warning(
            "partition %d ends %d ms in the future: a writer's clock was ahead. New messages get "
            "IDs from there on until the clocks have caught up.",
            self.partition,
            ahead_ms,
        )

    def collect(self, expired_ms: int) -> Work[int]:
        """Delete headers whose bodies expired long ago, 1,000 at most; returns how many.

        The oldest go first, and never the newest header of the partition. One try: whatever
        fails is left for the next time.

        Args:
            expired_ms: bodies that were written up to this moment have expired: by a clock that is
                good, and by the queue's TTL now.
        """
        rows: list[Row] = yield Headers(
            self.partition, self._collected_from, COLLECTED_HEADERS_MAX + 1
        )
        # Headers that come back are one piece up to the first that stayed: a snapshot was restored.
        came_back = bool(rows) and rows[0].slot < self._collected_to
        if came_back or (self._collected_to and (yield HeaderAt(self.partition, 0)) is not None):
            self._collected_from = self._collected_to = 0  # Or the log was truncated.
            return 0
        horizon = expired_ms - HEADER_GRACE_MS
        # A row's end is the slot of the row after it: the whole batch is older than the horizon.
        old = [row.slot for row, after in pairwise(rows) if timestamp_of(after.slot) < horizon]
        if old:
            # Were it done after a truncation, there might be others in these slots.
            yield DeleteHeaders(self.partition, old, expired_ms)
        if rows:
            self._collected_from = self._collected_to
            self._collected_to = rows[len(old)].slot
        return len(old)
