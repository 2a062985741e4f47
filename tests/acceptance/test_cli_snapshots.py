"""Snapshots of queues are administered from the command line."""

from __future__ import annotations

import json

import pytest

from tests.acceptance.commands import Run

pytestmark = pytest.mark.in_memory


def test_a_queue_returns_to_a_snapshot_and_is_created_from_it(run: Run, name: str) -> None:
    snapshot, other = f"{name}-snapshot", f"{name}-other"
    assert run("create", name, "--partitions", "1").code == 0
    assert run("put", name, "-t", "t", "a", "b").code == 0
    taken = run("snapshots", "create", name, snapshot)
    if taken.code:  # By gateways.
        assert taken.code == 2
        assert "hbase='native'" in taken.err
        return
    assert run("snapshots", "create", name, snapshot).code == 1
    (listed,) = run("snapshots", "list", "--queue", name, "--json").lines
    assert json.loads(listed)["snapshot"] == snapshot
    assert run("put", name, "-t", "t", "c").code == 0
    asked = run("snapshots", "restore", snapshot)
    assert (asked.code, "--yes" in asked.err) == (2, True)
    assert run("snapshots", "restore", snapshot, "--yes").code == 0
    assert run("scan", name, "--start", "earliest", "--format", "raw").lines == ["a", "b"]
    assert run("snapshots", "restore", snapshot, "--as", other).code == 0
    assert run("scan", other, "--start", "earliest", "--format", "raw").lines == ["a", "b"]
    assert run("snapshots", "restore", snapshot, "--as", other).code == 2
    assert run("verify", name).code == 0
    unknown = run("snapshots", "restore", snapshot[:-1], "--yes")
    assert (unknown.code, snapshot in unknown.err) == (1, True)
    assert run("snapshots", "delete", snapshot, "--yes").code == 0
    assert run("snapshots", "list", "--queue", name).lines == []
    assert run("snapshots", "delete", snapshot, "--yes").code == 1
    assert run("snapshots", "create", name, "-x-").code == 2
