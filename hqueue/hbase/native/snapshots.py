"""Snapshots of tables: takes, lists, restores and deletes them. Through the master."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from hqueue.errors import (
    Outcome,
    RequestRefusedError,
    SnapshotError,
    SnapshotExistsError,
    SnapshotNotFoundError,
    StoreUnavailableError,
)
from hqueue.hbase.native.async_servers import AsyncServers
from hqueue.hbase.native.exchanges import Asking
from hqueue.hbase.native.master import LOOKS, Master, Procedure
from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.registry import Registry
from hqueue.hbase.native.servers import Servers
from hqueue.hbase.native.translation import reads_answer
from hqueue.log.table_ports import Snapshot
from hqueue.runtime.clock import Clock, Deadline
from hqueue.runtime.steps import Pause
from hqueue.runtime.stepwise import OnPorts, stepwise

__all__ = ["Snapshots"]

Result = TypeVar("Result")


class Snapshots(OnPorts):
    """The store's `SnapshotPort`. Thread-safe.

    Args:
        servers, async_servers: the master is among them.
        registry: where the master is.
        clock: where time comes from.
    """

    def __init__(
        self, servers: Servers, async_servers: AsyncServers, registry: Registry, clock: Clock
    ) -> None:
        super().__init__(servers, async_servers, clock)
        self._bound_ms = servers.settings.operation_timeout_ms
        self._master = Master(servers, registry)

    @stepwise
    def create(self, name: str, queue: str) -> Asking[None]:
        """Like `SnapshotPort.create`."""
        wanted = pb.SnapshotDescription(name=name, table=queue)
        request = pb.SnapshotRequest(snapshot=wanted)
        begun = lost = False

        def take(deadline: Deadline) -> Asking[None]:
            nonlocal begun, lost
            if not begun:
                try:
                    yield from self._master.ask(
                        "Snapshot", request, pb.SnapshotResponse, queue, deadline
                    )
                except StoreUnavailableError as exc:
                    lost = lost or exc.outcome is Outcome.UNKNOWN
                    raise
                except (SnapshotExistsError, RequestRefusedError):
                    # An earlier try may have taken it, or be under way.
                    if not lost:
                        raise
                begun = True
            yield from self._finished(wanted, queue, deadline)

        return self._run(take, snapshot=name, queue=queue)

    def _finished(self, wanted: Any, queue: str, deadline: Deadline) -> Asking[None]:
        """Wait until a snapshot is complete."""
        asked = pb.IsSnapshotDoneRequest(snapshot=wanted)
        kind = pb.IsSnapshotDoneResponse
        pauses = LOOKS.pauses()
        while True:
            answer = yield from self._master.ask("IsSnapshotDone", asked, kind, queue, deadline)
            if answer.done:
                return
            if deadline.expired:
                raise StoreUnavailableError(
                    "the master did not finish the snapshot in time: list the snapshots before "
                    "you take it again",
                    outcome=Outcome.UNKNOWN,
                    queue=queue,
                    snapshot=wanted.name,
                )
            yield Pause(min(next(pauses), deadline.remaining_ms))

    @stepwise
    def list(self) -> Asking[list[Snapshot]]:
        """Like `SnapshotPort.list`."""
        asked, kind = pb.GetCompletedSnapshotsRequest(), pb.GetCompletedSnapshotsResponse

        def ask(deadline: Deadline) -> Asking[list[Snapshot]]:
            answer = yield from self._master.ask("GetCompletedSnapshots", asked, kind, "", deadline)
            return [Snapshot(s.name, s.table, s.creation_time) for s in answer.snapshots]

        return self._run(ask)

    @stepwise
    def delete(self, name: str) -> Asking[None]:
        """Like `SnapshotPort.delete`."""
        asked = pb.DeleteSnapshotRequest(snapshot=pb.SnapshotDescription(name=name))
        lost = False

        def delete(deadline: Deadline) -> Asking[None]:
            nonlocal lost
            try:
                yield from self._master.ask(
                    "DeleteSnapshot", asked, pb.DeleteSnapshotResponse, "", deadline
                )
            except StoreUnavailableError as exc:
                lost = lost or exc.outcome is Outcome.UNKNOWN
                raise
            except SnapshotNotFoundError:
                if not lost:
                    raise

        return self._run(delete, snapshot=name)

    @stepwise
    def restore(self, name: str, queue: str) -> Asking[None]:
        """Like `SnapshotPort.restore`."""
        wanted = pb.SnapshotDescription(name=name, table=queue)
        request = pb.RestoreSnapshotRequest(snapshot=wanted)
        return self._run(
            Procedure(self._master, "RestoreSnapshot", request, queue).run, snapshot=name
        )

    def _run(self, operation: Callable[[Deadline], Asking[Result]], **facts: Any) -> Asking[Result]:
        """Carry an operation out within its bound. Errors about snapshots get these facts."""
        deadline = Deadline(self._clock, self._bound_ms)

        @reads_answer
        def attempt() -> Asking[Result]:
            try:
                return (yield from operation(deadline))
            except SnapshotError as exc:
                raise type(exc)(exc.text, **facts) from exc

        return deadline.bound(deadline.insist(attempt))
