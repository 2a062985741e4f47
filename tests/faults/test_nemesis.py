"""The nemesis carries out each track in its order, mends what it began, and says what failed."""

from __future__ import annotations

import itertools
import threading

import pytest

from . import nemesis as module
from .nemesis import Harm, Nemesis, NotDoneError
from .schedule import Planned, Track


def endless(*faults: str) -> Track:
    """These faults again and again, in a moment each."""
    return Track("t", faults, (Planned(f, 0.0, 0.0, 0, 0.0) for f in itertools.cycle(faults)))


def once(*faults: str) -> Track:
    """Each of these faults in turn, in a moment each."""
    return Track("t", faults, itertools.islice(endless(*faults).planned, len(faults)))


def test_faults_of_a_track_come_in_order_and_are_mended_before_the_next() -> None:
    done: list[str] = []

    def kind(name: str) -> Harm:
        done.append(name)
        return Harm(name, lambda: done.append(f"{name} mended"))

    nemesis = Nemesis({"a": lambda _: kind("a"), "b": lambda _: kind("b")}, lambda _: None)
    nemesis.run([once("a", "b", "a")], 60)
    assert done == ["a", "a mended", "b", "b mended", "a", "a mended"]
    assert [event.fault for event in nemesis.events] == ["a", "b", "a"]
    assert all(event.began_s <= event.ended_s for event in nemesis.events)


def test_tracks_run_beside_each_other() -> None:
    met = threading.Barrier(2, timeout=30)
    kinds = {name: lambda _: Harm("", met.wait) for name in "ab"}
    Nemesis(kinds, lambda _: None).run([once("a"), once("b")], 60)


def test_a_fault_that_does_not_work_is_named_and_the_others_go_on() -> None:
    def fail(_: Planned) -> Harm:
        raise NotDoneError("no such server")

    nemesis = Nemesis({"a": fail, "b": lambda _: Harm("b")}, lambda _: None)
    nemesis.run([once("a", "b")], 60)
    assert [event.problem for event in nemesis.events] == ["no such server", ""]


def test_every_kind_comes_once_however_long_it_takes_and_none_twice_then() -> None:
    nemesis = Nemesis({name: lambda _: Harm("") for name in "ab"}, lambda _: None)
    nemesis.run([endless("a", "b")], 0)
    assert [event.fault for event in nemesis.events] == ["a", "b"]


def test_after_the_time_only_what_has_not_worked_is_tried_again() -> None:
    tries = itertools.count(1)

    def work_at_last(_: Planned) -> Harm:
        if next(tries) < 3:
            raise NotDoneError("not yet")
        return Harm("a")

    nemesis = Nemesis({"a": work_at_last, "b": lambda _: Harm("b")}, lambda _: None)
    nemesis.run([endless("a", "b")], 0)
    came = [(event.fault, event.problem) for event in nemesis.events]
    assert came == [("a", "not yet"), ("b", ""), ("a", "not yet"), ("a", "")]


def test_what_never_works_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Planned) -> Harm:
        raise NotDoneError("no such server")

    monkeypatch.setattr(module, "EXTRA_EACH_S", 0.2)
    nemesis = Nemesis({"a": fail}, lambda _: None)
    nemesis.run([endless("a")], 0)
    assert {event.problem for event in nemesis.events} == {"no such server"}


def test_a_part_ends_with_its_time_whatever_has_come() -> None:
    nemesis = Nemesis({"a": lambda _: Harm("")}, lambda _: None)
    nemesis.run([endless("a")], 0, all_kinds=False)
    assert nemesis.events == []


def test_a_kind_comes_as_often_as_it_must() -> None:
    nemesis = Nemesis({name: lambda _: Harm("") for name in "ab"}, lambda _: None)
    track = endless("a", "b")
    nemesis.run([Track("t", track.faults, track.planned, {"b": 3})], 0)
    assert [event.fault for event in nemesis.events] == ["a", "b", "b", "b"]


def test_no_fault_begins_after_it_was_stopped() -> None:
    nemesis = Nemesis({"a": lambda _: Harm("", nemesis.stop)}, lambda _: None)
    nemesis.run([endless("a")], 60)
    assert len(nemesis.events) == 1
