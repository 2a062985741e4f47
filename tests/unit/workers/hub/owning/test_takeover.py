"""Which ranges of a topic a take-over keeps: all that may have messages, whatever time it is."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from hqueue import MessageID
from hqueue.errors import ClockSkewError
from hqueue.metadata.managers import LogRange, TopicPersistenceInfo
from hqueue_workers.hub.owning.takeover import TakeOver
from tests.support.doubles import SteppedClock

DAY_MS = 86_400_000
NOW_MS = 1_700_000_000_000
OLD, RECENT = (
    LogRange(0, MessageID(NOW_MS - days * DAY_MS), MessageID(NOW_MS - days * DAY_MS + 1), epoch)
    for epoch, days in enumerate((9, 2))
)


def _done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


class Persistence:
    """The ranges of a topic."""

    def __init__(self) -> None:
        self.ranges: tuple[LogRange, ...] = (OLD, RECENT)

    def read_topic_persistence_info(self, topic: str) -> Future[Any]:
        return _done(_Found(TopicPersistenceInfo(self.ranges)))

    def write_topic_persistence_info(self, topic: str, info: Any, version: int) -> Future[Any]:
        self.ranges = info.ranges
        return _done(1)


class _Found:
    version = 0

    def __init__(self, value: TopicPersistenceInfo) -> None:
        self.value = value


class Committers:
    """A partition whose log ends now."""

    def of(self, partition: int) -> Committers:
        return self

    def open(self) -> Future[int]:
        return _done(int(MessageID(NOW_MS)))

    def register(self, owned: object) -> None:
        pass


def kept(wrong_ms: int, expired_ms: Any) -> list[LogRange]:
    persistence, committers, verdict = Persistence(), Committers(), object()
    take_over: Any = TakeOver
    made = take_over(
        persistence, committers, ttl_ms=3 * DAY_MS, expired_ms=expired_ms, bound_ms=1_000,
        clock=SteppedClock(NOW_MS + wrong_ms),
    )  # fmt: skip
    assert made.open("t", verdict, 0) is not None
    assert persistence.ranges[-1].last is None
    return list(persistence.ranges[:-1])


@pytest.mark.parametrize("wrong_ms", [-30 * DAY_MS, 0, 30 * DAY_MS])
def test_a_range_that_may_have_messages_is_kept_whatever_the_hub_s_clock_says(
    wrong_ms: int,
) -> None:
    assert RECENT in kept(wrong_ms, lambda: NOW_MS - 3 * DAY_MS)


def test_a_range_that_expired_long_ago_is_given_up_when_a_good_clock_says_so() -> None:
    assert kept(0, lambda: NOW_MS - 3 * DAY_MS) == [RECENT]
    assert kept(30 * DAY_MS, lambda: NOW_MS - 3 * DAY_MS) == [RECENT]
    assert kept(0, lambda: None) == [OLD, RECENT], "messages are kept for ever by now"

    def unknown() -> int:
        raise ClockSkewError("this clock is off")

    assert kept(30 * DAY_MS, unknown) == [OLD, RECENT]
