"""How far readers of a topic with an owner are behind, over all its ranges."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hqueue.consume.topic_scans import scans_of
from hqueue.log.lag import age_ms_of
from hqueue.log.steps import Work
from hqueue.log.topic_lag import TopicCounter, TopicLag
from hqueue.message_id import MessageID, check_message_id
from hqueue.metadata.managers import LogRange, RangesOf
from hqueue.runtime.clock import Clock, Deadline
from hqueue.settings.kinds import check_mapping

__all__ = ["topic_lags"]


def topic_lags(
    topic: str,
    ranges_of: RangesOf,
    positions: Mapping[str, MessageID],
    deadline: Callable[[], Deadline],
    clock: Clock,
) -> Work[dict[str, TopicLag]]:
    """Like `Queue.topic_lags`. The log is walked from the newest position back to the oldest, each
    part once: so what has to be counted by ordinals is that which the last ones are behind.
    """
    starts = {
        name: int(check_message_id(at, "positions"))
        for name, at in check_mapping(positions, "positions").items()
    }
    scans_of(topic, (), None, None)  # Refuses bad input before anything is asked.
    ranges: Sequence[LogRange] = yield ranges_of(topic)
    counter = TopicCounter(topic, deadline)
    known: dict[int, TopicLag] = {}
    messages, exact = 0, True
    first: int | None = None
    stop: MessageID | None = None
    for start in sorted({*starts.values()}, reverse=True):
        at = MessageID.from_int(start)
        for partition, scan in reversed(scans_of(topic, ranges, at, stop)):
            part = yield from counter.count(partition, scan.start, scan.stop, scan.owner_epoch)
            messages, exact = messages + part.messages, exact and part.exact
            if part.messages:
                first = part.first if part.exact else scan.start
        age_ms = 0
        if messages and first is not None:
            age_ms = age_ms_of(first, max(counter.newest, first), clock)
        known[start] = TopicLag(messages, exact, age_ms)
        stop = at
    return {name: known[start] for name, start in starts.items()}
