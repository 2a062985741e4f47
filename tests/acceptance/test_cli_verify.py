"""``hqueue verify`` finds what is wrong, and says so by its exit code."""

from __future__ import annotations

import json

import happybase
import pytest

import hqueue
from hqueue import local
from hqueue.format import rowkey
from hqueue.metadata.managers import LogRange, TopicPersistenceInfo
from hqueue.metadata.ports import NEW
from tests.acceptance.commands import Run
from tests.support.unreadable import BAD, put_unreadable

pytestmark = pytest.mark.in_memory


def test_a_right_queue_is_checked_without_findings(
    run: Run, opened: hqueue.Queue, name: str
) -> None:
    opened.put([hqueue.Message("t", b"a")] * 3, partition=1)
    checked = run("verify", name)
    assert (checked.code, checked.out) == (0, b"")
    assert "0 problems in 1 batch, 3 messages" in checked.err


@pytest.mark.in_memory_first
def test_a_flipped_bit_is_found_and_named_and_other_partitions_are_checked(
    run: Run, opened: hqueue.Queue, name: str, server: local.LocalServer
) -> None:
    for partition in range(3):
        opened.put(hqueue.Message("t", b"a"), partition=partition)
    gateway = server.gateways[0]
    table = happybase.Connection(gateway.host, gateway.thrift1_port).table(name)
    row = rowkey.encode(1, 0)
    header = bytearray(table.row(row)[b"log:batch"])
    header[30] ^= 4
    table.put(row, {b"log:batch": bytes(header)})
    checked = run("verify", name, "--json")
    assert checked.code == 5
    (finding,) = map(json.loads, checked.lines)
    assert (finding["partition"], finding["row"]) == (1, row.hex())
    assert "1 problem in 3 batches, 2 messages" in checked.err
    scanned = run("scan", name)
    assert scanned.code == 5
    assert row.hex() in scanned.err


def test_a_batch_that_can_not_be_read_is_passed_by_once_that_is_decided(
    run: Run, opened: hqueue.Queue, name: str
) -> None:
    opened.put(hqueue.Message("t", b"before"), partition=1)
    row = put_unreadable(opened, [hqueue.Message("t", b"", None, [(BAD, b"")])] * 3, partition=1)
    opened.put(hqueue.Message("t", b"behind"), partition=1)
    checked, scanned = run("verify", name), run("scan", name)
    assert (checked.code, scanned.code) == (5, 5)
    assert row in checked.out.decode()
    assert row in scanned.err
    decided = run("verify", name, "--skip", row)
    assert (decided.code, decided.out) == (0, b"")
    assert f"{row}, which has 3 messages" in decided.err
    scanned = run("scan", name)
    assert scanned.code == 0
    assert [line.split("\t")[-1] for line in scanned.lines] == ["before", "behind"]
    assert "3 messages can't be read, and were skipped" in scanned.err
    checked = run("verify", name)
    assert (checked.code, checked.out) == (0, b"")
    because = "a header's name is not UTF-8"
    assert f"row {row}: skipped, as an operator decided: {because}" in checked.err
    assert run("verify", name, "--unskip", row).code == 0
    assert run("scan", name).code == 5
    refused = run("verify", name, "--skip", row[:-1])
    assert refused.code == 2
    assert "name the batch by its row" in refused.err


def test_ranges_of_topics_are_compared_with_the_log_where_that_is_wanted(
    run: Run, opened: hqueue.Queue, name: str, client: hqueue.Client
) -> None:
    opened.put([hqueue.Message("t", b"a")] * 3, partition=1)
    checked = run("verify", name, "--ranges")
    assert checked.code == 0
    assert "0 topics with owners; 0 messages" in checked.err
    with client.topic_metadata(name) as metadata:
        info = TopicPersistenceInfo([LogRange(9, hqueue.MessageID(1), None, 1)])
        metadata.persistence.write_topic_persistence_info("t", info, NEW).result()
    checked = run("verify", name, "--ranges", "--json")
    assert checked.code == 5
    (finding,) = map(json.loads, checked.lines)
    assert finding["partition"] == 9
    assert "does not exist" in finding["problem"]
    assert "1 topic with owners; 3 messages under their names came into the queue" in checked.err
    assert run("verify", name).code == 0
