"""What is asked of a queue to read it, in steps: whichever driver carries them out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from hqueue.consume.fetcher import Fetch
from hqueue.consume.follow import follow
from hqueue.consume.polling import appended_since, fetch, poll
from hqueue.consume.scan import Scan
from hqueue.consume.topic_lags import topic_lags
from hqueue.log import PartitionCursor
from hqueue.log.context import QueueContext
from hqueue.log.expiry import PartitionExpiry, expiry_of
from hqueue.log.headers import headers_of
from hqueue.log.lag import PartitionLag, lag_at
from hqueue.log.offsets import PartitionOffsets, count_before, id_at, offsets_of
from hqueue.log.ranges import OwnedRange, RangeVerifier
from hqueue.log.skipping import SkipDecisions
from hqueue.log.steps import Work, operation
from hqueue.log.topic_lag import TopicLag
from hqueue.log.verify import Finding, PartitionVerification, PartitionVerifier
from hqueue.message_id import MessageID, check_message_id
from hqueue.metadata.managers import RangesOf
from hqueue.position import Position
from hqueue.runtime.clock import Deadline
from hqueue.runtime.steps import Give, Pause, until_given
from hqueue.settings.kinds import check_kind, check_mapping, listed
from hqueue.settings.numbers import check_whole
from hqueue.settings.reserved import is_unreserved

__all__ = ["QueueReading"]

NAMES_AT_ONCE = 5_000
"""After so many topics of headers others have turns in a loop: they take two milliseconds."""


class QueueReading:
    """Reading of a queue. Each operation of what is asked for has an operation's bound, where no
    other is given.

    Args:
        context: the queue.
        decisions: which batches readers skip where they can't read them.
    """

    def __init__(self, context: QueueContext, decisions: SkipDecisions) -> None:
        self.clock = context.clock
        self.deadline = context.deadline
        self._context = context
        self._decisions = decisions

    def cursor(
        self, partition: int, scan: Scan, bytes_max: int, ordinal: int | None = None
    ) -> PartitionCursor:
        """Like `Queue.reader`; `ordinal` as `PartitionCursor` takes it."""
        self._context.check_open()
        partition = self._context.check_partition(partition)
        check_kind(scan, Scan, "scan")
        return PartitionCursor(
            partition,
            start=scan.start,
            stop=scan.stop,
            topics=frozenset(scan.topics) if scan.topics else None,
            clock=self.clock,
            bytes_max=bytes_max,
            ordinal=ordinal,
            owner_epoch=scan.owner_epoch,
            decisions=self._decisions,
        )

    def poll(
        self,
        cursors: Sequence[PartitionCursor],
        bytes_max: int,
        rows_max: int,
        deadline: Callable[[], Deadline] | None,
    ) -> Work[None]:
        """Like `Queue.poll`."""
        return poll(cursors, deadline or self.deadline, bytes_max, rows_max)

    def fetch(
        self,
        fetches: Sequence[Fetch[PartitionCursor]],
        bytes_max: int,
        deadline: Callable[[], Deadline] | None,
    ) -> Work[None]:
        """Like `fetch_once`."""
        return fetch(fetches, deadline or self.deadline, bytes_max)

    def follow(
        self,
        cursors: Sequence[PartitionCursor],
        bytes_max: int,
        *,
        idle_ms_max: int | None,
        closed: Callable[[], bool],
    ) -> Work[None]:
        """Gives batches as they come.

        Args:
            cursors: in different partitions.
            bytes_max: the bodies asked for in one request, about; at least one batch.
            idle_ms_max: end after this long without a batch; None for never.
            closed: whether to end.

        Raises:
            As `Scanner.next`.
        """
        return follow(
            cursors,
            self.deadline,
            idle_ms_max=idle_ms_max,
            closed=closed,
            bytes_max=bytes_max,
        )

    def offsets(self, partitions: Sequence[int] | None) -> Work[list[PartitionOffsets]]:
        """Like `Queue.offsets`."""
        offsets = []
        for partition in self._context.chosen(partitions):
            offsets.append((yield from operation(self.deadline, partial(offsets_of, partition))))
        return offsets

    def lag(self, positions: Mapping[int, MessageID]) -> Work[dict[int, PartitionLag]]:
        """Like `Queue.lag`."""
        clock = self.clock
        found = {
            self._context.check_partition(partition): check_message_id(position, "positions")
            for partition, position in check_mapping(positions, "positions").items()
        }
        lags = {}
        for partition, position in found.items():
            look = partial(lag_at, partition, int(position), clock)
            lags[partition] = yield from operation(self.deadline, look)
        return lags

    def count_before(self, partition: int, message_id: MessageID) -> Work[int]:
        """Like `Queue.count_before`."""
        partition = self._context.check_partition(partition)
        check_message_id(message_id, "message_id")
        return operation(self.deadline, partial(count_before, partition, message_id))

    def id_at(self, partition: int, ordinal: int) -> Work[MessageID]:
        """Like `Queue.id_at`."""
        partition = self._context.check_partition(partition)
        ordinal = check_whole(ordinal, 0, option="ordinal")
        return operation(self.deadline, partial(id_at, partition, ordinal))

    def expiry(self, partition: int, guess: MessageID, exact_ms: int) -> Work[PartitionExpiry]:
        """Like `Queue.expiry`."""
        partition = self._context.check_partition(partition)
        near = int(check_message_id(guess, "guess"))
        exact_ms = check_whole(exact_ms, 1, option="exact_ms")
        return operation(self.deadline, partial(expiry_of, partition, near, exact_ms))

    def appended_since(self, offsets: Sequence[PartitionOffsets]) -> Work[list[int]]:
        """Like `Queue.appended_since`."""
        offsets = [
            check_kind(each, PartitionOffsets, "offsets") for each in listed(offsets, "offsets")
        ]
        return appended_since(offsets, self.deadline)

    def headers(self, partition: int, start: Position, stop: Position | None) -> Work[None]:
        """Like `Queue.headers`."""
        partition = self._context.check_partition(partition)
        scan = Scan(start, stop)
        return headers_of(partition, scan.start, scan.stop, self.deadline)

    def topics(
        self, start: Position, topics_max: int, is_wanted: Callable[[str], bool] = is_unreserved
    ) -> Work[list[str]]:
        """Like `Queue.topics`, for topics for which `is_wanted` returns true."""
        topics_max = check_whole(topics_max, 1, 1_000_000, option="topics_max")
        found: set[str] = set()
        left = NAMES_AT_ONCE
        for partition in range(self._context.partitions):
            headers = self.headers(partition, start, None)
            while (given := (yield from until_given(headers))) is not None:
                found.update(t.topic for t in given.item.topics if is_wanted(t.topic))
                if len(found) >= topics_max:
                    headers.close()
                    return sorted(found)[:topics_max]
                left -= 1 + len(given.item.topics)
                if left <= 0:
                    left = NAMES_AT_ONCE
                    yield Pause(0)
        return sorted(found)

    def topic_lags(
        self,
        topic: str,
        ranges_of: RangesOf,
        positions: Mapping[str, MessageID],
    ) -> Work[dict[str, TopicLag]]:
        """Like `Queue.topic_lags`; `ranges_of` asks where the topic lies."""
        return topic_lags(topic, ranges_of, positions, self.deadline, self.clock)

    def verify(
        self,
        partitions: Sequence[int] | None,
        now_ms: Callable[[Deadline], Work[int]],
        ranges: Mapping[str, Sequence[OwnedRange]] | None,
        moved: Callable[[str], Work[bool]],
    ) -> Work[None]:
        """Like `Queue.verify`; `now_ms` tells the time by the store's clock, and `moved` is as
        `PartitionVerifier` takes it.
        """
        if ranges is not None:
            for each in check_mapping(ranges, "ranges").values():
                listed(each, "ranges")
        ttl_seconds = (yield from self._context.describe.steps()).ttl_seconds
        for partition in self._context.chosen(partitions):
            verifier = PartitionVerifier(
                partition,
                self.deadline,
                ttl_ms=None if ttl_seconds is None else ttl_seconds * 1_000,
                now_ms=now_ms,
                ranges=None if ranges is None else RangeVerifier(partition, ranges),
                moved=moved,
                decisions=self._decisions,
            )
            yield from verifier.run()
        yield from self._nowhere(ranges or {}, moved)

    def _nowhere(
        self, ranges: Mapping[str, Sequence[OwnedRange]], moved: Callable[[str], Work[bool]]
    ) -> Work[None]:
        """Ranges in partitions that the queue has not."""
        count = self._context.partitions
        found: dict[int, PartitionVerification] = {}
        for topic, each in ranges.items():
            for partition in {one.partition for one in each if one.partition >= count}:
                if not (yield from moved(topic)):
                    verification = found.setdefault(partition, PartitionVerification(partition))
                    problem = f"topic {topic!r}: a range lies in a partition that does not exist"
                    verification.findings.append(Finding(partition, "", problem))
        for verification in found.values():
            yield Give(verification)
