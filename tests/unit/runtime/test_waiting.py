"""A handler of a signal raises at each step of a wait, and of what ends one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from hqueue.runtime.waiting import Condition, Event, InterruptibleFuture, wait_for_all
from tests.support.interrupting import each_interruption, each_line

SOON_S = 5.0
EachPlace = Callable[[Callable[[], object]], Iterator[str]]


@pytest.fixture(params=[each_interruption, each_line], ids=["calls", "lines"])
def each_place(request: pytest.FixtureRequest) -> EachPlace:
    places: EachPlace = request.param
    return places


def in_another_thread(work: Callable[[], object]) -> None:
    """Do something that must not have to wait."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(SOON_S)
    assert not thread.is_alive()


def test_a_wait_that_was_interrupted_raises_that_and_leaves_the_lock_to_others(
    each_place: EachPlace,
) -> None:
    lock = threading.RLock()
    changed = Condition(lock)

    def wait() -> None:
        with lock:
            changed.wait_for(lambda: False, 0.001)

    def notify() -> None:
        with lock:
            changed.notify_all()

    places = list(each_place_of(each_place, wait, lambda: in_another_thread(notify)))
    assert len(places) > 5
    assert not changed._waiters  # type: ignore[attr-defined]


def test_a_nested_wait_gives_back_the_lock_as_often_as_it_was_held(each_place: EachPlace) -> None:
    lock = threading.RLock()
    changed = Condition(lock)

    def wait() -> None:
        with lock, changed:
            changed.wait(0.001)

    def take() -> None:
        with lock:
            pass

    assert list(each_place_of(each_place, wait, lambda: in_another_thread(take)))


def test_an_event_whose_setting_was_interrupted_is_set_the_next_time(each_place: EachPlace) -> None:
    event = Event()
    assert list(each_place_of(each_place, event.set, lambda: in_another_thread(event.set)))
    assert event.wait(0)
    event.clear()
    assert not event.wait(0)


def test_a_future_whose_waiter_was_interrupted_has_its_result_all_the_same(
    each_place: EachPlace,
) -> None:
    future: InterruptibleFuture[int] = InterruptibleFuture()

    def wait() -> None:
        with pytest.raises(TimeoutError):
            future.result(0.001)
        assert not future.wait(0.001)

    def look() -> None:
        assert not future.done()

    assert list(each_place_of(each_place, wait, lambda: in_another_thread(look)))
    in_another_thread(lambda: future.set_result(1))
    assert future.wait(0)
    assert future.result(0) == 1


def test_futures_whose_waiter_was_interrupted_are_left_to_those_that_have_the_results(
    each_place: EachPlace,
) -> None:
    futures: list[InterruptibleFuture[int]] = [InterruptibleFuture() for _ in range(2)]

    def look() -> None:
        assert not any(each.running() for each in futures)

    places = each_place_of(
        each_place, lambda: wait_for_all(futures, 0.002), lambda: in_another_thread(look)
    )
    assert list(places)
    for each in futures:
        in_another_thread(lambda each=each: each.set_result(1))  # type: ignore[misc]
    began_s = time.monotonic()
    wait_for_all(futures, SOON_S)
    assert time.monotonic() - began_s < SOON_S


def test_who_waits_is_woken_in_time_and_a_wait_ends_by_its_bound() -> None:
    lock = threading.RLock()
    changed = Condition(lock)
    woken: list[bool] = []

    def wait() -> None:
        with lock:
            woken.append(changed.wait(SOON_S))

    thread = threading.Thread(target=wait)
    thread.start()
    ends_s = time.monotonic() + SOON_S
    while not woken and time.monotonic() < ends_s:
        with lock:
            changed.notify()
    thread.join(SOON_S)
    assert woken == [True]
    with lock:
        assert not changed.wait(0.001)
        assert not changed.wait(-1)
    with pytest.raises(RuntimeError):
        changed.wait(0)


def each_place_of(
    places: EachPlace, work: Callable[[], object], after: Callable[[], object]
) -> Iterator[str]:
    """Each place that was interrupted; what was raised there came out as it was."""
    for place in places(work):
        after()
        yield place
