"""A task of the process's loop is woken from any thread, and no ring gets lost."""

from __future__ import annotations

import threading
import time

from hqueue.runtime.alarm import Alarm, needed_loop


def test_what_rings_before_the_task_waits_wakes_it_once() -> None:
    loop = needed_loop()
    alarm = Alarm(loop)
    alarm.ring()
    alarm.ring()

    async def wait_twice() -> list[float]:
        took = []
        for bound_ms, rings in ((60_000.0, True), (20.0, False)):
            began = time.monotonic()
            assert await alarm.wait(bound_ms) is rings
            took.append(time.monotonic() - began)
        return took

    first, second = loop.start(wait_twice).result(30)
    assert first < 20
    assert second >= 0.02


def test_a_task_that_waits_is_woken_by_another_thread() -> None:
    loop = needed_loop()
    alarm, waits = Alarm(loop), threading.Event()

    async def wait() -> str:
        waits.set()
        await alarm.wait()
        return "woken"

    woken = loop.start(wait)
    assert waits.wait(30)
    threading.Thread(target=alarm.ring).start()
    assert woken.result(30) == "woken"


def test_no_time_is_no_wait() -> None:
    loop = needed_loop()
    assert loop.start(Alarm(loop).wait, 0.0).result(30) is False
