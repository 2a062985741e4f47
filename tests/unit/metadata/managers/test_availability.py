"""Whether hubs are available is asked once for all that ask at a time, and never too early."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from hqueue import Address, StoreUnavailableError
from hqueue.metadata.managers import HubInfo
from hqueue.metadata.managers.availability import Availability

WAIT_S = 60.0
ME, OTHER = (HubInfo(Address("h", port), "i") for port in (1, 2))


class Hubs:
    """Says what it is told to say, when it is let."""

    def __init__(self) -> None:
        self.asked: list[HubInfo] = []
        self.reached = threading.Semaphore(0)
        self.go_on = threading.Semaphore(0)
        self.answer: bool | Exception = True

    def is_available(self, hub: HubInfo) -> bool:
        self.asked.append(hub)
        answer = self.answer
        self.reached.release()
        assert self.go_on.acquire(timeout=WAIT_S)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as threads:
        yield threads


def test_those_that_ask_meanwhile_share_the_next_answer(pool: ThreadPoolExecutor) -> None:
    hubs = Hubs()
    availability = Availability(hubs, pool.submit)
    first = availability.ask(ME)
    assert hubs.reached.acquire(timeout=WAIT_S)
    hubs.answer = False
    later = [availability.ask(ME) for _ in range(20)]
    hubs.go_on.release()
    assert first.result(WAIT_S), "as it was then"
    assert hubs.reached.acquire(timeout=WAIT_S)
    hubs.go_on.release()
    assert [each.result(WAIT_S) for each in later] == [False] * 20, "asked after they had asked"
    assert hubs.asked == [ME, ME]


def test_one_hub_waits_for_no_other(pool: ThreadPoolExecutor) -> None:
    hubs = Hubs()
    availability = Availability(hubs, pool.submit)
    asked = [availability.ask(each) for each in (ME, OTHER)]
    for _ in asked:
        assert hubs.reached.acquire(timeout=WAIT_S)
    hubs.go_on.release(2)
    assert [each.result(WAIT_S) for each in asked] == [True, True]


def test_an_error_is_the_answer_to_each_as_one_of_its_own(pool: ThreadPoolExecutor) -> None:
    hubs = Hubs()
    availability = Availability(hubs, pool.submit)
    availability.ask(ME)
    assert hubs.reached.acquire(timeout=WAIT_S)
    hubs.answer = StoreUnavailableError("not now")
    later = [availability.ask(ME) for _ in range(2)]
    hubs.go_on.release(2)
    errors = [each.exception(WAIT_S) for each in later]
    assert all(isinstance(each, StoreUnavailableError) for each in errors)
    assert errors[0] is not errors[1]
    hubs.answer = True
    again = availability.ask(ME)
    hubs.go_on.release()
    assert again.result(WAIT_S)


@pytest.mark.parametrize("error", [None, StoreUnavailableError("not now")])
def test_one_that_waits_no_more_keeps_the_answer_from_no_other(
    pool: ThreadPoolExecutor, error: Exception | None
) -> None:
    hubs = Hubs()
    hubs.answer = error or True
    availability = Availability(hubs, pool.submit)
    asked = [availability.ask(ME)]
    assert hubs.reached.acquire(timeout=WAIT_S)
    asked += [availability.ask(ME) for _ in range(2)]
    for impatient in asked[:2]:
        impatient.cancel()  # As a time-out of asyncio's does.
    hubs.go_on.release(2)
    assert type(asked[2].exception(WAIT_S)) is type(error)


def test_what_cannot_be_begun_is_an_error_and_the_next_is_asked_again() -> None:
    hubs = Hubs()
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    availability = Availability(hubs, pool.submit)
    for _ in range(2):
        assert isinstance(availability.ask(ME).exception(WAIT_S), RuntimeError)
    assert hubs.asked == []
