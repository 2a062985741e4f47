"""Queues are administered from the command line."""

from __future__ import annotations

import json
from typing import Any
from unittest import mock

import pytest

import hqueue
from tests.acceptance.commands import Run

pytestmark = pytest.mark.in_memory


@pytest.mark.in_memory_first
def test_a_queue_lives_from_create_to_delete(run: Run, name: str) -> None:
    created = run(
        "create", name, "--partitions", "3", "--ttl", "1d", "-a", "hbase.hstore.compaction.min=4"
    )
    assert created.code == 0
    assert created.out == b""

    (listed,) = [json.loads(line) for line in run("list", "--json").lines if name in line]
    assert listed["partitions"] == 3
    assert listed["ttl_seconds"] == 86_400
    assert listed["attributes"]["compaction_files_min"] == 4

    assert run("alter", name, "--ttl", "2d", "-a", "compression=gz").code == 0
    described = json.loads(run("describe", name, "--json").out)
    assert described["ttl_seconds"] == 172_800
    assert described["attributes"]["compression"] == "GZ"
    assert described["enabled"] is True
    for size in ("stored_bytes", "memory_bytes"):
        assert described[size] is None or described[size] >= 0

    assert run("delete", name, "--yes").code == 1, "an enabled queue is not deleted"
    assert run("disable", name).code == 0
    assert run("put", name, "--topic", "t", "x").code == 1
    assert json.loads(run("describe", name, "--json").out)["enabled"] is False
    assert run("enable", name).code == 0
    assert run("put", name, "--topic", "t", "x").code == 0
    assert run("disable", name).code == 0
    assert run("delete", name, "--yes").code == 0
    gone = run("describe", name)
    assert gone.code == 1
    assert "there is no such queue" in gone.err


def test_a_queue_is_created_where_it_is_not_there_and_deleted_though_it_is_enabled(
    run: Run, name: str
) -> None:
    for _ in range(2):
        assert run("create", name, "--partitions", "2", "--if-not-exists").code == 0
    assert run("create", name, "--partitions", "3", "--if-not-exists").code == 1
    assert run("put", name, "--topic", "t", "x", "y").code == 0
    assert len(run("scan", name, "--start", "earliest", "--limit", "1").lines) == 1
    assert run("delete", name, "--yes", "--force").code == 0
    assert run("describe", name).code == 1


@pytest.mark.parametrize("partitions", [2, 3])
def test_what_is_said_is_true_when_another_creates_the_queue_at_the_same_moment(
    run: Run, client: hqueue.Client, name: str, partitions: int
) -> None:
    create = hqueue.Client.create_queue

    def beaten(self: hqueue.Client, queue: str, **given: Any) -> hqueue.Queue:
        create(client, queue, partitions=2, ttl="1d")
        return create(self, queue, **given)

    with mock.patch.object(hqueue.Client, "create_queue", beaten):
        ended = run("create", name, "-p", str(partitions), "--ttl", "2d", "--if-not-exists")
    if partitions == 2:
        assert (ended.code, ended.err) == (0, f"{name} exists already.\n")
    else:
        assert ended.code == 1
        assert "another number of partitions" in ended.err
    assert client.describe_queue(name).ttl_seconds == 86_400


def test_describe_shows_the_offsets_of_every_partition(
    run: Run, opened: hqueue.Queue, name: str
) -> None:
    ids = opened.put([hqueue.Message("t", b"a"), hqueue.Message("t", b"b")], partition=1)
    lines = [line.split("\t") for line in run("describe", name).lines]
    assert ["partitions", "3"] in lines
    assert ["ttl", "86400"] in lines
    assert ["partition", "1", "2", str(ids[0]), str(ids[1].next())] in lines
    assert ["partition", "2", "0", "-", "0-0"] in lines
    ends = json.loads(run("describe", name, "--json").out)["offsets"]
    assert [each["messages"] for each in ends] == [0, 2, 0]


def test_locations_name_a_host_for_every_partition(
    run: Run, opened: hqueue.Queue, name: str
) -> None:
    rows = [line.split("\t") for line in run("locations", name).lines]
    assert [row[0] for row in rows] == ["0", "1", "2"]
    assert all(row[1] and int(row[2]) > 0 for row in rows)
    first = json.loads(run("locations", name, "--json").lines[0])
    assert first == {"partition": 0, "host": rows[0][1], "port": int(rows[0][2])}


def test_what_destroys_is_refused_where_nobody_can_be_asked(
    run: Run, opened: hqueue.Queue, name: str
) -> None:
    opened.put(hqueue.Message("t", b"kept"))
    for command in ("truncate", "delete"):
        refused = run(command, name)
        assert refused.code == 2
        assert "--yes" in refused.err
    assert run("scan", name, "--format", "raw").out == b"kept\n"
    assert run("truncate", name, "--yes").code == 0
    assert run("scan", name).out == b""


def test_a_queue_that_exists_is_not_created_again(
    run: Run, opened: hqueue.Queue, name: str
) -> None:
    again = run("create", name, "--partitions", "3")
    assert again.code == 1
    assert again.err.startswith("hqueue: error: there is a table of that name already")
    assert "--if-not-exists" in again.err
