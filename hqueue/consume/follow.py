"""Following the ends of many partitions at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hqueue.consume.fetcher import Fetch, Fetcher, Pace
from hqueue.consume.polling import fetch
from hqueue.errors import HQueueError, QueueStateError
from hqueue.log import PartitionCursor
from hqueue.log.steps import Work, operation
from hqueue.runtime.backoff import Backoff
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock, Deadline, Patience
from hqueue.runtime.steps import Give, Pause, noting

__all__ = ["follow"]

PAUSE_MS_MIN = 2.0
PAUSE_MS_MAX = 100.0
CHECK_TAIL_EVERY_MS = 5_000.0


def follow(
    cursors: Sequence[PartitionCursor],
    deadline: Callable[[], Deadline],
    *,
    idle_ms_max: int | None,
    closed: Callable[[], bool],
    bytes_max: int,
    clock: Clock = SYSTEM_CLOCK,
) -> Work[None]:
    """Give batches as they come, until all cursors are finished, or nothing came for long enough.

    At the end of a partition the row key of its next batch is known, so one request asks for the
    next batches of all partitions: of a few with the bodies, of more without, for each may weigh
    megabytes. Where they come in quick succession several are asked for at a time. The pause
    between requests grows from 2 to 100 ms while nothing comes. Every 5 s the end of a partition
    that is silent is looked at itself, in case its log was truncated.

    While a queue is truncated it is disabled for some seconds, and missing for a moment: so both
    are errors only when they last for an operation's bound.
    """
    pauses = Backoff(PAUSE_MS_MIN, PAUSE_MS_MAX, growth=1.5)
    pace = Pace(
        idle=pauses,
        failed=pauses,
        check_every_ms=CHECK_TAIL_EVERY_MS,
        gather_share=1.0,  # One request for all costs no more than one for some.
    )

    last_ms = clock.monotonic_ms()
    fetcher = Fetcher(Fetch(cursor, pace, last_ms) for cursor in cursors)
    patience = Patience(deadline)
    while not closed():
        error: HQueueError | None = None
        asked = fetcher.take_due(clock.monotonic_ms())
        try:
            for each in asked:
                while not each.reader.at_tail and not closed():
                    batches = yield from operation(deadline, each.reader.read)
                    if batches:
                        patience.renew()
                        yield Give(batches)
            unfinished = [each for each in asked if not each.reader.finished]
            if not closed():
                work = fetch(unfinished, deadline, bytes_max)
                yield from noting(work, lambda _: patience.renew())
            if asked:
                patience.renew()
        except QueueStateError as exc:
            error = exc
            patience.bear(exc)
        now_ms = clock.monotonic_ms()
        for each in asked:
            if each.answered(now_ms, error):
                last_ms = now_ms
            if not each.reader.finished:
                fetcher.request(each)
        if len(fetcher) == 0 or (idle_ms_max is not None and now_ms - last_ms >= idle_ms_max):
            return
        yield Pause(max(0.0, fetcher.next_due_ms - now_ms))
