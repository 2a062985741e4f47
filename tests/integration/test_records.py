"""Records of fields on a real HBase: delete markers, and regions that move or lose their server."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from hqueue import HQueueError, Outcome, local
from hqueue.hbase.thrift.gateway_store import GatewayStore
from hqueue.metadata.fields import FieldChange, FieldRecord, FieldRecords
from hqueue.metadata.ports import NEW, Version
from tests.support.raw import RawHBase
from tests.support.waiting import wait_for
from tests.support.writing import whole_again

TABLE = "hqueue_metadata"
FIELDS = {"f": b"1"}
WRITERS = 4
RECORDS = 6


@pytest.fixture
def root() -> str:
    return f"/hqueue-{uuid.uuid4().hex[:12]}"


def open_store(server: local.LocalServer, **settings: object) -> GatewayStore:
    return GatewayStore(server.settings(**settings))


def test_a_marker_of_a_server_whose_clock_was_ahead_hides_nothing_that_was_acknowledged(
    server: local.LocalServer, hbase: RawHBase, root: str
) -> None:
    key = f"{root}/a"
    with contextlib.closing(open_store(server)) as store:
        fields = store.fields()
        fields.read([key])
        until_ms = int(time.time() * 1_000) + 1_500
        with hbase.thrift2() as client:
            row = hbase.idl.TDelete(row=key.encode(), timestamp=until_ms)
            client.deleteSingle(TABLE.encode(), row)
        version = fields.write({key: FieldChange(FIELDS, NEW)})[key]
        assert version is not None
        assert fields.read([key]) == {key: FieldRecord(FIELDS, version)}
        assert time.time() * 1_000 >= until_ms
        assert fields.delete({key: version})[key]
        assert fields.read([key]) == {}


def test_its_table_keeps_one_version_and_small_blocks(
    server: local.LocalServer, hbase: RawHBase, root: str
) -> None:
    with contextlib.closing(open_store(server)) as store:
        store.fields().read([root])
    assert hbase.table_attributes(TABLE)["hqueue.records"] == "1"
    families = hbase.all_family_attributes(TABLE)
    assert families.keys() == {"r", "h"}
    for attributes in families.values():
        assert attributes["VERSIONS"] == "1"
        assert attributes["BLOCKSIZE"] == "16384"
        assert attributes["DATA_BLOCK_ENCODING"] == "FAST_DIFF"


class Counting:
    """Writers that count up the same records, each on the version that it read, and know what
    became of each of their changes.
    """

    def __init__(self, fields: list[FieldRecords], root: str) -> None:
        self.fields = fields
        self.keys = [f"{root}/{number}" for number in range(RECORDS)]
        self.made: dict[str, int] = dict.fromkeys(self.keys, 0)
        self.in_doubt: dict[str, int] = dict.fromkeys(self.keys, 0)
        self.versions: list[tuple[str, Version]] = []
        self._done = threading.Event()
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        created = self.fields[0].write({key: FieldChange({"f": b"0"}, NEW) for key in self.keys})
        assert None not in created.values()
        with ThreadPoolExecutor(len(self.fields)) as pool:
            running = [pool.submit(self._count, each) for each in self.fields]
            try:
                yield
            finally:
                self._done.set()
            for each in running:
                each.result()

    def await_more(self, number: int) -> None:
        wanted = sum(self.made.values()) + number
        wait_for(lambda: sum(self.made.values()) >= wanted, "writers go on", timeout_s=120)

    def check(self) -> None:
        """Each change that was made counts, and of those in doubt some."""
        found = self.fields[0].read(self.keys)
        for key in self.keys:
            record = found[key]
            assert isinstance(record, FieldRecord)
            counted = int(record.fields["f"])
            assert self.made[key] <= counted <= self.made[key] + self.in_doubt[key]
        assert len(set(self.versions)) == len(self.versions)
        assert dict(self.fields[0].scan(self.keys[0].rpartition("/")[0], 1)) == found

    def _count(self, fields: FieldRecords) -> None:
        turn = 0
        while not self._done.is_set():
            key = self.keys[turn % len(self.keys)]
            turn += 1
            try:
                record = fields.read([key])[key]
                assert isinstance(record, FieldRecord)
                value = b"%d" % (int(record.fields["f"]) + 1)
                change = FieldChange({"f": value}, record.version, whole=turn % 2 == 0)
                version = fields.write({key: change})[key]
            except HQueueError as exc:
                with self._lock:
                    self.in_doubt[key] += exc.outcome is Outcome.UNKNOWN
                continue
            if version is not None:
                with self._lock:
                    self.made[key] += 1
                    self.versions.append((key, version))


def run_through(
    server: local.LocalServer, root: str, fault: Callable[[], None], changes: int = 200
) -> Counting:
    with contextlib.ExitStack() as stack:
        stores = [open_store(server, request_timeout_ms=5_000) for _ in range(WRITERS)]
        for store in stores:
            stack.callback(store.close)
        counting = Counting([store.fields() for store in stores], root)
        with counting.running():
            counting.await_more(changes // 2)
            fault()
            counting.await_more(changes)
        counting.check()
    return counting


def test_many_writers_lose_no_change_and_make_none_twice(
    server: local.LocalServer, root: str
) -> None:
    counting = run_through(server, root, lambda: None, changes=50)
    assert not any(counting.in_doubt.values())


def region_host(server: local.LocalServer) -> int:
    """The number of the region server that has the table's one region: 0 to 2."""
    (region,) = RawHBase(server.gateways[0]).regions(TABLE)
    return int(region.host.rpartition(".")[2]) - 1


@pytest.mark.cluster
@pytest.mark.thorough("on a cluster, whose start alone takes a minute; see `make test-faults`")
def test_a_region_that_moves_while_all_write_loses_nothing(
    cluster_server: local.LocalServer, root: str
) -> None:
    with contextlib.closing(open_store(cluster_server)) as store:
        store.fields().read([root])
    before = region_host(cluster_server)

    def move() -> None:
        cluster_server.restart(f"regionserver-{before + 1}", orderly_s=30)

    with whole_again(cluster_server):
        run_through(cluster_server, root, move)
    assert region_host(cluster_server) != before


@pytest.mark.cluster
@pytest.mark.thorough("on a cluster, whose start alone takes a minute; see `make test-faults`")
def test_a_region_server_that_dies_while_all_write_loses_nothing(
    cluster_server: local.LocalServer, root: str
) -> None:
    with contextlib.closing(open_store(cluster_server)) as store:
        store.fields().read([root])
    before = region_host(cluster_server)
    with whole_again(cluster_server):
        run_through(cluster_server, root, lambda: cluster_server.kill(f"regionserver-{before + 1}"))
        assert region_host(cluster_server) != before
