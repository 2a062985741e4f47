"""What listeners leave to be done behind their calls."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from hqueue import ReceivedMessage
from hqueue.push import listener
from hqueue.push.answers import Status
from hqueue.push.listener import Listeners
from hqueue.runtime import loop
from tests.support.waiting import wait_for

WAIT_S = 30.0


def test_what_a_listener_left_to_be_done_is_done_though_no_thread_was_free_for_it_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop, "BLOCKING_WAIT_MS", 50.0)
    monkeypatch.setattr(listener, "RETRY_S", 0.05, raising=False)
    refused, free, done = threading.Event(), threading.Event(), threading.Event()
    by_threads = loop.by_threads

    async def tell(*given: object) -> object:
        try:
            return await by_threads(*given)  # type: ignore[arg-type]
        except Exception:
            refused.set()
            raise

    monkeypatch.setattr(loop, "by_threads", tell)

    def leave(messages: Sequence[ReceivedMessage]) -> None:
        assert listeners.leave_behind(done.set)

    listeners = Listeners(leave, 1_000, "sub")
    busy = [loop._blocking.submit(free.wait, WAIT_S) for _ in range(loop.BLOCKING_MAX)]
    try:
        assert listeners.consume([]).status is Status.DONE
        assert refused.wait(WAIT_S), "no thread is free"
        assert not done.is_set()
    finally:
        free.set()
    wait_for(done.is_set, "it is done when one is")
    for each in busy:
        each.result(WAIT_S)


def test_that_what_a_listener_left_to_be_done_failed_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail() -> None:
        raise SystemExit("on purpose")

    def leave(messages: Sequence[ReceivedMessage]) -> None:
        assert listeners.leave_behind(fail)

    listeners = Listeners(leave, 1_000, "sub")
    assert listeners.consume([]).status is Status.DONE
    wait_for(lambda: "what a listener left to be done raised SystemExit" in caplog.text, "it is")
