"""Takes over a topic: closes its open range in the log, and opens one in a partition of this hub.

1. The hub was elected as the topic's owner. It has read the topic's ranges, perhaps before the
   election: its later write is refused if others have changed them since.
2. If the last range is open, the hub appends a control record to the range's partition. No earlier
   owner of the topic can write to the range any more, and the range ends at that record.
3. The hub writes the ranges by compare-and-set: the last one closed, and a new one open, in a
   partition whose end it knew before. From then on the topic's messages may be appended there.

A hub that dies between these steps leaves an open range, which the next owner closes in the same
way. Of two hubs that do this at once, one wins the compare-and-set; the other begins again with a
higher epoch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from hqueue import HQueueError, MessageID, Outcome, StoreUnavailableError
from hqueue.errors import BadVersionError, NoTopicPersistenceInfoError
from hqueue.message_id import id_of
from hqueue.metadata.managers import (
    LogRange,
    TopicPersistenceInfo,
    TopicPersistenceManager,
    Verdict,
    Versioned,
)
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock, Deadline
from hqueue.runtime.logs import Log
from hqueue_workers.hub.writing.committers import Committers
from hqueue_workers.hub.writing.owned_topic import OwnedTopic

__all__ = ["TakeOver", "ranges_after"]

logger = Log(__name__)


def ranges_after(
    ranges: Sequence[LogRange], opened: LogRange, closed_at: int | None, oldest: int
) -> tuple[LogRange, ...]:
    """A topic's ranges, with another one open.

    Args:
        ranges: those that were read.
        opened: the new one.
        closed_at: the ID of the record that closes the last of them; None if none was open.
        oldest: ranges that end before this ID have no messages any more.
    """
    kept = [each for each in ranges if each.last is None or each.last >= oldest]
    if kept and kept[-1].last is None:
        assert closed_at is not None
        kept.append(dataclasses.replace(kept.pop(), last=MessageID.from_int(closed_at)))
    return (*kept, opened)


class TakeOver:
    """Takes topics over. Thread-safe.

    Args:
        persistence: the topics' ranges.
        committers: writes control records.
        ttl_ms: how long messages were kept when the hub began; None for ever.
        expired_ms: up to when messages were written that have expired, as
            `hqueue.engine.OpenLog.expired_ms` gives it.
        bound_ms: of one take-over.
        clock: where time comes from.
    """

    def __init__(
        self,
        persistence: TopicPersistenceManager,
        committers: Committers,
        *,
        ttl_ms: int | None,
        expired_ms: Callable[[], int | None],
        bound_ms: float,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._persistence = persistence
        self._committers = committers
        self._ttl_ms = ttl_ms
        self._expired_ms = expired_ms
        self._bound_ms = bound_ms
        self._clock = clock

    def open(
        self,
        topic: str,
        verdict: Verdict,
        partition: int,
        known: Versioned[TopicPersistenceInfo] | None = None,
    ) -> OwnedTopic | None:
        """Open a range of a topic in a partition, and fence earlier owners from the range before.
        Returns None if another hub was faster, or if the outcome is unknown: before another try,
        the caller must check whether this hub is still the owner.

        Args:
            topic: the topic.
            verdict: the result of the election that this hub won.
            partition: the partition for the topic's messages.
            known: the topic's record, as it was read before the election; it is read if None.

        Raises:
            NoTopicPersistenceInfoError: there is no such topic: it was deleted meanwhile.
            StoreUnavailableError: the stores are not available now. Nothing is lost: the next owner
                closes the open range.
        """
        deadline = Deadline(self._clock, self._bound_ms)
        wait_s = self._bound_ms / 1e3
        reading = self._persistence.read_topic_persistence_info
        found = reading(topic).result(wait_s) if known is None else known
        if found is None:
            raise NoTopicPersistenceInfoError("there is no such topic", topic=topic)
        ranges = found.value.ranges
        epoch = ranges[-1].epoch + 1 if ranges else 0
        committer = self._committers.of(partition)
        tail = committer.open().result(deadline.remaining_ms / 1e3)
        now_ms = self._clock.monotonic_ms()
        owned = OwnedTopic(topic, partition, epoch, verdict, now_ms, found.value.acl)
        # From here on what closes the new range is not missed, however soon it comes.
        committer.register(owned)
        closed_at = None
        if ranges and ranges[-1].last is None:
            before = self._committers.of(ranges[-1].partition)
            closed = before.close_range(topic, epoch, int(ranges[-1].first))
            closed_at = closed.result(deadline.remaining_ms / 1e3)
        owned.first = self._first(ranges, closed_at, tail)
        owned.known_from = owned.first if ranges else 0
        opened = LogRange(partition, MessageID.from_int(owned.first), None, epoch, marked=True)
        wanted = TopicPersistenceInfo(
            ranges_after(ranges, opened, closed_at, self._oldest(ranges)), owned.acl
        )
        try:
            self._persistence.write_topic_persistence_info(topic, wanted, found.version).result(
                wait_s
            )
        except (BadVersionError, NoTopicPersistenceInfoError):
            committer.drop(owned)
            return None
        except StoreUnavailableError as exc:
            committer.drop(owned)
            if exc.outcome is Outcome.UNKNOWN:
                # If it was written, the range is open, and is closed by the next try.
                logger.info("the outcome of taking over topic %r is unknown: %s", topic, exc)
                return None
            raise
        owned.ranges = wanted.ranges
        return None if owned.fenced else owned

    @staticmethod
    def _first(ranges: Sequence[LogRange], closed_at: int | None, tail: int) -> int:
        """Where the new range begins: above all that came before."""
        if not ranges:
            return tail
        ended = ranges[-1].last if closed_at is None else closed_at
        assert ended is not None
        return int(ended) + 1

    def _oldest(self, ranges: Sequence[LogRange]) -> int:
        """Ranges that end before this ID have no messages any more. Those that are kept for longer
        than that do no harm.

        This machine's clock only says when it is worth to ask: what it says may be wrong, and so
        may the TTL be that was known at the start.
        """
        if self._ttl_ms is None:
            return 0
        guess = id_of(max(0, self._clock.wall_ms() - 2 * self._ttl_ms))
        if not any(each.last is not None and each.last < guess for each in ranges):
            return 0
        try:
            expired_ms = self._expired_ms()
        except HQueueError as exc:
            logger.info("can't find out which ranges of a topic have expired: %s", exc)
            return 0
        return 0 if expired_ms is None else id_of(max(0, expired_ms - self._ttl_ms))
