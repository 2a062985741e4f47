"""How long a thread may have Python's lock while a large call is read."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator

import pytest

from hqueue.runtime.switch_interval import TURN_S, short_turns


@pytest.fixture(autouse=True)
def _usual() -> Iterator[None]:
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(0.005)
    yield
    sys.setswitchinterval(before_s)


def test_turns_are_short_while_anybody_needs_that_and_no_longer() -> None:
    with short_turns():
        with short_turns():
            assert sys.getswitchinterval() == pytest.approx(TURN_S)
        assert sys.getswitchinterval() == pytest.approx(TURN_S)
    assert sys.getswitchinterval() == pytest.approx(0.005)


def test_an_interval_that_the_process_has_set_meanwhile_stays_and_a_shorter_one_is_kept() -> None:
    with short_turns():
        sys.setswitchinterval(0.02)
    assert sys.getswitchinterval() == pytest.approx(0.02)
    sys.setswitchinterval(0.0001)
    own_s = sys.getswitchinterval()
    for _ in range(10):
        with short_turns():
            assert sys.getswitchinterval() == own_s
        assert sys.getswitchinterval() == own_s


def test_a_child_that_is_forked_meanwhile_has_the_usual_interval() -> None:
    begun, may_end = threading.Event(), threading.Event()

    def hold() -> None:
        with short_turns():
            begun.set()
            may_end.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    begun.wait(30)
    child = os.fork()
    if not child:
        os._exit(int(sys.getswitchinterval() < 0.004))
    _, status = os.waitpid(child, 0)
    may_end.set()
    holder.join()
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.parametrize("where", ["getswitchinterval", "setswitchinterval"])
@pytest.mark.parametrize("when", range(1, 4))
def test_what_interrupts_one_that_shortens_turns_may_do_so_too_and_they_are_long_behind_both(
    where: str, when: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn_s, called, calls = sys.getswitchinterval, getattr(sys, where), 0

    def interrupted(*given: float) -> object:
        nonlocal calls
        calls += 1
        result = called(*given)
        if calls == when:
            with short_turns():
                assert turn_s() <= 0.005
        return result

    monkeypatch.setattr(sys, where, interrupted)
    for _ in range(2):
        with short_turns():
            assert turn_s() == pytest.approx(TURN_S)
        assert turn_s() == pytest.approx(0.005)
    assert calls >= when
