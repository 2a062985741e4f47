"""A client whose clock is off writes nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import hqueue
from hqueue import Message
from hqueue.errors import ClockSkewError
from hqueue.runtime.clock import SystemClock
from tests.support.backends import Backend
from tests.support.raw import RawTables

pytestmark = pytest.mark.in_memory

MakeQueue = Callable[..., hqueue.Queue]
MINUTE_MS = 60_000


class WrongClock(SystemClock):
    """This machine's clock, set wrong."""

    def __init__(self, ahead_ms: int) -> None:
        self.ahead_ms = ahead_ms

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms


@pytest.mark.in_memory_first
@pytest.mark.parametrize("ahead_ms", [5 * MINUTE_MS, -5 * MINUTE_MS, 7_000, -7_000])
def test_a_clock_beyond_the_bound_is_refused_and_nothing_is_written(
    backend: Backend, make_queue: MakeQueue, raw: RawTables, ahead_ms: int
) -> None:
    name = make_queue(2).name
    with backend.connect(WrongClock(ahead_ms)) as client:
        queue = client.queue(name)
        for write in (
            lambda: queue.put(Message("t", b"x")),
            lambda: queue.put([Message("t", b"x")] * 3, partition=1),
            lambda: queue.producer(linger_ms=0).send(Message("t", b"x")).result(60),
        ):
            with pytest.raises(ClockSkewError) as caught:
                write()
            assert caught.value.outcome is hqueue.Outcome.NOT_APPLIED
            assert abs(caught.value.store_ahead_ms + ahead_ms) < 1_000
    assert raw.rows(name) == {}


@pytest.mark.parametrize("ahead_ms", [2_000, -2_000])
def test_a_clock_within_the_bound_writes_in_order(
    backend: Backend, make_queue: MakeQueue, ahead_ms: int
) -> None:
    queue = make_queue()
    with backend.connect(WrongClock(ahead_ms)) as client:
        wrong = client.queue(queue.name)
        written = [each.put(Message("t", b"x")) for each in (queue, wrong) * 10]
    assert written == sorted(written)
    assert [m.id for m in queue.scan()] == written


def test_a_clock_that_is_set_wrong_later_is_noticed_at_the_next_put(
    backend: Backend, make_queue: MakeQueue
) -> None:
    queue = make_queue()
    clock = WrongClock(0)
    with backend.connect(clock) as client:
        wrong = client.queue(queue.name)
        good = wrong.put(Message("t", b"x"))
        clock.ahead_ms = 5 * MINUTE_MS
        with pytest.raises(ClockSkewError):
            wrong.put(Message("t", b"x"))
        clock.ahead_ms = 0
        later = wrong.put(Message("t", b"x"))
    assert [m.id for m in queue.scan()] == [good, later]
    assert later.timestamp - good.timestamp < MINUTE_MS
