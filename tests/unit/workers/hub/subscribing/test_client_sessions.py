"""Sessions of subscribers' clients: how many there may be, and which ones go."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hqueue import BufferFullError, InvalidInputError
from hqueue.net.quotas import PortQuotas, QuotaRules
from hqueue_workers.hub.subscribing.client_sessions import (
    ClientSessions,
    SessionEnd,
    SessionEndReason,
    SessionKey,
)
from tests.support.doubles import SteppedClock


def few(**bounds: Any) -> ClientSessions:
    """Few sessions are kept at a time."""
    return ClientSessions(60_000, sessions_max=6, owner_sessions_max=3, **bounds)


def is_there(known: ClientSessions, name: str, principal: str | None = None) -> bool:
    try:
        asyncio.run(known.wait(SessionKey(name, principal), 0))
    except InvalidInputError:
        return False
    return True


def test_an_address_that_makes_ever_new_sessions_loses_its_own_oldest_and_no_other_s() -> None:
    known = few()
    known.heard(SessionKey("honest"), "10.0.0.1")
    for number in range(100):
        known.heard(SessionKey(f"s{number}"), "10.0.0.2")
    assert is_there(known, "honest")
    assert [n for n in range(100) if is_there(known, f"s{n}")] == [97, 98, 99]


def test_with_proof_the_sessions_are_the_principals_wherever_it_calls_from() -> None:
    known = few()
    known.heard(SessionKey("honest", "reader"), "10.0.0.1")
    for number in range(10):
        known.heard(SessionKey(f"s{number}", "other"), "10.0.0.1")
    assert is_there(known, "honest", "reader")
    known.heard(SessionKey("elsewhere", "other"), "10.0.0.2")
    assert not is_there(known, "s7", "other")


def test_beyond_its_quota_a_caller_gets_no_session_until_one_of_its_own_is_over() -> None:
    clock = SteppedClock()
    quotas = PortQuotas("hub", QuotaRules("reader:sessions=2, anonymous:sessions=1"), clock)
    known = few(clock=clock, quotas=quotas)
    known.heard(SessionKey("one", "reader"), "10.0.0.1")
    clock.now_ms += 50_000
    known.heard(SessionKey("two", "reader"), "10.0.0.2")
    with pytest.raises(BufferFullError, match="as many sessions as its quota allows") as caught:
        known.heard(SessionKey("three", "reader"), "10.0.0.3")
    assert (caught.value.limit, caught.value.held_max) == ("sessions", 2)
    known.heard(SessionKey("two", "reader"), "10.0.0.2")
    known.heard(SessionKey("other", "loader"), "10.0.0.1")
    known.heard(SessionKey("open"), "10.0.0.1")
    with pytest.raises(BufferFullError):
        known.heard(SessionKey("open2"), "10.0.0.1")
    known.heard(SessionKey("open3"), "10.0.0.2")
    assert quotas.refused == {"sessions": 2}
    clock.now_ms += 20_000
    known.heard(SessionKey("three", "reader"), "10.0.0.3")


def test_for_one_more_than_all_may_have_the_one_goes_of_which_nothing_was_heard_for_longest() -> (
    None
):
    known = few()
    for number in range(6):
        known.heard(SessionKey(f"s{number}"), f"10.0.0.{number}")
    assert is_there(known, "s0")
    known.heard(SessionKey("new"), "10.0.1.1")
    assert [n for n in range(6) if is_there(known, f"s{n}")] == [0, 2, 3, 4, 5]
    assert is_there(known, "new")


def test_a_call_that_waits_in_a_session_that_goes_is_answered() -> None:
    async def run() -> list[SessionEnd]:
        known = few()
        known.heard(SessionKey("first"), "h")
        waiting = asyncio.ensure_future(known.wait(SessionKey("first"), 30_000))
        await asyncio.sleep(0)
        for number in range(3):
            known.heard(SessionKey(f"s{number}"), "h")
        return await asyncio.wait_for(waiting, 10)

    assert asyncio.run(run()) == []


def test_calls_from_one_address_that_wait_are_bounded_in_time_beyond_some() -> None:
    async def run() -> None:
        known = few(owner_waits_max=1, short_wait_ms=50)
        waits = {}
        for name, host in (("first", "a"), ("second", "a"), ("third", "b"), ("fourth", "b")):
            known.heard(SessionKey(name), host)
            waits[name] = asyncio.ensure_future(known.wait(SessionKey(name), 30_000))
            await asyncio.sleep(0)
        ended, left = await asyncio.wait(waits.values(), timeout=1)
        assert ended == {waits["second"], waits["fourth"]}
        assert left == {waits["first"], waits["third"]}
        known.detached(SessionKey("first"), "t", "sub", SessionEndReason.REPLACED)
        assert len(await asyncio.wait_for(waits["first"], 10)) == 1
        again = asyncio.ensure_future(
            known.wait(SessionKey("second"), 30_000)
        )  # There is room again.
        assert not (await asyncio.wait({again}, timeout=0.2))[0]
        for task in (again, waits["third"]):
            task.cancel()
        await asyncio.wait({again, waits["third"]})

    asyncio.run(run())


def test_what_was_detached_is_told_once() -> None:
    known = few()
    known.heard(SessionKey("s"), "h")
    known.detached(SessionKey("s"), "t", "sub", SessionEndReason.REPLACED)
    assert asyncio.run(known.wait(SessionKey("s"), 0)) == [
        SessionEnd("t", "sub", SessionEndReason.REPLACED)
    ]
    assert asyncio.run(known.wait(SessionKey("s"), 0)) == []
