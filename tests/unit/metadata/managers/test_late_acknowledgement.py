"""A writer that comes late to acknowledge a migration state, which is over by then."""

from __future__ import annotations

import threading

from hqueue.metadata.managers import MemoryFields, MigrationState, open_migration
from hqueue.metadata.managers.migration_fence import MigrationFence
from hqueue.metadata.managers.migration_state import MigrationStateRecord
from hqueue.metadata.steps import Work
from hqueue.runtime.clock import SYSTEM_CLOCK
from hqueue.runtime.stepwise import stepwise
from tests.support.memory.metadata import MemoryServer
from tests.support.waiting import wait_for

ROOT, QUEUE, FIRST = "/hqueue", "q", "hbase"
WAIT_S = 120.0


class Preempted(MigrationFence):
    """A writer whose thread stands still when it has read what state is known, until it may go on.
    Others of its threads go on meanwhile.
    """

    def __init__(self, server: MemoryServer) -> None:
        super().__init__(record_of(server), server.open(), WAIT_S * 1e3, SYSTEM_CLOCK)
        self.reads: list[MigrationState] = []
        self.may_go_on = threading.Event()

    @stepwise
    def state(self, *, now: bool = False) -> Work[MigrationState]:
        found = yield from super().state.steps(now=now)
        self.reads.append(found)
        assert self.may_go_on.wait(WAIT_S)
        return found


def test_a_state_that_is_over_is_not_acknowledged_after_the_next_one() -> None:
    """The move would wait for what was acknowledged already, and the writer for the move."""
    server = MemoryServer(session_timeout_ms=60_000)
    record = record_of(server)
    migration = open_migration(
        QUEUE, session=server.open(), root=ROOT, first=FIRST, rows=MemoryFields
    )
    writer = Preempted(server)
    writer.settle()
    [name] = record.writers()
    made: list[MigrationState] = []

    def change(state: MigrationState) -> Work[bool]:
        yield from ()
        made.append(state)
        return True

    thread = threading.Thread(target=lambda: writer.change(change, bool))
    thread.start()
    wait_for(lambda: writer.reads, "it has read the state of before the move")

    def go_on(step: str, records: int) -> None:
        if step == "draining":
            drained = {name: migration.state().number}
            wait_for(lambda: record.writers() == drained, "it acknowledges that")
            writer.may_go_on.set()
            wait_for(lambda: len(writer.reads) > 1, "it looks at the state again")
            assert record.writers() == drained

    assert migration.move("zookeeper", drain_ms=5_000, on_progress=go_on) == 0
    thread.join(WAIT_S)
    assert [each.location.store for each in made] == ["zookeeper"]
    writer.close()


def record_of(server: MemoryServer) -> MigrationStateRecord:
    return MigrationStateRecord(server.open(), ROOT, QUEUE, FIRST)
