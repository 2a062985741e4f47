"""Threads of the library whose start is interrupted by a handler of a signal."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from hqueue.runtime.threads import end, start
from tests.support.interrupting import each_interruption, each_line
from tests.support.waiting import wait_for


@pytest.mark.parametrize("each_place", [each_interruption, each_line])
def test_a_thread_whose_start_was_interrupted_anywhere_runs_or_was_never_begun(
    each_place: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    died: list[object] = []
    monkeypatch.setattr(threading, "excepthook", died.append)
    ran = threading.Semaphore(0)
    for _ in each_place(lambda: start(ran.release, name="interrupted")):
        start(ran.release, name="next")
        assert ran.acquire(timeout=5)
    wait_for(
        lambda: not any(each.name == "interrupted" for each in threading.enumerate()), "all ended"
    )
    assert not died


def test_a_handler_that_raises_while_a_thread_is_waited_for_does_not_end_that_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The handler comes within `Thread.start`, where `threading` has noted the thread, and it has
    not begun.
    """
    ran = threading.Event()
    wait = threading.Event.wait
    interrupted: list[object] = []

    def interrupting(event: threading.Event, timeout: float | None = None) -> bool:
        if event is not ran and not interrupted:
            interrupted.append(threading.current_thread())
            if interrupted[0] is threading.main_thread():
                raise KeyboardInterrupt
        return wait(event, timeout)

    monkeypatch.setattr(threading.Event, "wait", interrupting)
    start(ran.set, name="waited-for")
    assert ran.wait(5)
    assert interrupted


def test_a_thread_is_waited_for_until_it_ends_or_the_bound_and_never_by_itself() -> None:
    going_on, ended = threading.Event(), threading.Event()
    thread = start(going_on.wait, name="goes-on")
    assert not end(thread, 0.01)
    going_on.set()
    assert end(thread, 30)

    def end_itself() -> None:
        assert not end(threading.current_thread(), 30)
        ended.set()

    assert end(start(end_itself, name="ends-itself"), 30)
    assert ended.is_set()
