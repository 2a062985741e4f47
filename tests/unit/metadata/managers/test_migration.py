"""A move that fails: where the metadata is in force then, and whether writers go on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hqueue import Outcome, StoreUnavailableError
from hqueue.metadata.blobs import BlobRecords
from hqueue.metadata.managers import MigrationState, Phase
from hqueue.metadata.managers.metadata_locations import MetadataLocations
from hqueue.metadata.managers.migration import MetadataMigration
from hqueue.metadata.managers.migration_state import MigrationStateRecord
from hqueue.metadata.ports import Version
from hqueue.metadata.steps import Work
from hqueue.runtime.stepwise import stepwise
from tests.support.memory.metadata import MemoryServer, MemorySession

LOST = StoreUnavailableError("no answer", outcome=Outcome.UNKNOWN)


class Failing(MigrationStateRecord):
    """Changes the state, and fails where it changes to a phase."""

    def __init__(self, store: MemorySession, fail: Callable[[MigrationState], object]) -> None:
        super().__init__(store, "/hqueue", "q", "zookeeper")
        self._fail = fail

    @stepwise
    def change(self, state: MigrationState, version: Version) -> Work[Version]:
        changed = yield from super().change.steps(state, version)
        self._fail(state)
        return changed


def migration(store: MemorySession, fail: Callable[[MigrationState], object]) -> MetadataMigration:
    locations = MetadataLocations(store, "/hqueue", "q", lambda: BlobRecords(store.records))
    return MetadataMigration(Failing(store, fail), locations)


@pytest.mark.parametrize("error", [LOST, KeyboardInterrupt()])
@pytest.mark.parametrize("phase", [Phase.DRAINING, Phase.COMPARING])
def test_writers_go_on_after_a_move_that_failed_by_an_answer_that_never_came(
    phase: Phase, error: BaseException
) -> None:
    def fail(state: MigrationState) -> None:
        if state.phase is phase:
            raise error

    move = migration(MemoryServer().open(), fail)
    with pytest.raises(type(error)):
        move.move("hbase")
    state = move.state()
    assert (state.phase, state.location.store) == (Phase.STABLE, "zookeeper")
    assert state.old_copies, "what was copied must be cleared"


def test_a_move_that_is_done_stays_done_whatever_comes_of_its_last_answer() -> None:
    def fail(state: MigrationState) -> None:
        if state.phase is Phase.STABLE:
            raise LOST

    move = migration(MemoryServer().open(), fail)
    with pytest.raises(StoreUnavailableError):
        move.move("hbase")
    assert move.state().location.store == "hbase"


def test_a_move_that_another_has_taken_over_is_left_to_it() -> None:
    store = MemoryServer().open()

    def take_over(state: MigrationState) -> None:
        if state.phase is Phase.DRAINING:
            other = MigrationStateRecord(store, "/hqueue", "q", "zookeeper")
            other.change(state.begun("hbase"), other.read()[1])
            raise LOST

    move = migration(store, take_over)
    with pytest.raises(StoreUnavailableError):
        move.move("hbase")
    assert move.state().phase is Phase.COPYING
