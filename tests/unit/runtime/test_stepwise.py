"""A method that is written as work has three faces, and one text."""

from __future__ import annotations

import asyncio

import pytest

from hqueue.runtime.steps import Pause, Work, carry_out
from hqueue.runtime.stepwise import stepwise


class Echo:
    """Answers a pause with how long it is; the loop's answers are negative."""

    def _do(self, step: Pause) -> float:
        if step.duration_ms < 0:
            raise ValueError("negative")
        return step.duration_ms

    async def _do_in_loop(self, step: Pause) -> float:
        await asyncio.sleep(0)
        return -self._do(step)

    @stepwise
    def twice(self, first_ms: float, *, then_ms: float = 2.0) -> Work[Pause, list[float]]:
        """Both answers."""
        return [(yield Pause(first_ms)), (yield Pause(then_ms))]

    @stepwise
    def forgiving(self, first_ms: float) -> Work[Pause, list[float]]:
        try:
            return (yield from self.twice.steps(first_ms))
        except ValueError:
            return []


def test_called_it_is_carried_out_here_and_in_a_loop_it_is_awaited() -> None:
    assert Echo().twice(1.0, then_ms=3.0) == [1.0, 3.0]
    assert asyncio.run(Echo().twice.in_loop(1.0)) == [-1.0, -2.0]
    assert carry_out(Echo().twice.steps(5.0), lambda step: step.duration_ms) == [5.0, 2.0]


def test_what_a_step_raises_is_raised_in_the_work_and_passes_through_it() -> None:
    with pytest.raises(ValueError, match="negative"):
        Echo().twice(-1.0)
    with pytest.raises(ValueError, match="negative"):
        asyncio.run(Echo().twice.in_loop(-1.0))
    assert Echo().forgiving(-1.0) == []
    assert asyncio.run(Echo().forgiving.in_loop(-1.0)) == []


def test_where_the_awaiting_task_is_cancelled_the_work_learns_of_it() -> None:
    told: list[str] = []

    class Patient(Echo):
        async def _do_in_loop(self, step: Pause) -> float:
            await asyncio.sleep(60)
            return 0.0

        @stepwise
        def wait(self) -> Work[Pause, None]:
            try:
                yield Pause(1.0)
            except asyncio.CancelledError:
                told.append("cancelled")
                raise

    async def cancel() -> None:
        task = asyncio.ensure_future(Patient().wait.in_loop())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert told == ["cancelled"]


def test_it_is_documented_as_it_is_written() -> None:
    assert Echo.twice.__doc__ == "Both answers."
