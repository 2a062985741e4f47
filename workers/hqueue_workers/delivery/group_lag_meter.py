"""Measuring how far groups of consumers are behind."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from functools import partial

from hqueue import Client, GroupDescription, HQueueError
from hqueue.engine import Engine
from hqueue.errors import GroupNotFoundError
from hqueue.runtime.logs import Log
from hqueue_workers.node.measuring import measure_again_and_again
from hqueue_workers.node.runtime import Runtime

__all__ = ["GroupLagMeter"]

logger = Log(__name__)

EVERY_MS = 10_000.0


class GroupLagMeter:
    """Measures the lags of the groups of this worker. Each group belongs to one worker.

    Workers find theirs without coordination: a group belongs to the present worker whose name,
    hashed with the group's, is greatest. So a worker that comes or goes changes this for few
    groups. Groups whose queues have no subscribers are measured as well. Lags that can't be
    measured are not reported.

    Args:
        client: the connection.
        runtime: what the worker runs on.
    """

    def __init__(self, client: Client, runtime: Runtime) -> None:
        self.measured: Sequence[GroupDescription] = ()
        """The groups of this worker, as last measured."""
        self._client = client
        self._runtime = runtime

    async def run(self, name: str) -> None:
        """Measure as the worker of this name, until cancelled."""
        await measure_again_and_again(self._runtime, EVERY_MS, partial(self._measure, name))

    async def _measure(self, name: str) -> None:
        measured: list[GroupDescription] = []
        try:
            for group in await self._runtime.coordinate(partial(self._own, name)):
                try:
                    found = await self._runtime.read(partial(self._client.describe_group, group))
                except GroupNotFoundError:
                    continue  # It was deleted meanwhile, or is empty.
                measured.append(found)
                self._note_unreadable(group, found)
        except HQueueError as exc:
            logger.debug("can't measure the groups' lag: %s", exc)
        self.measured = measured

    def _note_unreadable(self, group: str, found: GroupDescription) -> None:
        """Say when partitions of a group can't be measured, and when all can be again."""
        fault = f"measuring {group}"
        unreadable = [each.unreadable for each in found.partitions if each.unreadable]
        if unreadable:
            text = "the lag of %d partitions of group %s can't be measured; the first: %s"
            self._runtime.faults.met(fault, text, len(unreadable), group, unreadable[0])
        else:
            self._runtime.faults.over(
                fault, ("the lag of all partitions of group %s is measured again"), group
            )

    def _own(self, name: str) -> list[str]:
        """The groups that are this worker's."""
        workers = self._client.coordination.workers.list()
        groups = Engine(self._client).group_names()
        return [group for group in groups if _measured_by(group, workers) == name]


def _measured_by(group: str, workers: Collection[str]) -> str | None:
    """Which of these workers measures a group."""

    def weight(worker: str) -> bytes:
        return hashlib.blake2b(f"{worker}/{group}".encode(), digest_size=8).digest()

    return max(sorted(workers), key=weight, default=None)
