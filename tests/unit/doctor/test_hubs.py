"""Hubs: a move of their topics' metadata that is under way, or stands still."""

from __future__ import annotations

from hqueue.doctor import Level
from hqueue.doctor.hubs import look_at_move
from hqueue.metadata.managers.migration_state import MigrationStateRecord
from tests.support.backends import MemoryBackend


def test_a_move_that_stands_still_is_named_with_what_to_do() -> None:
    with MemoryBackend().connect() as client:
        client.create_queue("q", partitions=1)
        migration = client.metadata_migration("q")
        coordination = client.coordination
        record = MigrationStateRecord(coordination.store, coordination.paths.root, "q", "zookeeper")
        state, version = record.settle()
        assert [*look_at_move(migration, "q")] == []
        version = record.change(state.begun("hbase"), version)
        [copied] = look_at_move(migration, "q")
        assert "hubs wait" not in copied.found
        record.change(state.begun("hbase").draining().drained(), version)
        [compared] = look_at_move(migration, "q")
    assert compared.level is Level.WARNING
    assert "moved to hbase (phase comparing), and hubs wait" in compared.found
    assert "hqueue metadata migrate q --abandon" in compared.advice
