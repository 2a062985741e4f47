"""Files of a server that rot where there is no other replica.

Readers never get a damaged message, and an error names the row that can't be read. A write-ahead
log that is cut off loses the newest messages without a trace, as after a loss of power.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import hqueue
from hqueue import HQueueError, Message, Queue, local
from hqueue.errors import (
    CorruptLogError,
    LocalServerError,
    RowsUnreadableError,
    StoreUnavailableError,
)
from hqueue.format import rowkey
from hqueue.local.home import Home
from tests.faults.regions import Regions
from tests.faults.rot import cut_end, flip_bits

SERVER = "master"
"""The one process of a standalone server."""
PARTITIONS = 3
COUNT = 600
VALUE_BYTES = 1_000
HFILE_NAME = "[0-9a-f]" * 32
SETTINGS = {"operation_timeout_ms": 10_000, "request_timeout_ms": 3_000}

Harmed = Callable[[Path, random.Random], object]


def put_some(queue: Queue) -> dict[int, list[bytes]]:
    """Put messages, a batch each; the values by partition."""
    put: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
    for number in range(COUNT):
        value = b"%06d" % number + random.Random(number).randbytes(VALUE_BYTES)
        queue.put(Message("t", value), partition=number % PARTITIONS)
        put[number % PARTITIONS].append(value)
    return put


def harmed_server(home: Path, pattern: str, harm: Harmed, *, flush: bool) -> dict[int, list[bytes]]:
    """Start a server, put messages, kill it, and harm its files; the messages."""
    with local.start(home=home) as server:
        with hqueue.connect(server.settings()) as client:
            put = put_some(client.create_queue("rot", partitions=PARTITIONS, ttl="1d"))
        regions = Regions(server.settings())
        for region in regions.all("rot") if flush else ():
            regions.flush("rot", region.name)
        server.kill(SERVER)
    files = sorted(path for path in Home.of(home).data("standalone").rglob(pattern))
    assert files
    rng = random.Random(COUNT)
    for path in files:
        harm(path, rng)
    return put


def read(queue: Queue, partition: int) -> tuple[list[bytes], HQueueError | None]:
    """What a scan of a partition gives, and how it fails."""
    found = []
    try:
        with queue.scan(partition=partition) as scanner:
            for message in scanner:
                found.append(message.value)
    except HQueueError as exc:
        return found, exc
    return found, None


def names_a_row(error: HQueueError | None, partition: int) -> bool:
    return (
        isinstance(error, (CorruptLogError, RowsUnreadableError))
        and rowkey.decode(bytes.fromhex(str(error.row)))[0] == partition
    )


@pytest.mark.parametrize(
    ("pattern", "flush"),
    [(f"data/default/rot/*/*/{HFILE_NAME}", True), ("hbase/WALs/*/127*[0-9]", False)],
    ids=["stored", "write-ahead log"],
)
def test_flipped_bits_are_never_delivered_and_named(
    tmp_path: Path, pattern: str, *, flush: bool
) -> None:
    put = harmed_server(tmp_path / "home", pattern, flip_bits, flush=flush)
    with (
        local.start(home=tmp_path / "home") as server,
        hqueue.connect(server.settings(**SETTINGS)) as client,
    ):
        queue, named = client.queue("rot"), 0
        for partition, values in put.items():
            found, error = read(queue, partition)
            print(f"partition {partition}: {len(found)} of {len(values)} read, then {error!r}")
            assert found == values[: len(found)]
            if not names_a_row(error, partition):
                # The write-ahead log ends where HBase can't read on; a file whose index is
                # damaged keeps its region closed.
                assert error is None or isinstance(error, StoreUnavailableError)
                continue
            named += 1
            result = list(queue.verify([partition]))[-1]
            assert str(error and error.row) in {finding.row for finding in result.findings}
        assert named


def test_stored_files_that_are_cut_off_give_a_clear_error_in_time(tmp_path: Path) -> None:
    pattern = f"data/default/rot/*/*/{HFILE_NAME}"
    put = harmed_server(tmp_path / "home", pattern, cut_end, flush=True)
    with (
        local.start(home=tmp_path / "home") as server,
        hqueue.connect(server.settings(**SETTINGS)) as client,
    ):
        for partition in put:
            found, error = read(client.queue("rot"), partition)
            assert found == []
            assert isinstance(error, StoreUnavailableError)
            assert "does not serve this region" in error.text


def test_a_cut_off_write_ahead_log_loses_the_newest_messages_alone(tmp_path: Path) -> None:
    put = harmed_server(tmp_path / "home", "hbase/WALs/*/127*[0-9]", cut_end, flush=False)
    with (
        local.start(home=tmp_path / "home") as server,
        hqueue.connect(server.settings(**SETTINGS)) as client,
    ):
        queue, lost = client.queue("rot"), 0
        for partition, values in put.items():
            found, error = read(queue, partition)
            assert error is None
            assert found == values[: len(found)]
            lost += len(values) - len(found)
            assert list(queue.verify([partition]))[-1].findings == []
            queue.put(Message("t", b"afterwards"), partition=partition)
            assert read(queue, partition) == ([*found, b"afterwards"], None)
        assert lost


def test_zookeepers_only_server_refuses_what_rotted_and_messages_are_there_without(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    put = harmed_server(home, "version-2/*.[0-9]*", flip_bits, flush=False)
    with pytest.raises(LocalServerError) as caught, local.start(home=home):
        pass
    assert str(home) in str(caught.value.facts)
    # Then what was only in ZooKeeper is lost: subscriptions, offsets, the key of notices.
    shutil.rmtree(Home.of(home).data("standalone") / "zookeeper")
    with (
        local.start(home=home) as server,
        hqueue.connect(server.settings(**SETTINGS)) as client,
    ):
        for partition, values in put.items():
            assert read(client.queue("rot"), partition) == (values, None)
