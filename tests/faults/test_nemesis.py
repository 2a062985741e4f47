"""The nemesis carries out each track in its order, mends what it began, and says what failed."""

from __future__ import annotations

import itertools
import threading

from .nemesis import Harm, Nemesis, NotDoneError
from .schedule import Planned


def planned(*faults: str) -> list[Planned]:
    return [Planned(fault, 0.0, 0.0, 0, 0.0) for fault in faults]


def test_faults_of_a_track_come_in_order_and_are_mended_before_the_next() -> None:
    done: list[str] = []

    def kind(name: str) -> Harm:
        done.append(name)
        return Harm(name, lambda: done.append(f"{name} mended"))

    nemesis = Nemesis({"a": lambda _: kind("a"), "b": lambda _: kind("b")}, lambda _: None)
    nemesis.run({"t": planned("a", "b", "a")}, "ab", 60)
    assert done == ["a", "a mended", "b", "b mended", "a", "a mended"]
    assert [event.fault for event in nemesis.events] == ["a", "b", "a"]
    assert all(event.began_s <= event.ended_s for event in nemesis.events)


def test_tracks_run_beside_each_other() -> None:
    met = threading.Barrier(2, timeout=30)
    kinds = {name: lambda _: Harm("", met.wait) for name in "ab"}
    Nemesis(kinds, lambda _: None).run({"t": planned("a"), "u": planned("b")}, "ab", 60)


def test_a_fault_that_does_not_work_is_named_and_the_others_go_on() -> None:
    def fail(_: Planned) -> Harm:
        raise NotDoneError("no such server")

    nemesis = Nemesis({"a": fail, "b": lambda _: Harm("b")}, lambda _: None)
    nemesis.run({"t": planned("a", "b")}, "ab", 60)
    assert [event.problem for event in nemesis.events] == ["no such server", ""]


def test_every_kind_comes_once_however_long_it_takes_and_none_twice_then() -> None:
    nemesis = Nemesis({name: lambda _: Harm("") for name in "ab"}, lambda _: None)
    nemesis.run({"t": itertools.cycle(planned("a", "b"))}, "ab", 0)
    assert [event.fault for event in nemesis.events] == ["a", "b"]
