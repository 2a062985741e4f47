"""The thread of a session calls what it is given at once, and what is due later in its time."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Iterator

import pytest

from hqueue.errors import ClosedError
from hqueue.runtime.clock import SYSTEM_CLOCK
from hqueue.runtime.steps import carry_out
from hqueue.zookeeper.courier import Courier

SOON_S = 10.0


@pytest.fixture
def courier() -> Iterator[Courier]:
    made = Courier()
    made.begin()
    yield made
    assert end(made)


def end(courier: Courier) -> bool:
    """End it; whether that was in time."""
    return carry_out(courier.end(lambda: None, SOON_S * 1e3), print)


def test_what_is_due_is_called_in_its_time_unless_it_is_cancelled(courier: Courier) -> None:
    came: queue.SimpleQueue[tuple[str, float]] = queue.SimpleQueue()

    def note(name: str) -> None:
        came.put((name, SYSTEM_CLOCK.monotonic_ms()))

    began_ms = SYSTEM_CLOCK.monotonic_ms()
    courier.later(60, lambda: note("second"))
    courier.later(30, lambda: note("first"))
    courier.later(40, lambda: note("cancelled")).cancel()
    courier.post(lambda: note("at once"))
    found = [came.get(timeout=SOON_S) for _ in range(3)]
    assert [name for name, _ in found] == ["at once", "first", "second"]
    took_ms = {name: at_ms - began_ms for name, at_ms in found}
    assert took_ms["first"] >= 30
    assert took_ms["second"] >= 60


def test_what_is_due_is_not_kept_waiting_by_much_work(courier: Courier) -> None:
    came: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def work() -> None:
        with contextlib.suppress(ClosedError):
            courier.post(work)

    courier.post(work)
    courier.later(1, lambda: came.put(True))
    assert came.get(timeout=SOON_S)


def test_one_that_has_ended_calls_nothing_later() -> None:
    made = Courier()
    made.begin()
    came: list[bool] = []
    made.later(20, lambda: came.append(True))
    assert end(made)
    made.later(0, lambda: came.append(True))
    with pytest.raises(ClosedError):
        made.post(print)
    assert not came
