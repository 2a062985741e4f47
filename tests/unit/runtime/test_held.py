"""Locks with a bound, and errors that handlers of signals raise."""

from __future__ import annotations

import functools
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from hqueue.runtime.held import Held, if_free
from hqueue.runtime.interrupts import is_interruption
from tests.support.interrupting import each_interruption, each_line


class LateError(Exception):
    pass


def test_a_lock_is_held_for_the_block_and_free_after_it_however_that_ends() -> None:
    lock = threading.Lock()
    with Held(lock, 1, LateError):
        assert lock.locked()
    assert not lock.locked()
    with pytest.raises(ValueError, match="within"), Held(lock, 1, LateError):
        raise ValueError("within")
    assert not lock.locked()


def test_a_lock_that_is_not_had_in_time_stays_its_holder_s() -> None:
    lock = threading.Lock()
    with lock:
        for timeout_s in (-1, 0, 0.01):
            with pytest.raises(LateError), Held(lock, timeout_s, LateError):
                pass
            assert lock.locked()


def test_an_interruption_anywhere_leaves_no_lock_behind() -> None:
    lock = threading.Lock()

    def hold() -> None:
        with Held(lock, 1, LateError):
            len("something")

    places = []
    for place in each_interruption(hold):
        places.append(place)
        assert not lock.locked(), place
    assert len(places) >= 3


def raises_deeper(number: int, frame: FrameType | None) -> None:
    def deeper() -> None:
        raise TimeoutError("a time limit")

    deeper()


class Handler:
    def method(self, number: int, frame: FrameType | None) -> None:
        raises_deeper(number, frame)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        raise OSError("a limit")


@pytest.mark.parametrize(
    "handler",
    [raises_deeper, Handler().method, Handler(), functools.partial(raises_deeper)],
    ids=["function", "method", "object", "partial"],
)
def test_what_a_handler_raises_is_told_from_what_the_system_says(
    handler: Callable[[int, FrameType | None], None],
) -> None:
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(OSError) as raised:  # noqa: PT011
            signal.raise_signal(signal.SIGUSR1)
        assert is_interruption(raised.value)
        with pytest.raises(OSError) as refused:  # noqa: PT011
            open("/nowhere")  # noqa: SIM115
        assert not is_interruption(refused.value)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert is_interruption(KeyboardInterrupt())


@pytest.mark.parametrize("each_place", [each_interruption, each_line])
def test_what_is_done_if_a_lock_is_free_leaves_it_free_wherever_it_was_interrupted(
    each_place: Any,
) -> None:
    lock = threading.Lock()
    done: list[str] = []
    for place in each_place(lambda: if_free(lock, lambda: done.append("done"))):
        assert not lock.locked(), place
    assert done
    with lock:
        done.clear()
        assert not if_free(lock, lambda: done.append("done"))
        assert lock.locked()
    assert not done


def test_a_value_that_is_no_member_of_an_enum_is_no_interruption() -> None:
    with pytest.raises(ValueError, match="nonsense") as raised:
        signal.Handlers("nonsense")  # type: ignore[arg-type]
    assert not is_interruption(raised.value)
