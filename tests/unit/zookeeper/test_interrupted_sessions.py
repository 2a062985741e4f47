"""Sessions whose requests are interrupted by handlers of signals, and those that answer nothing."""

from __future__ import annotations

import contextlib
import itertools
import logging
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import kazoo.client
import pytest

from hqueue import Settings
from hqueue.metadata.ports import ANY, NEW, Change, SessionState
from hqueue.zookeeper import ZooKeeperStore
from tests.support.interrupting import each_interruption, each_line
from tests.support.memory.zookeeper import MemoryZooKeeper
from tests.support.thread_refusal import threads_refused
from tests.support.waiting import wait_for

KAZOO = str(Path(kazoo.__path__[0]))
BOUND_MS = 500
QUICK_S = 3.0


@contextlib.contextmanager
def opened(**settings: Any) -> Iterator[ZooKeeperStore]:
    with MemoryZooKeeper() as server:
        at = f"127.0.0.1:{server.port}"
        with contextlib.closing(ZooKeeperStore(Settings(zookeeper=at, **settings))) as store:
            yield store


def test_what_a_program_asks_for_runs_no_code_of_kazoo_that_may_be_interrupted() -> None:
    """What may be interrupted leaves a lock held, or a request without its wake byte."""
    run: set[str] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if frame.f_code.co_filename.startswith(KAZOO):
            run.add(frame.f_code.co_name)

    with MemoryZooKeeper() as server:
        store = ZooKeeperStore(Settings(zookeeper=f"127.0.0.1:{server.port}"))
        sys.setprofile(note)
        try:
            store.records.write({"/a/b": Change(b"1", NEW)})
            store.records.read(["/a/b"])
            store.ephemerals.put([{"/e": b"1"}], is_own=lambda _: False)
            store.ephemerals.claim({"/c": b"1"})
            store.confirm()
            store.ephemerals.release(["/e", "/c"])
            store.records.delete({"/a/b": ANY})
            store.close()
        finally:
            sys.setprofile(None)
    harmless = {"client_state", "connected", "__init__", "exception"}
    assert run.isdisjoint({"_call", "get", "set", "stop", "start_async", "rawlink", "wait"}), run
    assert not {name for name in run if name.endswith("_async")} - harmless, run


@pytest.mark.parametrize("each_place", [each_interruption, each_line])
def test_writes_go_on_after_one_was_interrupted_anywhere(each_place: Any) -> None:
    numbers = itertools.count()
    with opened() as store:
        store.records.write({"/a": Change(b"", NEW)})

        def write() -> bytes:
            value = b"%d" % next(numbers)
            store.records.write({"/a": Change(value, ANY)})
            return value

        for where in each_place(write):
            began_s = time.monotonic()
            value = write()
            assert store.records.read(["/a"])["/a"].value == value, where
            assert time.monotonic() - began_s < QUICK_S, where
        assert len(list(store.session.members)) == 1


@pytest.mark.parametrize("each_place", [each_interruption, each_line])
def test_a_session_whose_beginning_or_end_was_interrupted_anywhere_ends(each_place: Any) -> None:
    with MemoryZooKeeper() as server:
        settings = Settings(zookeeper=f"127.0.0.1:{server.port}")
        stores: list[ZooKeeperStore] = []

        def use() -> None:
            stores.append(ZooKeeperStore(settings))
            stores[-1].ephemerals.put([{"/here": b"1"}], is_own=lambda _: False)
            stores[-1].close()

        for where in each_place(use):
            if stores:
                stores[-1].close()
            assert not server._sessions, where


def test_a_session_that_answers_nothing_while_it_is_connected_is_made_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with opened(
        request_timeout_ms=BOUND_MS,
        operation_timeout_ms=10_000,
        zookeeper_session_timeout_ms=1_000,
    ) as store:
        store.records.write({"/a": Change(b"", NEW)})
        (member,) = store.session.members
        member.client._call = lambda *_: None  # As if the byte were missing that has it sent.
        store.records.write({"/a": Change(b"1", ANY)})
        (other,) = store.session.members
        assert other is not member
    assert "is connected but does not answer" in caplog.text


def test_the_end_of_a_session_is_bounded_whatever_state_kazoo_is_in(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    with opened(request_timeout_ms=BOUND_MS) as store:
        store.records.write({"/a": Change(b"", NEW)})
        (member,) = store.session.members
        stop, hangs = member.client.stop, threading.Event()
        member.client.stop = hangs.wait
        began_s = time.monotonic()
        store.close()
        assert time.monotonic() - began_s < QUICK_S
        assert "left to end by itself" in caplog.text
        hangs.set()
        stop()


def test_requests_of_several_threads_are_not_held_up_by_one_that_waits() -> None:
    with opened() as store:
        store.records.write({"/a": Change(b"", NEW)})
        (member,) = store.session.members
        slow = member.client.handler.async_result()
        waiting = threading.Thread(
            target=lambda: store.session.run([("/", lambda _: slow)], store.session.deadline())
        )
        waiting.start()
        began_s = time.monotonic()
        store.records.write({"/a": Change(b"1", ANY)})
        assert time.monotonic() - began_s < QUICK_S
        assert waiting.is_alive()
        slow.set(None)
        wait_for(lambda: not waiting.is_alive(), "the answer came")


def test_an_error_of_a_handler_while_a_listener_is_added_is_not_swallowed() -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    with opened() as store, pytest.raises(KeyboardInterrupt):
        store.on_state(interrupted)


def test_a_lost_session_for_which_no_thread_is_started_is_said_to_be_lost_and_opened_later() -> (
    None
):
    refusals = [1, 2]

    def is_refused(thread: threading.Thread) -> bool:
        return bool(refusals and not thread.name.startswith("hqueue") and refusals.pop())

    states: list[SessionState] = []
    with opened() as store:
        store.records.read(["/a"])
        watch = store.on_state(states.append)
        wait_for(lambda: states[-1] is SessionState.CONNECTED, "it is connected")
        sessions = store.session.members
        with threads_refused(is_refused=is_refused):
            with sessions.lock:
                sessions._begin_again()
            assert states[-1] is SessionState.LOST
            wait_for(lambda: states[-1] is SessionState.CONNECTED, "opening another")
        assert not refusals
        watch.close()
