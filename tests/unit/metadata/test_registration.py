"""Registrations outlast sessions, wait for holders that may be dead, and give up where another
came.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from hqueue import HQueueError, RequestRefusedError, StoreUnavailableError
from hqueue.metadata.ports import ANY, Change, Obstacle
from hqueue.metadata.registration import Registration
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock
from hqueue.runtime.loop import background, in_thread
from hqueue.runtime.steps import Pause
from tests.support.doubles import SteppedClock
from tests.support.memory.metadata import MemoryServer, MemorySession
from tests.support.waiting import wait_for

SESSION_MS = 2_000
GROUPS = [{f"/top/{number}/what": b"what", f"/top/{number}/who": b"me"} for number in range(3)]
KEYS = [key for group in GROUPS for key in group]


class TakenError(HQueueError):
    """The name is another's, or what is above it is missing. Fact: `obstacle`."""


class Scene:
    """A server with two clients, and what the first one's registrations came to."""

    def __init__(self) -> None:
        stepped = SteppedClock()
        self.clock: Clock = stepped
        self.stepped = stepped
        self.server = MemoryServer(clock=self.clock, session_timeout_ms=SESSION_MS)
        self.one, self.other = self.server.open(), self.server.open()
        self.failures: list[HQueueError] = []
        self.one.records.create({f"/top/{number}": b"v" for number in range(3)})

    def register(self, store: MemorySession, who: bytes = b"me", **options: Any) -> Registration:
        registration = Registration(
            store,
            [{key: who if key.endswith("who") else v for key, v in g.items()} for g in GROUPS],
            is_own=lambda value: value == who,
            on_obstacle=lambda obstacle: TakenError("taken", obstacle=obstacle),
            on_failure=self.failures.append,
            clock=self.clock,
            **options,
        )
        registration.begin()
        return registration

    def seen(self) -> set[bytes]:
        """Whose the names are."""
        found = self.other.records.read(KEYS)
        return {record.value for key, record in found.items() if key.endswith("who")}

    def count(self) -> int:
        return len(self.other.records.read(KEYS))


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.one.close()
    scene.other.close()


def test_it_is_there_until_it_is_closed_and_leaves_no_thread(scene: Scene) -> None:
    assert background() is not None  # The process's, which stays.
    before = set(threading.enumerate())
    registration = scene.register(scene.one)
    assert set(threading.enumerate()) <= before, "it has none of its own"
    assert (scene.count(), scene.seen()) == (6, {b"me"})
    registration.close()
    registration.close()
    assert scene.count() == 0
    assert scene.stepped.now_ms == 0, "nobody waited"
    wait_for(lambda: set(threading.enumerate()) <= before, "what waited for the store has ended")


def test_one_that_lives_is_waited_for_as_long_as_a_dead_one_would_stay_and_nothing_is_left(
    scene: Scene,
) -> None:
    scene.other.ephemerals.claim({"/top/2/who": b"other"})
    with pytest.raises(TakenError) as caught:
        scene.register(scene.one)
    assert caught.value.obstacle == Obstacle("/top/2/who", b"other")
    assert scene.stepped.now_ms >= 1.5 * SESSION_MS + 1_000
    assert (scene.count(), scene.seen()) == (1, {b"other"})


def test_one_that_died_makes_room_when_its_session_is_over(scene: Scene) -> None:
    scene.register(scene.other, b"other")
    scene.other.suspend()
    scene.register(scene.one)
    assert SESSION_MS <= scene.stepped.now_ms < 1.5 * SESSION_MS
    found = scene.one.records.read(KEYS)
    assert {record.value for record in found.values()} == {b"me", b"what"}


def test_one_that_can_only_be_dead_is_replaced_at_once(scene: Scene) -> None:
    old = scene.register(scene.other)
    scene.other.suspend()
    scene.register(scene.one)
    assert scene.stepped.now_ms == 0
    before = scene.one.records.read(KEYS)
    old.close()
    scene.other.resume()
    assert scene.one.records.read(KEYS) == before, "the old one removes only what is its own"


def test_where_what_is_above_is_missing_it_is_refused_at_once_and_nothing_is_left(
    scene: Scene,
) -> None:
    scene.one.records.delete({"/top/1": ANY})
    with pytest.raises(TakenError) as caught:
        scene.register(scene.one)
    assert caught.value.obstacle == Obstacle("/top/1/who", None)
    assert (scene.count(), scene.stepped.now_ms) == (0, 0)


def test_after_its_session_ended_it_is_made_again_with_what_it_became(scene: Scene) -> None:
    registration = scene.register(scene.one)
    registration.replace({"/top/0/what": b"new", "/elsewhere": b"?"})
    before = scene.other.records.read(KEYS)
    assert before["/top/0/what"].value == b"new"
    for _ in range(3):
        scene.one.expire()
        wait_for(lambda: scene.count() == 6, "it is present again")
    after = scene.other.records.read([*KEYS, "/elsewhere"])
    assert {key: record.value for key, record in after.items()} == {
        key: record.value for key, record in before.items()
    }
    assert all(after[key].changed > before[key].changed for key in KEYS)
    assert (registration.failure, scene.failures) == (None, [])


def test_a_cut_that_is_shorter_than_the_session_changes_nothing(scene: Scene) -> None:
    scene.register(scene.one)
    before = scene.other.records.read(KEYS)
    scene.one.suspend()
    scene.stepped.now_ms += SESSION_MS - 1
    assert scene.other.records.read(KEYS) == before
    scene.one.resume()
    scene.stepped.now_ms += SESSION_MS
    assert scene.other.records.read(KEYS) == before


def test_one_that_comes_back_when_another_has_the_name_is_told_so_and_harms_nothing(
    scene: Scene,
) -> None:
    registration = scene.register(scene.one)
    scene.one.suspend()
    scene.register(scene.other, b"other")
    before = scene.other.records.read(KEYS)
    scene.one.resume()
    wait_for(lambda: scene.failures, "the failure is reported")
    assert registration.failure is scene.failures[0]
    assert isinstance(registration.failure, TakenError)
    registration.close()
    assert scene.other.records.read(KEYS) == before


def test_one_that_can_not_be_reached_when_its_session_is_over_goes_on_trying(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.register(scene.one)
    put, failing = scene.one.ephemerals.put, [True, True]

    def fail_at_first(*args: object, **options: object) -> object:
        if failing:
            failing.pop()
            raise StoreUnavailableError("not now")
        return put(*args, **options)  # type: ignore[arg-type]

    scene.one.ephemerals.put = fail_at_first  # type: ignore[assignment,method-assign]
    scene.one.expire()
    wait_for(lambda: scene.count() == 6, "it is present again")
    assert caplog.text.count("could not be restored yet") == 1, "once, for it lasts"
    wait_for(lambda: "a registration in ZooKeeper was restored" in caplog.text, "it says so")
    assert caplog.text.count("a registration in ZooKeeper was restored") == 1
    assert scene.failures == []


def test_one_whose_turn_to_be_made_again_does_not_come_in_time_goes_on_trying(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    registration = scene.register(scene.one, making_s=0.01)
    under_way = registration._making.take((step for step in [Pause(1)]), 1)
    assert next(under_way) == Pause(1)
    scene.one.expire()
    wait_for(lambda: "could not be restored yet" in caplog.text, "its turn does not come")
    under_way.close()
    wait_for(lambda: scene.count() == 6, "it is present again")
    assert scene.failures == []


def test_a_session_that_ends_while_it_is_made_does_not_count(scene: Scene) -> None:
    put, on_state, ends = scene.one.ephemerals.put, scene.one.on_state, [True]
    made: list[int] = []

    def end_meanwhile(*args: object, **options: object) -> object:
        attempt = put(*args, **options)  # type: ignore[arg-type]
        if ends:
            ends.pop()
            scene.one.expire()
        return attempt

    def listen(*args: object) -> object:
        made.append(scene.count())
        return on_state(*args)  # type: ignore[arg-type]

    scene.one.ephemerals.put = end_meanwhile  # type: ignore[assignment,method-assign]
    scene.one.on_state = listen  # type: ignore[assignment,method-assign]
    scene.register(scene.one)
    assert made == [6], "it is present when it is waited for no more"


def test_what_says_that_it_is_there_goes_first_and_nobody_waits_for_it(scene: Scene) -> None:
    release = scene.one.ephemerals.release
    released: list[tuple[list[str], bool]] = []

    def record(keys: Iterable[str], *, wait: bool = True) -> None:
        released.append(([*keys], wait))
        release(released[-1][0], wait=wait)

    scene.one.ephemerals.release = record  # type: ignore[method-assign]
    scene.register(scene.one).close()
    assert released == [(KEYS[::-1], False)]
    assert scene.count() == 0


def test_one_that_is_closed_while_it_is_cut_off_disappears_with_its_session(scene: Scene) -> None:
    registration = scene.register(scene.one)
    scene.one.suspend()
    registration.close()
    assert scene.count() == 6
    scene.stepped.now_ms += SESSION_MS
    assert scene.count() == 0
    scene.one.resume()
    assert scene.count() == 0


def test_one_whose_store_refuses_to_make_it_again_says_so(scene: Scene) -> None:
    registration = scene.register(scene.one)
    refusal = RequestRefusedError("no right to do so")

    def refuse(*args: object, **options: object) -> object:
        raise refusal

    scene.one.ephemerals.put = refuse  # type: ignore[assignment,method-assign]
    scene.one.expire()
    wait_for(lambda: scene.failures == [refusal], "the failure is reported")
    assert registration.failure is refusal


def test_its_failure_is_told_as_soon_as_there_is_a_thread_for_that(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.register(scene.one)
    refusal, asked = RequestRefusedError("no right to do so"), list[object]()

    def refuse(*args: object, **options: object) -> object:
        raise refusal

    async def rarely(*called: Any) -> None:
        asked.append(called)
        if len(asked) < 3:
            raise StoreUnavailableError(
                "no thread for waiting became free in time: try again with fewer calls at a time"
            )
        await in_thread(*called)

    monkeypatch.setattr("hqueue.runtime.loop.in_thread", rarely)
    scene.one.ephemerals.put = refuse  # type: ignore[assignment,method-assign]
    scene.one.expire()
    wait_for(lambda: scene.failures == [refusal], "the failure is reported")


def test_a_foreign_record_in_the_place_of_a_name_is_one_that_stays(scene: Scene) -> None:
    scene.other.records.create({"/top/0/who": b"a record"})
    with pytest.raises(TakenError):
        scene.register(scene.one)
    scene.other.records.write({"/top/0/who": Change(b"me", ANY)})
    scene.register(scene.one)
    assert scene.seen() == {b"me"}


def test_what_another_hand_removed_is_made_again_whatever_part_of_it_and_how_often(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    registration = scene.register(scene.one)
    registration.replace({"/top/0/what": b"new"})
    before = {key: record.value for key, record in scene.other.records.read(KEYS).items()}
    for removed in (KEYS, KEYS[:1], KEYS[3:4], KEYS):
        scene.other.records.delete(dict.fromkeys(removed, ANY))
        wait_for(lambda: scene.count() == 6, "it is present again")
        found = scene.other.records.read(KEYS)
        assert {key: record.value for key, record in found.items()} == before
    assert "another program removed" in caplog.text
    assert (registration.failure, scene.failures) == (None, [])


def test_what_another_session_took_away_and_left_is_made_again_by_the_one_that_lives(
    scene: Scene,
) -> None:
    scene.clock = SYSTEM_CLOCK
    scene.register(scene.one)
    before = scene.other.records.read(KEYS)
    scene.register(scene.other).close()  # It takes the one before it for dead.
    wait_for(lambda: scene.count() == 6, "the one that lives is present again")
    after = scene.one.records.read(KEYS)
    assert all(after[key].changed > before[key].changed for key in KEYS)
    assert scene.failures == []


def test_what_another_session_put_in_its_place_and_keeps_ends_it_with_the_reason(
    scene: Scene,
) -> None:
    registration = scene.register(scene.one)
    scene.register(scene.other)  # At the very same address: it takes the one before it for dead.
    before = scene.other.records.read(KEYS)
    wait_for(lambda: scene.failures, "it ends with the reason")
    assert isinstance(registration.failure, TakenError)
    registration.close()
    assert scene.other.records.read(KEYS) == before, "two that are alive do not take turns"


def test_what_is_left_behind_is_its_successor_s_and_goes_with_the_session(scene: Scene) -> None:
    registration = scene.register(scene.one)
    registration.leave_behind({"/top/0/who": b"left"})
    assert scene.seen() == {b"me", b"left"}
    scene.other.records.delete(dict.fromkeys(KEYS, ANY))
    scene.one.suspend()
    scene.one.resume()
    assert scene.count() == 0, "nobody makes it again"


def test_a_fault_while_it_is_made_again_is_its_failure_and_no_silent_end(scene: Scene) -> None:
    registration = scene.register(scene.one)

    def fail(*args: object, **options: object) -> object:
        raise SystemExit("a fault")

    scene.one.ephemerals.put = fail  # type: ignore[assignment,method-assign]
    scene.one.expire()
    wait_for(lambda: scene.failures, "its owner learns of it")
    assert registration.failure is scene.failures[0]
    assert scene.failures[0].reason == "SystemExit('a fault')"
    registration.close()
