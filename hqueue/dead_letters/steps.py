"""Lists, puts, redrives and deletes dead letters, in steps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from hqueue.consume.scan import Scan
from hqueue.dead_letters.originals import Originals, message_at
from hqueue.dead_letters.putting import letters_of, put_each, put_in
from hqueue.dead_letters.topics import is_dead_letter, redrive_topic_beside
from hqueue.dead_letters.waiting import Held, Wanted
from hqueue.dead_letters.wrapping import (
    DeadLetter,
    Wrapping,
    wrapped_dead_letter,
    wrapped_deletion,
    wrapped_redrive,
    wrapping_of,
)
from hqueue.errors import CorruptLogError, InvalidInputError, UnsupportedFormatError
from hqueue.handle import QueueLog
from hqueue.message import Message, ReceivedMessage
from hqueue.position import Position
from hqueue.runtime.steps import Give, Wait, Work
from hqueue.runtime.stepwise import Stepwise, stepwise
from hqueue.settings.attributes import check_partition
from hqueue.settings.kinds import check_callback

__all__ = ["DeadLetterSteps", "OnUnreadable", "by_partition", "steps_of"]

HELD_MAX = 100_000
OWNERS_MAX = 10_000

OnUnreadable = Callable[[ReceivedMessage, CorruptLogError], object]


class DeadLetterSteps(Stepwise):
    """Lists, puts, redrives and deletes dead letters, in steps: for threads, and for event loops.

    Args:
        open_scan: opens a scanner of some partitions with a scan for each, or of all partitions
            with one scan. The scanner's `next` and `close` are called in threads, or awaited in an
            event loop.
        put: asks to put messages under reserved topics into a partition.
        topics: asks for the topics of dead letters in the queue since a position, at most so many.
        originals: finds the originals.
        queue: the queue's name, whose dead letters alone are redriven and deleted; None for any.
        held_max: how many IDs a search for waiting dead letters holds at most.
    """

    def __init__(
        self,
        open_scan: Callable[[Mapping[int, Scan] | Scan], Any],
        put: Callable[[list[Message], int], Wait],
        topics: Callable[[Position, int], Wait],
        originals: Originals,
        *,
        queue: str | None = None,
        held_max: int = HELD_MAX,
    ) -> None:
        self._open_scan = open_scan
        self._put = put
        self._topics = topics
        self._originals = originals
        self._queue = queue
        self._held_max = held_max
        self.redriven = originals.redriven
        self.unwrap = originals.unwrap

    def waiting(self, wanted: Wanted, on_unreadable: OnUnreadable | None) -> Work[Any, None]:
        """Gives the dead letters for `DeadLetters.waiting`. Checks the arguments at once."""
        check_callback(on_unreadable, "on_unreadable")
        report = self._originals.log_unreadable if on_unreadable is None else on_unreadable
        return self._waiting(wanted, report)

    def _waiting(self, wanted: Wanted, report: OnUnreadable) -> Work[Any, None]:
        if wanted.owner is not None:
            topics: Collection[str] = [wanted.owner.dead_letter_topic]
        else:
            since = 0 if wanted.since is None else wanted.since
            topics = yield self._topics(since, OWNERS_MAX)
        for topic in topics:
            yield from self._waiting_under(topic, wanted, report)

    def _waiting_under(self, topic: str, wanted: Wanted, report: OnUnreadable) -> Work[Any, None]:
        """Gives the waiting dead letters under a topic.

        A first pass over the log collects the IDs of dead letters that no redrive and no deletion
        follows; a second pass reads these dead letters. So memory is bounded by the number of dead
        letters that wait, and not by those that were redriven. If too many wait, both passes are
        repeated for the rest.
        """
        both = [topic, redrive_topic_beside(topic)]
        first = Scan(wanted.since, None, both)
        scans: Mapping[int, Scan] | Scan | None = first
        if wanted.partition is not None:
            scans = {wanted.partition: first}
        while scans is not None:
            held = Held(wanted, self._held_max)
            yield from self._each(scans, report, held.note)
            if held.count:
                yield from self._given(topic, held, report)
            scans = {at: Scan(start, None, both) for at, start in held.left.items()} or None

    def _given(self, topic: str, held: Held, report: OnUnreadable) -> Work[Any, None]:
        scanner = self._open_scan(held.scans(topic))
        while (message := (yield Wait(scanner.next, scanner.next))) is not None:
            if not held.has(message):
                continue
            try:
                letter = yield from self._originals.letter(message, wrapping_of(message))
            except CorruptLogError as exc:  # Of the dead letter, or of its original in the log.
                report(message, exc)
            else:
                yield Give(letter)
        yield Wait(scanner.close, scanner.close)

    def _each(
        self,
        scans: Mapping[int, Scan] | Scan,
        report: OnUnreadable,
        note: Callable[[ReceivedMessage, Wrapping], None],
    ) -> Work[Any, None]:
        """Call `note` with each message that can be read, and `report` with each other one."""
        scanner = self._open_scan(scans)
        while (message := (yield Wait(scanner.next, scanner.next))) is not None:
            try:
                wrapping = wrapping_of(message)
            except UnsupportedFormatError as exc:
                report(message, exc)
            else:
                note(message, wrapping)
        yield Wait(scanner.close, scanner.close)

    @stepwise
    def put(self, letters: Iterable[DeadLetter]) -> Work[Any, None]:
        """As `DeadLetters.put`."""
        yield from put_each(
            self._put,
            ((each, wrapped_dead_letter(each)) for each in letters_of(letters, self._queue)),
        )

    @stepwise
    def redrive(self, letters: Iterable[DeadLetter]) -> Work[Any, int]:
        """As `DeadLetters.redrive`."""

        def wrapped() -> Iterator[tuple[DeadLetter, Message]]:
            for letter in letters_of(letters, self._queue):
                if letter.expired:
                    raise InvalidInputError(
                        "the value of this dead letter has expired, so it can't be redriven: "
                        "delete the dead letter, or leave it out",
                        id=letter.id,
                    )
                yield letter, wrapped_redrive(letter)

        return (yield from put_each(self._put, wrapped()))

    @stepwise
    def delete(self, letters: Iterable[DeadLetter]) -> Work[Any, int]:
        """As `DeadLetters.delete`."""

        def wrapped() -> Iterator[tuple[DeadLetter, Message]]:
            for letter in letters_of(letters, self._queue):
                if letter.id is None:
                    raise InvalidInputError(
                        "this dead letter was never put, so it can't be deleted: leave it out"
                    )
                yield letter, wrapped_deletion(letter)

        return (yield from put_each(self._put, wrapped()))


def by_partition(scans: Mapping[int, Scan] | Scan, partitions: int) -> dict[int, Scan]:
    """The scan of each partition, for a scanner of a queue with so many partitions.

    Raises:
        InvalidInputError: the queue does not have one of the partitions.
    """
    if isinstance(scans, Scan):
        return dict.fromkeys(range(partitions), scans)
    return {check_partition(partition, partitions): scan for partition, scan in scans.items()}


def steps_of(
    log: QueueLog, open_scan: Callable[[Mapping[int, Scan] | Scan], Any]
) -> DeadLetterSteps:
    """The steps for a queue's log."""

    def topics(since: Position, count_max: int) -> Wait:
        return Wait(
            partial(log.reader.topics, since, count_max, is_dead_letter),
            partial(log.loop_reader.topics, since, count_max, is_dead_letter),
        )

    originals = Originals(partial(message_at, log), queue=log.name)
    return DeadLetterSteps(open_scan, partial(put_in, log), topics, originals, queue=log.name)
