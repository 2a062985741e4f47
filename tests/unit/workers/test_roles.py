"""Roles of one process: they end together, and the first error is reported."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from hqueue import SettingsError
from hqueue_workers import WorkerSettings
from hqueue_workers.roles import run_together


class Part:
    """Runs until it is told to end, or fails at once."""

    def __init__(self, *, fails: bool = False) -> None:
        self._fails = fails
        self.ended = False

    async def run(self, stopping: asyncio.Event) -> None:
        if self._fails:
            raise ValueError("it failed")
        await stopping.wait()
        await asyncio.sleep(0)
        self.ended = True


def run(parts: Sequence[Part], *, stop: bool) -> None:
    async def all_of_it() -> None:
        stopping = asyncio.Event()
        if stop:
            asyncio.get_running_loop().call_soon(stopping.set)
        await asyncio.wait_for(run_together(parts, stopping), 60)

    asyncio.run(all_of_it())


def test_all_end_when_they_are_told() -> None:
    parts = [Part(), Part()]
    run(parts, stop=True)
    assert all(part.ended for part in parts)


@pytest.mark.parametrize("order", [1, -1])
def test_when_one_fails_the_others_end_and_its_error_is_told(order: int) -> None:
    whole = Part()
    with pytest.raises(ValueError, match="it failed"):
        run([whole, Part(fails=True)][::order], stop=False)
    assert whole.ended


def test_a_worker_is_a_hub_by_a_setting() -> None:
    assert WorkerSettings(hub_queues=" a, b ").hub_queue_names == ["a", "b"]
    assert WorkerSettings(hub_queues="a", push=False).hub_queue_names == ["a"]
    assert WorkerSettings().hub_queue_names == []
    for wrong in ("a b", "a/b"):
        with pytest.raises(SettingsError):
            WorkerSettings(hub_queues=wrong)
    with pytest.raises(SettingsError):
        WorkerSettings(push=False)
