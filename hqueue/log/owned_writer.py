"""Appending the messages of topics that have an owner, so that a deposed one is fenced."""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Callable, Mapping
from functools import partial

from hqueue.errors import (
    CorruptLogError,
    HQueueError,
    Outcome,
    OwnershipLostError,
    RequestRefusedError,
    StoreUnavailableError,
    TopicFencedError,
)
from hqueue.format import rowkey
from hqueue.format.control import EPOCH_MAX, encode_fences, fences_of, with_owners
from hqueue.format.header import CONTROL, MESSAGES, NONCE_BYTES, Bodies
from hqueue.log.attempt import Appended, Attempt
from hqueue.log.steps import Work
from hqueue.log.tail import LogPosition, TailCache
from hqueue.log.walk import WALKED_HEADERS, BrokenOffError, HeaderWalk
from hqueue.message_id import MessageID
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock, Deadline
from hqueue.runtime.logs import Log
from hqueue.settings.limits import MESSAGE_ID_MAX
from hqueue.settings.numbers import check_whole

__all__ = ["OwnedBatch", "OwnedPartitionWriter", "made"]

logger = Log(__name__)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class OwnedBatch:
    """A batch of messages of owned topics.

    Args:
        bodies: the batch, as it is stored; the writer adds by which owners it is.
        floor: none of its messages has an ID below this one: the first of each topic's range.
        epochs: by which ownership of each of its topics these messages were taken in; that which is
            owned when they are appended, where it is not given.
    """

    bodies: Bodies
    floor: int = 0
    epochs: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        check_whole(self.floor, 0, MESSAGE_ID_MAX, option="floor")


def made(batch: OwnedBatch | None) -> Work[OwnedBatch | None]:
    """A batch that is there, as what `OwnedPartitionWriter.append` takes gives it."""
    return batch
    yield


class OwnedPartitionWriter:
    """Appends messages of topics that this process owns to one partition.

    A topic's owner has an epoch, which grows with every owner. Who takes a topic over appends a
    *control record* with its epoch to the partition where the topic lay. This writer has seen
    every header between what it knew of the log and each slot that it wins: so it meets that record
    before it appends anything after it, however long it stood still, and appends nothing of that
    topic any more. No lease and no clock is needed for that; what is needed is that it knew the
    log's end before anybody could take the topic over from it. So

    - `open` it, and `own` a topic, before it is said anywhere that the topic lies here;
    - after an `OwnershipLostError` it owns nothing. Open it again, and take the topics over again.

    Others may append to the partition too: what they append does not say that it is an owner's, as
    each batch of this writer does, and so is nothing of the topic, whatever it is named. One thread
    appends; `own` and `disown` may be called by others meanwhile. What it holds for a topic is a
    name and a number.

    Args:
        partition: the partition.
        on_fence: called with a topic and the epoch of its new owner, when a topic is not owned
            here any more because the log says so; by the thread that appends. Must not raise.
        on_settled: called with a batch whose `append` raised an error with outcome *unknown*, as
            soon as it is known what became of it: `Appended`, or None if it is not in the log and
            never will be. By the thread that appends. Must not raise. It is not called for a
            batch whose fate can't be learned any more; then an `OwnershipLostError` is raised.
        clock: where time comes from.
    """

    def __init__(
        self,
        partition: int,
        *,
        on_fence: Callable[[str, int], None],
        on_settled: Callable[[OwnedBatch, Appended | None], None],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.partition = partition
        self._clock = clock
        self._on_fence = on_fence
        self._on_settled = on_settled
        self._tail = TailCache(partition, clock)
        self._walk: HeaderWalk | None = None
        self._epochs: dict[str, int] = {}
        self._lock = threading.RLock()
        """Guards the epochs."""
        self._unsettled: tuple[Attempt, LogPosition, OwnedBatch] | None = None
        self._in_doubt = False
        """Whether a put of the append under way may have been applied, or may be yet."""

    @property
    def end(self) -> MessageID:
        """Where the log ends, as far as is known: no message appended later has an ID below it.

        Raises:
            OwnershipLostError: nothing is known.
        """
        return MessageID.from_int(self._known().end.slot)

    def open(self, deadline: Deadline) -> Work[None]:
        """Learn where the log ends. From there on every header is seen. It owns no topic then.

        Raises:
            StoreUnavailableError: the store stayed away until the deadline.
            QueueStateError, RequestRefusedError: the store will not be read.
            CorruptLogError: the end of the log can't be read.
        """
        self._invalidate()
        self._tail.invalidate()
        self._walk = HeaderWalk(self.partition, (yield from self._tail.fresh(deadline)))

    def own(self, topic: str, epoch: int) -> None:
        """Let messages of a topic be appended, until a control record has a higher epoch of it.

        Call it before the topic's range in this partition is made known to anybody, and append
        only when that has succeeded.

        Raises:
            InvalidInputError: it is not an epoch.
            OwnershipLostError: nothing is known of the log: it was not opened, or it was lost.
        """
        check_whole(epoch, 0, EPOCH_MAX, option="epoch")
        self._known()
        with self._lock:
            self._epochs[topic] = epoch

    def disown(self, topic: str) -> None:
        """Append nothing more of a topic. One that is not owned stays so."""
        with self._lock:
            self._epochs.pop(topic, None)

    def epoch_of(self, topic: str) -> int | None:
        """The epoch by which a topic is owned here; None if it isn't."""
        return self._epochs.get(topic)

    def append(
        self, make: Callable[[], Work[OwnedBatch | None]], deadline: Deadline
    ) -> Work[Appended | None]:
        """Append a batch of messages at the end of the log: exactly once, or with an error.

        `make` is called when all that is in the log is known, and `on_fence` and `on_settled` have
        been called; again when another writer was faster and has appended something. So it gives
        what is owned at that moment. When this returns `Appended`, the batch that it gave last is
        durable, and no topic in it has a later owner before it in the log.

        Args:
            make: gives the batch, by steps that ask nothing of the log; None if there is nothing
                to append any more.
            deadline: the bound.

        Raises:
            InvalidInputError: the batch has no messages.
            TopicFencedError: it has a topic that is not owned here. Nothing was sent.
            OwnershipLostError: the log can't be followed from where it was known: it was
                truncated, or collected, or this process stood still for too long. No topic is
                owned any more.
            StoreUnavailableError: the store stayed away until the deadline. If the outcome is
                *unknown*, `on_settled` says later what became of the batch.
            QueueStateError, RequestRefusedError: the store will not take it.
            CorruptLogError: a header can't be read, or a newer release wrote it. No topic is
                owned any more.
        """

        def checked() -> Work[OwnedBatch | None]:
            batch = yield from make()
            return None if batch is None else self._signed(batch)

        return (yield from self._append(checked, deadline))

    def close_ranges(
        self, epochs: Mapping[str, int], deadline: Deadline, *, floor: int = 0
    ) -> Work[MessageID]:
        """End what other owners have of topics in this partition: by a control record.

        Neither an owner with a lower epoch nor this writer appends a message of these topics to
        this partition after the ID that is returned; all that it appended has an ID below it. Many
        topics take several records; the last one's ID holds for all. Done again it is harmless.

        Args:
            epochs: the topics, and the epoch of each one's owner from here on.
            deadline: the bound.
            floor: the ID is not below this one: the highest `first` of the ranges.

        Raises:
            InvalidInputError: there is no topic, or a name, an epoch or an ID can't be.
            and as `append`. Whatever the outcome, the ranges are closed only if it returns.
        """
        check_whole(floor, 0, MESSAGE_ID_MAX - 1, option="floor")
        last = 0
        for record in encode_fences(epochs):
            appended = yield from self._append(partial(made, OwnedBatch(record, floor)), deadline)
            assert appended is not None
            last = appended.base
        return MessageID.from_int(last)

    def settle(self, deadline: Deadline) -> Work[None]:
        """Learn what became of the batch whose outcome was unknown, if there is one.

        `append` and `close_ranges` begin with this.

        Raises:
            As `append`; it stays unknown then, unless it is an `OwnershipLostError`.
        """
        if self._unsettled is None:
            return
        attempt, position, batch = self._unsettled
        try:
            appended = yield from self._decide(attempt, deadline)
        except HQueueError as exc:
            exc.outcome = Outcome.UNKNOWN
            raise
        self._unsettled = None
        if appended is not None:
            self._note(position, batch.bodies, appended)
        if batch.bodies.kind == MESSAGES:
            self._on_settled(batch, appended)

    def _append(
        self, make: Callable[[], Work[OwnedBatch | None]], deadline: Deadline
    ) -> Work[Appended | None]:
        self._in_doubt = contended = False
        try:
            self._known()
            yield from self.settle(deadline)
            while True:
                end = yield from self._learn(deadline)
                batch = yield from make()
                if batch is None:
                    return None
                appended = yield from self._put(end, batch, deadline)
                if appended is not None:
                    return dataclasses.replace(appended, contended=True) if contended else appended
                contended = True
                self._check_deadline(deadline)
        except HQueueError as exc:
            exc.outcome = Outcome.UNKNOWN if self._in_doubt else Outcome.NOT_APPLIED
            raise

    def _learn(self, deadline: Deadline) -> Work[LogPosition]:
        """See every header up to the end of the log, which is returned."""
        while (yield from self._tail.trusted(deadline)) != (walk := self._known()).end:
            try:
                page = yield from deadline.insist(walk.page)
                for row, header in page:
                    if header.kind == CONTROL:
                        self._fence(row.key, header.control)
            except BrokenOffError as exc:
                raise self._lost() from exc
            except CorruptLogError:
                self._invalidate()  # It is not known whom it fences.
                raise
            if len(page) < WALKED_HEADERS:
                # The walk may have taken long. What it knows counts while it is the tail.
                if (yield from self._tail.trusted(deadline)) == walk.end:
                    break
                self._tail.invalidate()
            self._check_deadline(deadline)
        return walk.end

    def _fence(self, row: bytes, payload: bytes) -> None:
        for topic, epoch in fences_of(row, payload).items():
            with self._lock:
                owned = self._epochs.get(topic)
                is_fenced = owned is not None and owned < epoch
                if is_fenced:
                    del self._epochs[topic]
            if is_fenced:
                self._on_fence(topic, epoch)

    def _put(
        self, position: LogPosition, batch: OwnedBatch, deadline: Deadline
    ) -> Work[Appended | None]:
        """Try for one slot until it is known whose it is; None if it is not ours."""
        attempt = Attempt(
            partition=self.partition,
            clock=self._clock,
            tail=self._tail,
            position=position,
            bodies=batch.bodies,
            nonce=os.urandom(NONCE_BYTES),
            now_ms=self._clock.wall_ms(),
            floor=batch.floor,
        )
        try:
            appended = yield from self._decide(attempt, deadline)
        except BaseException:
            self._in_doubt = attempt.in_doubt
            if attempt.in_doubt and self._walk is not None:
                self._unsettled = attempt, position, batch
            raise
        if appended is not None:
            self._note(position, batch.bodies, appended)
        return appended

    def _decide(self, attempt: Attempt, deadline: Deadline) -> Work[Appended | None]:
        try:
            return (yield from deadline.insist(attempt.once))
        except RequestRefusedError as exc:
            if attempt.in_doubt:  # No other try would learn more.
                raise self._lost() from exc
            raise

    def _note(self, position: LogPosition, bodies: Bodies, appended: Appended) -> None:
        """A batch of ours is in the log, after all that was seen of it."""
        self._known().end = LogPosition(appended.end, position.ordinal + bodies.count)
        if bodies.kind == CONTROL:
            self._fence(rowkey.encode(self.partition, position.slot), bodies.control)

    def _signed(self, batch: OwnedBatch) -> OwnedBatch:
        """A batch that says by which owners it is; all its topics are owned here."""
        epochs: dict[str, int] = {}
        for cell in batch.bodies.cells:
            topic = cell.decode()
            owned = self._epochs.get(topic)
            epoch = batch.epochs.get(topic, owned)
            if owned is None or epoch is None or owned < epoch:
                raise TopicFencedError(
                    "this writer does not own the topic", topic=topic, partition=self.partition
                )
            epochs[topic] = epoch
        return dataclasses.replace(batch, bodies=with_owners(batch.bodies, epochs))

    def _check_deadline(self, deadline: Deadline) -> None:
        if deadline.expired:
            raise StoreUnavailableError(
                "other writers took every slot until the deadline, or the log was not read to its "
                "end: try again",
                outcome=Outcome.NOT_APPLIED,
                partition=self.partition,
            )

    def _known(self) -> HeaderWalk:
        if self._walk is None:
            raise OwnershipLostError(
                "the writer has lost track of this partition's log: open the writer again, and "
                "take its topics over again",
                outcome=Outcome.NOT_APPLIED,
                partition=self.partition,
            )
        return self._walk

    def _lost(self) -> OwnershipLostError:
        logger.warning(
            "partition %d: can't read the batches that other writers appended meanwhile",
            self.partition,
        )
        self._invalidate()
        return OwnershipLostError(
            "batches that were appended after the end that the writer knew can't be seen: open "
            "the writer again, and take its topics over again",
            outcome=Outcome.NOT_APPLIED,
            partition=self.partition,
        )

    def _invalidate(self) -> None:
        self._walk = self._unsettled = None
        with self._lock:
            self._epochs.clear()
