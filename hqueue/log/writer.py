"""Appending to a partition, and collecting its old headers."""

from __future__ import annotations

import dataclasses
import logging
import os
from itertools import pairwise

from hqueue.errors import HQueueError, Outcome, StoreUnavailableError
from hqueue.format import NONCE_BYTES, Bodies
from hqueue.log.attempt import Appended, Attempt, check_same
from hqueue.log.history import History
from hqueue.log.ports import AppendPort
from hqueue.log.tail import LogPosition, TailCache
from hqueue.message_id import timestamp_of
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock, Deadline
from hqueue.settings.limits import HEADER_GRACE_MS

__all__ = ["PartitionWriter"]

logger = logging.getLogger(__name__)

COLLECTED_HEADERS_MAX = 1_000


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
        self._tail = TailCache(partition, port, clock)
        self._history = History(partition, port)
        self._warned = False
        self._in_doubt = False
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
        nonce = nonce or os.urandom(NONCE_BYTES)
        self._in_doubt = contended = False
        try:
            while True:
                appended = self._put(self._tail.trusted(deadline), bodies, nonce, deadline)
                if appended is not None:
                    return dataclasses.replace(appended, contended=True) if contended else appended
                contended = True
                self._check_deadline(deadline)
        except HQueueError as exc:
            self._tell_outcome(exc)
            raise

    def append_once(
        self, bodies: Bodies, deadline: Deadline, nonce: bytes, since: int | None = None
    ) -> Appended:
        """Append a batch, unless one with this nonce is in the log already.

        Every header from `since` to the slot that is won has been seen, and no batch can lie
        between: so the same nonce is never appended twice, whoever tries, and however late.
        Which headers were seen is remembered: another append walks those only that are new.

        Args:
            bodies: the batch.
            deadline: the bound.
            nonce: what the batch is known by.
            since: an ID: the batch can't have been appended before it. If None, all headers that
                are kept are searched.

        Raises:
            IdempotencyKeyReusedError: the batch with this nonce has other messages.
            IdempotencyKeyTooOldError: headers after `since` were collected: nothing can be said.
            and as `append`.
        """
        self._in_doubt = False
        try:
            while True:
                tail = self._tail.trusted(deadline)
                seen = self._history.find(nonce, since, tail, deadline)
                if seen is not None:
                    check_same(bodies, seen.count, seen.fingerprint)
                    return Appended(seen.base, seen.count, seen.base + bodies.span)
                # The walk may have taken long. What it knows counts while it is the tail.
                if self._tail.trusted(deadline) == self._history.end:
                    appended = self._put(self._history.end, bodies, nonce, deadline)
                    if appended is not None:
                        return appended
                else:
                    self._tail.invalidate()
                self._check_deadline(deadline)
        except HQueueError as exc:
            self._tell_outcome(exc)
            raise

    def _tell_outcome(self, exc: HQueueError) -> None:
        """Let an append's error say what became of it."""
        exc.outcome = Outcome.UNKNOWN if self._in_doubt else Outcome.NOT_APPLIED

    def _put(
        self, position: LogPosition, bodies: Bodies, nonce: bytes, deadline: Deadline
    ) -> Appended | None:
        """Try for one slot until it is known whose it is; None if it is not ours."""
        now_ms = self._clock.wall_ms()
        self._warn_of_future(position.slot, now_ms)
        attempt = Attempt(
            partition=self.partition,
            port=self._port,
            clock=self._clock,
            tail=self._tail,
            position=position,
            bodies=bodies,
            nonce=nonce,
            now_ms=now_ms,
        )
        try:
            appended = deadline.run(attempt.once)
        finally:
            self._in_doubt = self._in_doubt or attempt.in_doubt
        if appended is not None:
            self._history.note(position, nonce, appended.base, bodies)
        return appended

    def _check_deadline(self, deadline: Deadline) -> None:
        if deadline.expired:
            raise StoreUnavailableError(
                "other writers took every slot until the deadline", partition=self.partition
            )

    def _warn_of_future(self, slot: int, now_ms: int) -> None:
        ahead_ms = timestamp_of(slot) - now_ms
        if ahead_ms > self._skew_ms_max and not self._warned:
            self._warned = True
            logger.warning(
                "partition %d ends %d ms in the future: a writer's clock was ahead. New messages "
                "get IDs from there on until the time has come.",
                self.partition,
                ahead_ms,
            )

    def collect(self, expired_ms: int) -> int:
        """Delete headers whose bodies expired long ago, 1,000 at most; returns how many.

        The oldest go first, and never the newest header of the partition. One try: whatever
        fails is left for the next time.

        Args:
            expired_ms: bodies that were written up to this moment have expired: by a clock that is
                good, and by the queue's TTL now.
        """
        rows = self._port.headers(self.partition, self._collected_to, COLLECTED_HEADERS_MAX + 1)
        if self._collected_to and self._port.header(self.partition, 0) is not None:
            self._collected_to = 0  # The log was truncated, and began again.
            return 0
        horizon = expired_ms - HEADER_GRACE_MS
        # A row's end is the slot of the row after it: the whole batch is older than the horizon.
        old = [row.slot for row, after in pairwise(rows) if timestamp_of(after.slot) < horizon]
        if old:
            # Were it done after a truncation, there might be others in these slots.
            self._port.delete_headers(self.partition, old, expired_ms)
        if rows:
            self._collected_to = rows[len(old)].slot
        return len(old)
