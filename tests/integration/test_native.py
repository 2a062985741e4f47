"""HBase without gateways: what a client does with nothing but the address of ZooKeeper, or of the
master.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hqueue
from hqueue import Message, Outcome, Settings
from hqueue.connecting import open_store
from hqueue.errors import QueueDisabledError
from hqueue.format import rowkey
from hqueue.hbase.native import scanning
from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.servers import Servers
from hqueue.local.jars import ensure_jars
from hqueue.local.versions import hbase_jars
from hqueue.settings.limits import MESSAGE_ID_MAX
from tests.support.native_hbase import NativeHBase
from tests.support.registries import NOWHERE

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def client(native_hbase: NativeHBase) -> Iterator[hqueue.Client]:
    with native_hbase.connect() as connected:
        assert (connected.settings.hbase, connected.settings.gateways) == ("native", ())
        yield connected


@pytest.fixture
def queue(client: hqueue.Client, queue_name: str) -> Iterator[hqueue.Queue]:
    with client.create_queue(queue_name, partitions=3) as made:
        yield made
    client.disable_queue(queue_name)
    client.delete_queue(queue_name)


def test_an_answer_that_a_server_ends_early_is_gone_on_with(
    queue: hqueue.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = [os.urandom(MIB // 2) for _ in range(12)]
    for value in values:
        queue.put([Message("t", value)], partition=0)
    failed: list[BaseException] = []
    gone_on_with: list[int] = []
    ask, request = Servers.ask, scanning.Scanning._request

    def observed(self: Servers, *arguments: Any) -> Any:
        try:
            return ask(self, *arguments)
        except BaseException as exc:
            failed.append(exc)
            raise

    def counted(self: scanning.Scanning, rows: int, scanner: int | None, calls: int) -> Any:
        gone_on_with.extend([calls] if scanner is not None else [])
        return request(self, rows, scanner, calls)

    monkeypatch.setattr(scanning, "RESULT_BYTES_MAX", MIB)
    monkeypatch.setattr(Servers, "ask", observed)
    monkeypatch.setattr(scanning.Scanning, "_request", counted)
    assert [message.value for message in queue.scan()] == values
    assert max(gone_on_with) > 1
    assert not failed, "each answer is understood, and none is asked for again"


def test_what_is_put_is_read_as_it_is_through_gateways(
    native_hbase: NativeHBase, queue: hqueue.Queue
) -> None:
    messages = [
        Message("t", b"%d" % number * 1_000, key=b"%d" % (number % 7)) for number in range(99)
    ]
    for message in messages:
        queue.put(message)
    large = [bytes([number]) * MIB for number in range(5)]
    queue.put([Message("large", value) for value in large], partition=1)
    settings = Settings(zookeeper=native_hbase.zookeeper, gateways=(native_hbase.gateway,))
    with hqueue.connect(settings) as other, other.queue(queue.name) as behind:
        assert list(queue.scan()) == list(behind.scan())
        behind.put(Message("t", b"by a gateway"), partition=0)
    read = list(queue.scan(topics=["t"]))
    assert sorted(m.value for m in read) == sorted([*(m.value for m in messages), b"by a gateway"])
    assert [m.value for m in queue.scan(topics=["large"])] == large


def test_nothing_but_a_masters_address_is_needed_for_a_queue(
    client: hqueue.Client, native_hbase: NativeHBase, queue_name: str
) -> None:
    masters = f"{NOWHERE},{native_hbase.master}"
    with native_hbase.connect(
        hbase_masters=masters, zookeeper=str(NOWHERE), notify_workers=False
    ) as other:
        with other.create_queue(queue_name, partitions=2) as made:
            made.put([Message("t", b"1"), Message("t", b"2")])
            assert sorted(m.value for m in made.scan()) == [b"1", b"2"]
        with client.queue(queue_name) as same:
            assert len(list(same.scan())) == 2
        assert len(other.locations(queue_name)) == 2
        other.disable_queue(queue_name)
    client.delete_queue(queue_name)  # What hubs know of its topics goes too: that is ZooKeeper's.


def test_the_command_line_needs_nothing_but_a_masters_address_either(
    queue: hqueue.Queue, native_hbase: NativeHBase, tmp_path: Path
) -> None:
    queue.put(Message("t", b"1"))
    environment = {n: v for n, v in os.environ.items() if not n.startswith("HQUEUE_")}
    environment.update(native_hbase.environment())
    scanned = subprocess.run(
        [sys.executable, "-m", "hqueue.cli", "--hbase-masters", native_hbase.master,
         "--zookeeper", str(NOWHERE), "scan", queue.name, "--format", "raw"],
        env={**environment, "HQUEUE_LOCAL_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)},
        capture_output=True,
        timeout=60,
        check=False,
    )  # fmt: skip
    assert (scanned.returncode, scanned.stdout, scanned.stderr) == (0, b"1\n", b"")


def test_a_partition_that_was_split_by_hand_is_served(
    client: hqueue.Client, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    splits = [rowkey.encode(0, slot) for slot in (20, 30, 50)]
    monkeypatch.setattr("hqueue.format.rowkey.split_keys", lambda *_: [*splits, b"\0\1"])
    client.create_queue(queue_name, partitions=2).close()
    with contextlib.closing(open_store(client.settings)) as store:
        log = store.log(queue_name)
        for slot in range(10, 60):
            if not 30 <= slot < 50:
                assert log.put_if_absent(0, slot, b"%d" % slot, {b"t": b"cell"})
        written = [slot for slot in range(10, 60) if not 30 <= slot < 50]
        assert [row.slot for row in log.headers(0, 0, 100)] == written
        assert [row.slot for row in log.headers(0, 15, 10)] == written[5:15]
        assert [row.slot for row in log.backwards(0, 55, 100)] == written[-5::-1]
        stream = log.open(0, 12, 58, None)
        assert [row.slot for row in stream.read(100)] == written[2:-2]
        newest = log.newest(0, MESSAGE_ID_MAX)
        assert newest is not None
        assert newest.slot == 59
    client.disable_queue(queue_name)
    client.delete_queue(queue_name)


def test_what_comes_is_followed(queue: hqueue.Queue) -> None:
    def put() -> None:
        for number in range(50):
            queue.put(Message("t", b"%d" % number))

    writer = threading.Thread(target=put)
    writer.start()
    scan = queue.scan(follow=True)
    read = [message.value for message in itertools.islice(scan, 50)]
    writer.join()
    assert sorted(read, key=int) == [b"%d" % number for number in range(50)]


def test_a_queue_is_administered(
    client: hqueue.Client, native_hbase: NativeHBase, queue: hqueue.Queue
) -> None:
    raw = native_hbase.raw
    queue.put(Message("t", b"1"), partition=0)
    client.disable_queue(queue.name)
    with pytest.raises(QueueDisabledError) as caught:
        queue.put(Message("t", b"2"), partition=0)
    assert caught.value.outcome is Outcome.NOT_APPLIED
    client.enable_queue(queue.name)
    client.alter_queue(queue.name, ttl="2h", compaction_files_min=5)
    described = client.describe_queue(queue.name)
    assert (described.ttl_seconds, described.attributes["compaction_files_min"]) == (7_200, 5)
    assert [m.value for m in queue.scan()] == [b"1"]
    assert len(raw.regions(queue.name)) == 3
    client.truncate_queue(queue.name)
    queue.put(Message("t", b"3"), partition=0)
    assert [m.value for m in queue.scan()] == [b"3"]


def test_the_messages_have_the_numbers_of_hbases_own() -> None:
    # Those of coprocessors lie in a jar of their own before HBase 3.
    jars = sorted(ensure_jars(hbase_jars()).glob("hbase-protocol-*.jar"))
    theirs: dict[str, dict[str, tuple[str, int]]] = {}
    for jar in jars:
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                if name.endswith(".proto"):
                    _read(archive.read(name).decode(), theirs)
    own = {name: kind for name, kind in vars(pb).items() if hasattr(kind, "DESCRIPTOR")}
    assert len(own) > 50
    for name, kind in own.items():
        if name == "SecurityPreamableResponse" and name not in theirs:
            continue  # HBase 3.0.0-alpha-4 does not know it yet.
        expected = theirs[name.rpartition(".")[2]]
        for field in kind.DESCRIPTOR.fields:
            assert expected[field.name][1] == field.number, f"{name}.{field.name}"
        for enum in kind.DESCRIPTOR.enum_types:
            values = theirs[f"enum {enum.name}"]
            for value in enum.values:
                assert values[value.name][1] == value.number, f"{name}.{value.name}"


_BLOCK = re.compile(r"\b(message|enum)\s+(\w+)\s*\{|(\w+)\s*=\s*(\d+)\s*(?:\[[^\]]*\])?\s*;|[{}]")


def _read(text: str, into: dict[str, dict[str, tuple[str, int]]]) -> None:
    """The fields of each message, and the values of each enum, by their own names."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)
    open_blocks: list[str] = []
    for found in _BLOCK.finditer(text):
        kind, name, field, number = found.groups()
        if kind:
            open_blocks.append(name if kind == "message" else f"enum {name}")
        elif field and open_blocks:
            into.setdefault(open_blocks[-1], {})[field] = (field, int(number))
        elif found.group() == "{":
            open_blocks.append("")
        elif found.group() == "}" and open_blocks:
            into.setdefault(open_blocks.pop(), {})
