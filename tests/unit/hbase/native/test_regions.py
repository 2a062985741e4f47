"""The region map is complete or not used, and answers about other rows are refused."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from hqueue import Outcome, QueueNotFoundError, Settings, StoreUnavailableError
from hqueue.errors import HQueueError, QueueDisabledError
from hqueue.format import rowkey
from hqueue.hbase.native.native_store import NativeStore
from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.regions import _COLUMNS, Meta, RegionMap
from hqueue.hbase.native.zookeeper_registry import ZooKeeperRegistry
from hqueue.runtime.steps import carry_out
from hqueue.settings.addresses import Address
from hqueue.settings.limits import MESSAGE_ID_MAX
from tests.support.region_server import RegionServer, meta_node, region_row
from tests.support.registries import reading
from tests.support.scripted_server import Asked, ScriptedServer, answer, refusal

NOT_SERVING = "org.apache.hadoop.hbase.NotServingRegionException"
Begin = Callable[[RegionServer], tuple[NativeStore, Address]]


@pytest.fixture
def begin() -> Iterator[Begin]:
    """A store of a cluster with this one region server."""
    with contextlib.ExitStack() as stack:

        def run(script: Callable[[Asked], list[bytes]]) -> tuple[NativeStore, Address]:
            server = stack.enter_context(contextlib.closing(ScriptedServer(script)))
            node = meta_node(server.address)
            store = NativeStore(Settings(), reading(lambda path: node if "meta" in path else None))
            return stack.enter_context(contextlib.closing(store)), server.address

        yield run


def header_rows(*slots: int) -> dict[bytes, list[tuple[bytes, bytes, bytes]]]:
    return {rowkey.encode(0, slot): [(b"log", b"batch", b"%d" % slot)] for slot in slots}


def test_all_pages_of_a_scan_are_read_to_the_end(begin: Begin) -> None:
    served = RegionServer("q", rows=header_rows(*range(25)), page=3)
    store, address = begin(served)
    keys = [b"", *(bytes([0, number]) for number in range(1, 9)), b""]
    served.regions = [
        region_row("q", start, end, address) for start, end in itertools.pairwise(keys)
    ]
    assert len(store.locations.locate("q", 9)) == 9
    log = store.log("q")
    assert [row.slot for row in log.headers(0, 0, 20)] == list(range(20))
    assert [row.slot for row in log.backwards(0, 24, 30)] == list(range(24, -1, -1))


def test_whole_families_of_meta_are_read() -> None:
    """HBase leaves single columns out that it was asked for, once the server of meta has died."""
    assert not any(column.qualifier for column in _COLUMNS)


BROKEN = {
    "no region": [],
    "the first is missing": [(b"\0\1", b"")],
    "the last is missing": [(b"", b"\0\1")],
    "a hole": [(b"", b"\0\1"), (b"\0\2", b"")],
    "twice": [(b"", b"\0\2"), (b"\0\1", b"")],
    "all of it twice": [(b"", b""), (b"", b"")],
}


@pytest.mark.parametrize("kind", BROKEN)
def test_regions_that_do_not_cover_the_table_once_are_not_used(begin: Begin, kind: str) -> None:
    served = RegionServer("q", rows=header_rows(1))
    store, address = begin(served)
    served.regions = [region_row("q", start, end, address) for start, end in BROKEN[kind]]
    for ask in (
        lambda: store.log("q").newest(0, 9),
        lambda: store.locations.locate("q", 1),
        lambda: store.log("q").put_if_absent(0, 1, b"h", {}),
    ):
        with pytest.raises(StoreUnavailableError) as caught:
            ask()
        assert caught.value.outcome is Outcome.NOT_APPLIED
    assert {each.method for each in served.asked} == {"Scan"}, "nothing but hbase:meta was asked"


def test_what_is_split_or_served_nowhere_or_a_replica_does_not_count(begin: Begin) -> None:
    served = RegionServer("q", rows=header_rows(1))
    store, address = begin(served)
    served.regions = [
        region_row("q", b"", b"", address, offline=True, split=True),
        region_row("q", b"", b"", address, replica_id=1),
        region_row("q", b"", b"\0\1", address),
        region_row("q", b"\0\1", b"", None),
    ]
    with pytest.raises(StoreUnavailableError):
        store.locations.locate("q", 1)
    served.regions = [*served.regions[:3], region_row("q", b"\0\1", b"", address)]
    assert len(store.locations.locate("q", 2)) == 2


def test_a_partition_in_several_regions_is_read_as_one(begin: Begin) -> None:
    served = RegionServer("q", rows=header_rows(*range(10, 40)), page=4)
    store, address = begin(served)
    keys = [b"", *(rowkey.encode(0, slot) for slot in (5, 20, 30, 50)), b"\0\1", b""]
    served.regions = [
        region_row("q", start, end, address) for start, end in itertools.pairwise(keys)
    ]
    log = store.log("q")
    for start in (0, 10, 19, 20, 25, 39, 40):
        for limit in (1, 10, 100):
            expected = [slot for slot in range(10, 40) if slot >= start][:limit]
            assert [row.slot for row in log.headers(0, start, limit)] == expected
            expected = [slot for slot in range(39, 9, -1) if slot <= start][:limit]
            assert [row.slot for row in log.backwards(0, start, limit)] == expected
    newest = log.newest(0, MESSAGE_ID_MAX)
    assert newest is not None
    assert newest.slot == 39
    assert log.newest(1, MESSAGE_ID_MAX) is None


@pytest.mark.parametrize(
    ("state", "error"),
    [(pb.TableState.DISABLED, QueueDisabledError), (None, QueueNotFoundError),
     (pb.TableState.ENABLED, StoreUnavailableError)],
)  # fmt: skip
def test_why_a_region_is_not_served_is_looked_up(
    begin: Begin, state: int | None, error: type[Exception]
) -> None:
    served = RegionServer("q")

    def script(asked: Asked) -> list[bytes]:
        if asked.method != "Mutate":
            return served(asked)
        served.state = state
        return [refusal(asked, NOT_SERVING)]

    store, address = begin(script)  # type: ignore[arg-type]
    served.regions = [region_row("q", b"", b"", address)]
    with pytest.raises(error) as caught:
        store.log("q").put_if_absent(0, 1, b"h", {b"t": b"1"})
    assert type(caught.value) is error
    assert caught.value.outcome is Outcome.NOT_APPLIED  # type: ignore[attr-defined]


@pytest.mark.parametrize("table", ["q", Settings().metadata_table])
@pytest.mark.parametrize("state", [pb.TableState.DISABLED, None, pb.TableState.ENABLED])
def test_deletions_of_which_some_were_done_are_unknown_whatever_became_of_the_others(
    begin: Begin, state: int | None, table: str
) -> None:
    served = RegionServer(table)

    def script(asked: Asked) -> list[bytes]:
        if asked.method != "Multi":
            return served(asked)
        served.state = state
        response, _ = served.multi(asked.message)
        lost = response.regionActionResult[1]
        lost.Clear()
        lost.exception.name = NOT_SERVING
        return [answer(asked, response)]

    store, address = begin(script)  # type: ignore[arg-type]
    keys = [rowkey.encode(0, 0), rowkey.encode(0, 5)]
    served.regions = [
        region_row(table, b"", keys[1], address),
        region_row(table, keys[1], b"", address),
    ]
    delete = {
        "q": lambda: store.log("q").delete_headers(0, [0, 5], 1),
        Settings().metadata_table: lambda: store.fields()._rows.delete(keys),
    }
    with pytest.raises(HQueueError) as caught:
        delete[table]()
    assert caught.value.outcome is Outcome.UNKNOWN


class Others(RegionServer):
    """Answers with other rows than it was asked for."""

    others: Any = None

    def found(self, said: Any) -> Any:
        if self.others is None or said.region.value.startswith(b"hbase:meta"):
            return super().found(said)
        return self.others


def test_rows_that_were_not_asked_for_are_no_answer(begin: Begin) -> None:
    served = Others("q")
    store, address = begin(served)
    served.regions = [region_row("q", b"", b"", address)]
    log = store.log("q")
    assert log.headers(0, 5, 9) == []
    served.others = [(rowkey.encode(0, 1), [(b"log", b"batch", b"1")])]
    with pytest.raises(StoreUnavailableError) as caught:
        log.headers(0, 5, 9)
    assert caught.value.outcome is Outcome.UNKNOWN


def test_the_error_of_one_who_waits_in_vain_for_anothers_answer_names_table_and_server() -> None:
    regions = RegionMap(Meta(ZooKeeperRegistry(reading(lambda path: b""), "/hbase")), "q", 1)
    first = regions.regions()
    next(first)
    with ThreadPoolExecutor(1) as threads:
        error = threads.submit(carry_out, regions.regions(), lambda step: None).exception(60)
    first.close()
    assert isinstance(error, StoreUnavailableError)
    assert "HBase's meta table" in error.text
    assert error.table == "q"
