"""Threads' processor times are parted by names, and their sum is their process's."""

from __future__ import annotations

import os
import threading
import time

import psutil
import pytest

from .thread_times import REST, kind_of, thread_times_ms

USED_S = 0.3


@pytest.mark.parametrize(
    ("thread", "kind"),
    [
        ("RpcServer.defau", "requests"),
        ("data-plane-kafk", "requests"),
        ("C2 CompilerThre", "the JVM's compilers"),
        ("GC Thread#0", "garbage collection"),
        ("MemStoreFlusher", "flushes"),
        ("python", REST),
    ],
)
def test_a_name_tells_the_kind(thread: str, kind: str) -> None:
    assert kind_of(thread) == kind


def test_what_ended_threads_used_is_in_the_rest() -> None:
    before = sum(thread_times_ms(os.getpid()).values())

    def use() -> None:
        while time.thread_time() < USED_S:
            pass

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    times = thread_times_ms(os.getpid())
    assert sum(times.values()) - before >= 0.9 * USED_S * 1e3
    whole = psutil.Process().cpu_times()
    assert sum(times.values()) == pytest.approx((whole.user + whole.system) * 1e3, rel=0.2)
