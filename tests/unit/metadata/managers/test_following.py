"""Steps that wait for futures are taken as those come, and whatever ends them is the result."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from hqueue.metadata.managers.following import Steps, follow


def ended(value: int) -> Future[int]:
    future: Future[int] = Future()
    future.set_result(value)
    return future


def test_steps_go_on_when_what_they_wait_for_is_there() -> None:
    first: Future[int] = Future()
    second: Future[int] = Future()

    def steps() -> Steps[int]:
        one = yield first
        return one + (yield second)

    result = follow(steps)
    assert not result.done()
    first.set_result(1)
    assert not result.done()
    second.set_result(2)
    assert result.result(0) == 3


def test_many_steps_whose_futures_are_there_take_no_depth() -> None:
    def steps() -> Steps[int]:
        total = 0
        for number in range(10_000):
            total += yield ended(number)
        return total

    assert follow(steps).result(0) == sum(range(10_000))


def test_an_error_comes_to_the_step_that_waits_and_ends_it_unless_it_is_caught() -> None:
    def caught(broken: Future[int]) -> Steps[str]:
        try:
            yield broken
        except ValueError:
            return "caught"
        return "missed"

    def uncaught(broken: Future[int]) -> Steps[str]:
        yield broken
        return "missed"

    broken: Future[int] = Future()
    results = [follow(lambda s=steps: s(broken)) for steps in (caught, uncaught)]  # type: ignore[misc]
    broken.set_exception(ValueError())
    assert results[0].result(0) == "caught"
    assert isinstance(results[1].exception(0), ValueError)


def test_an_error_of_a_step_itself_is_the_result() -> None:
    def steps() -> Steps[int]:
        raise ZeroDivisionError
        yield ended(1)

    with pytest.raises(ZeroDivisionError):
        follow(steps).result(0)
