"""Memory that was freed is used again."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from hqueue.runtime.memory import without_collection

FAULTS = """
import resource, sys
import hqueue.runtime.memory
if {keep}:
    hqueue.runtime.memory.keep_freed()
parts = [bytes(100)] * 20_000

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def work():
    for _ in range(20):
        one, two = b"".join(parts), b"".join(parts)
        del one, two

work()
before = faults()
work()
print(faults() - before)
"""


def faults(*, keep: bool) -> int:
    """Pages that the system had to hand out while values of 2 MB came and went."""
    program = FAULTS.format(keep=keep)
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    )
    return int(done.stdout)


def test_values_as_large_as_batches_come_and_go_without_the_system() -> None:
    assert faults(keep=True) < faults(keep=False) / 10


def test_collection_stands_still_while_anybody_needs_that_and_no_longer() -> None:
    assert gc.isenabled()
    with without_collection():
        with without_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with without_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_was_made_meanwhile_is_looked_through_with_all_there_is_and_not_before() -> None:
    with without_collection():
        made = [[number] for number in range(2_000)]
    young = {id(each) for age in (0, 1) for each in gc.get_objects(generation=age)}
    assert not young & {id(each) for each in made}
    assert not gc.get_freeze_count()


def test_what_the_process_has_frozen_stays_so() -> None:
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with without_collection():
            pass
        assert gc.get_freeze_count() >= frozen // 2
    finally:
        gc.unfreeze()


@pytest.mark.parametrize("where", ["isenabled", "disable", "enable", "get_freeze_count"])
def test_what_interrupts_a_pause_of_collection_may_pause_it_too_and_it_goes_on_behind_both(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_on, called = gc.isenabled, getattr(gc, where)
    handled: list[bool] = []

    def interrupted() -> object:
        result = called()
        if not handled:
            handled.append(True)
            with without_collection():
                assert not is_on()
        return result

    monkeypatch.setattr(gc, where, interrupted)
    assert is_on()
    for _ in range(2):
        with without_collection():
            assert not is_on()
        assert is_on()
    assert handled
