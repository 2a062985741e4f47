"""Threads' processor times are parted by names, and their sum is their process's."""

from __future__ import annotations

import ctypes
import os
import threading
import time

import psutil
import pytest

from .thread_times import REST, ThreadTimes, kind_of

USED_S = 0.3
PR_SET_NAME = 15
"""Of prctl(2): Python names its threads to Linux from 3.14 on only."""


@pytest.mark.parametrize(
    ("thread", "kind"),
    [
        ("RpcServer.defau", "requests"),
        ("data-plane-kafk", "requests"),
        ("C2 CompilerThre", "the JVM's compilers"),
        ("GC Thread#0", "garbage collection"),
        ("MemStoreFlusher", "flushes"),
        ("AsyncFSOutputFl", "the log"),
        ("python", REST),
    ],
)
def test_a_name_tells_the_kind(thread: str, kind: str) -> None:
    assert kind_of(thread) == kind


def _use() -> None:
    while time.thread_time() < USED_S:
        pass


def test_what_ended_threads_used_is_in_the_rest() -> None:
    times = ThreadTimes(os.getpid())
    before = sum(times.spent_ms().values())
    thread = threading.Thread(target=_use)
    thread.start()
    thread.join()
    after = times.spent_ms()
    assert sum(after.values()) - before >= 0.9 * USED_S * 1e3
    whole = psutil.Process().cpu_times()
    assert sum(after.values()) == pytest.approx((whole.user + whole.system) * 1e3, rel=0.2)


def test_what_a_thread_used_keeps_its_kind_when_it_has_ended() -> None:
    times = ThreadTimes(os.getpid())
    before = _collecting_ms(times)
    used, looked_at = threading.Event(), threading.Event()

    def run() -> None:
        ctypes.CDLL(None).prctl(PR_SET_NAME, b"GC Thread#0")
        _use()
        used.set()
        looked_at.wait(60)

    thread = threading.Thread(target=run)
    thread.start()
    assert used.wait(60)
    times.look()
    looked_at.set()
    thread.join()
    assert _collecting_ms(times) - before >= 0.5 * USED_S * 1e3


def _collecting_ms(times: ThreadTimes) -> float:
    return sum(ms for (kind, _), ms in times.spent_ms().items() if kind == "garbage collection")
