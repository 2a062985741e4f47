"""Runs the checks of ``hqueue doctor`` for the console."""

from __future__ import annotations

import asyncio
import itertools

from hqueue import Settings
from hqueue.doctor import Finding, examine, without_writes
from hqueue.errors import BufferFullError
from hqueue.runtime.clock import SYSTEM_CLOCK

__all__ = ["Examination"]

FINDINGS_MAX = 200


class Examination:
    """Runs the checks of ``hqueue doctor``, one run at a time, and keeps the last findings.

    Args:
        settings: the settings of the console's connection.
        writes: whether the checks may create and delete a node in ZooKeeper.
    """

    def __init__(self, settings: Settings, *, writes: bool) -> None:
        self._settings = settings
        self._writes = writes
        self._task: asyncio.Task[None] | None = None
        self.findings: list[Finding] = []
        self.ended_ms: int | None = None
        """When the last run ended."""

    @property
    def is_running(self) -> bool:
        """Whether the checks are running."""
        return self._task is not None and not self._task.done()

    def begin(self) -> None:
        """Begin a run.

        Raises:
            BufferFullError: a run is under way.
        """
        if self.is_running:
            raise BufferFullError("the checks are running already: wait for their end")
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        self.findings = await asyncio.to_thread(self._examined)
        self.ended_ms = int(SYSTEM_CLOCK.wall_ms())

    def _examined(self) -> list[Finding]:
        if self._writes:
            found = examine(lambda: self._settings)
        else:
            found = examine(lambda: self._settings, without_writes())
        return list(itertools.islice(found, FINDINGS_MAX))
