"""Who is hung up on, so that the other callers of a port are within bounds."""

from __future__ import annotations

from hqueue.rpc.callers import STAY_MS_MIN, Bounds, Caller, Callers
from hqueue.rpc.gathering import FrameGatherer


def caller() -> Caller:
    return Caller(FrameGatherer(100))


def callers(connections_max: int = 3, held_bytes_max: int = 100) -> Callers[Caller]:
    return Callers(Bounds(connections_max, held_bytes_max, still_ms_max=10, idle_ms_max=1_000))


def answered(among: Callers[Caller], now_ms: float) -> Caller:
    """One that was answered, and is idle since then."""
    made = caller()
    among.serve(made)
    among.mark_idle(made, now_ms)
    return made


def test_nobody_goes_while_there_is_room() -> None:
    among = callers()
    for now_ms in (0, 1):
        among.mark_idle(caller(), now_ms)
    assert among.has_room
    assert among.to_make_room(10_000) is None


def test_the_oldest_that_made_no_whole_call_goes_first_and_then_who_was_idle_longest() -> None:
    among = callers(connections_max=6)
    idle = [answered(among, now_ms) for now_ms in (0, 1)]
    made = [caller() for _ in range(4)]
    among.mark_idle(made[0], 10)
    among.begin(made[1], 3, 20)
    among.mark_idle(made[2], 30)
    among.begin(made[3], 3, 40)
    for each in (*made, *idle):
        assert among.to_make_room(5_000) is each
        among.drop(each)
        among.serve(caller())
    assert among.to_make_room(5_000) is None
    assert not among.has_room


def test_one_that_was_just_answered_stays_and_one_that_is_served_always() -> None:
    among = callers(connections_max=2)
    busy = caller()
    among.serve(busy)
    idle = answered(among, 1_000)
    assert among.to_make_room(1_000 + STAY_MS_MIN - 1) is None
    assert among.to_make_room(1_000 + STAY_MS_MIN) is idle


def test_what_is_held_counts_until_it_is_served_and_the_first_that_began_go_beyond_the_bound() -> (
    None
):
    among = callers(connections_max=10)
    begun = [caller() for _ in range(3)]
    for each in begun:
        among.begin(each, 30, 0)
    among.serve(begun[1])
    assert among.held_bytes == 60
    assert not list(among.surplus())
    among.move(begun[2], 90, 1)
    gone = []
    for each in among.surplus():
        gone.append(each)
        among.drop(each)
    assert (gone, among.held_bytes) == ([begun[0]], 90)


def test_a_call_has_its_time_by_its_bytes_and_may_not_stand_still() -> None:
    among = callers()
    standing, dripping, large = caller(), caller(), caller()
    for each in (standing, dripping, large):
        among.begin(each, 1, 0)
    for now_ms in range(5, 100, 5):
        for each in (dripping, large):
            among.move(each, 1, now_ms)
        large.passed_bytes += 64 * 1024
        overdue = [each for each, _ in among.overdue(now_ms)]
        assert overdue == [standing] * (now_ms > 10) + [dripping] * (now_ms > 20)


def test_who_says_nothing_has_its_time_too() -> None:
    among = callers()
    new = caller()
    among.mark_idle(new, 0)
    idle = answered(among, 500)
    assert not among.overdue(999)
    assert [each for each, _ in among.overdue(1_000)] == [new]
    assert [each for each, _ in among.overdue(1_500)] == [new, idle]
