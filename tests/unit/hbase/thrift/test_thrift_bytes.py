"""What a gateway answers is not trusted: it is bounded, and what it lacks is not taken for none."""

from __future__ import annotations

import os
import resource
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from thriftpy2.thrift import TType

from hqueue import Outcome, StoreUnavailableError
from hqueue.errors import NotAQueueError
from hqueue.format.cells import encode_bodies
from hqueue.hbase.thrift.appends import TableAppends
from hqueue.hbase.thrift.gateways import Gateways
from hqueue.hbase.thrift.idl import hbase2
from hqueue.hbase.thrift.locations import Locations, region_locations
from hqueue.hbase.thrift.reads import TableReads
from hqueue.hbase.thrift.tables import Tables
from hqueue.message import Message
from hqueue.rpc.transports import LARGE_BYTES
from tests.fuzz.gateway import QUEUE, FakeGateway, Spoil
from tests.fuzz.log import chained
from tests.fuzz.wire import Bulk, settings_of

TABLE = QUEUE.decode()
ROWS = {row.key: row for row in chained(0, [encode_bodies([Message("t", b"a")])] * 3)}

Open = Callable[..., tuple[FakeGateway, Gateways]]


@pytest.fixture
def opened() -> Iterator[Open]:
    """Opens gateways that answer truthfully but for the answers with these numbers."""
    made: list[Any] = []

    def open_gateways(
        spoils: dict[int, Spoil],
        *,
        transport: str = "buffered",
        protocol: str = "binary",
        request_timeout_ms: int = 60_000,
    ) -> tuple[FakeGateway, Gateways]:
        served = FakeGateway(transport, protocol)
        served.begin(ROWS, spoils)
        made.append(served)
        made.append(Gateways(settings_of(served, request_timeout_ms=request_timeout_ms)))
        return served, made[-1]

    yield open_gateways
    for one in made:
        one.close()


def reads_of(gateways: Gateways) -> TableReads:
    return TableReads(gateways, TABLE, Locations(gateways, TABLE))


@pytest.mark.parametrize("transport", ["buffered", "framed"])
@pytest.mark.parametrize("protocol", ["binary", "compact"])
def test_a_gateway_that_answers_the_truth_is_understood(
    opened: Open, transport: str, protocol: str
) -> None:
    _, gateways = opened({}, transport=transport, protocol=protocol)
    assert [row.key for row in reads_of(gateways).headers(0, 0, 10)] == list(ROWS)
    assert [row.key for row in reads_of(gateways).open(0, 0, 2**62, None).read(10)] == list(ROWS)


@pytest.mark.parametrize("transport", ["buffered", "framed"])
@pytest.mark.parametrize("protocol", ["binary", "compact"])
def test_large_and_small_values_go_there_and_come_back(
    opened: Open, transport: str, protocol: str
) -> None:
    _, gateways = opened({}, transport=transport, protocol=protocol)
    appends = TableAppends(gateways, TABLE, Locations(gateways, TABLE))
    reads = reads_of(gateways)
    cells = [
        {f"{number}-{size}".encode(): os.urandom(size) for size in sizes}
        for number, sizes in enumerate(
            [[0], [LARGE_BYTES - 1, 5], [LARGE_BYTES, 5], [1_000_000, 70_000, 3], [1], [200_000]]
        )
    ]
    for slot, given in enumerate(cells):
        assert appends.put_if_absent(1, slot, b"header", given)
        assert not appends.put_if_absent(1, slot, b"another", given)
    slots = [(1, slot) for slot in range(len(cells))]
    stream = reads.open(1, 0, 2**62, None)
    # The first answers are read as small ones, those after them as large.
    for rows in (
        reads.get(slots, None),
        reads.get(slots, None),
        [row for _ in cells for row in stream.read(1)],
    ):
        assert [{k.encode(): v for k, v in row.cells.items()} for row in rows] == cells
        assert {row.header for row in rows} == {b"header"}


@pytest.mark.parametrize(
    ("kind", "inner"),
    [
        (TType.STRING, b"\0\0\0\1x"),
        (TType.I64, bytes(8)),
        (TType.LIST, b"\x03\0\0\0\2ab"),
        (TType.MAP, b"\x0b\x02\0\0\0\1\0\0\0\1k\1"),
        (TType.STRUCT, b"\x02\0\1\1\x0c\0\2\0\0"),
    ],
)
def test_a_field_that_a_later_hbase_adds_is_stepped_over(
    opened: Open, kind: int, inner: bytes
) -> None:
    def extended(answer: bytes) -> bytes:
        return answer[:head] + struct.pack(">bh", kind, 99) + inner + answer[head:]

    head = 4 + 4 + len("getScannerResults") + 4
    served, gateways = opened({1: Spoil(extended), 2: Spoil(extended)})
    assert len(reads_of(gateways).headers(0, 0, 10)) == 3
    assert len(reads_of(Bulk(settings_of(served))).headers(0, 0, 10)) == 3


@pytest.mark.parametrize("kind", [Gateways, Bulk])
@pytest.mark.parametrize(
    ("tail", "said"),
    [
        (struct.pack(">bhbi", TType.LIST, 99, TType.STOP, 2**31 - 1), "no type"),
        (struct.pack(">bhbi", TType.LIST, 0, TType.STRING, 1), "unexpected type"),
        (struct.pack(">bh", TType.STRUCT, 0), "unexpected type"),
        (struct.pack(">bh", TType.STRUCT, 99) * 100, "nested too deeply"),
        (struct.pack(">bhi", TType.STRING, 99, -5), "larger than an answer may be"),
        (struct.pack(">bhi", TType.STRING, 99, 2**31 - 1), "larger than an answer may be"),
    ],
)
def test_an_answer_is_not_believed_everything(
    opened: Open, kind: type[Gateways], tail: bytes, said: str
) -> None:
    def made_up(answer: bytes) -> bytes:
        return answer[: 4 + 4 + len("getScannerResults") + 4] + tail + bytes(100)

    served, _ = opened({1: Spoil(made_up)})
    with pytest.raises(StoreUnavailableError) as raised:
        reads_of(kind(settings_of(served))).headers(0, 0, 10)
    assert said in str(raised.value)


def test_an_answer_that_goes_beyond_its_frame_is_refused(opened: Open) -> None:
    def shorter(answer: bytes) -> bytes:
        return struct.pack(">I", 31) + answer[4:]

    served, _ = opened({1: Spoil(shorter)}, transport="framed")
    with pytest.raises(StoreUnavailableError) as raised:
        reads_of(Bulk(settings_of(served))).headers(0, 0, 10)
    assert "cut off" in str(raised.value)


def test_an_answer_that_comes_byte_by_byte_is_not_waited_for_beyond_the_bound(
    opened: Open,
) -> None:
    _, gateways = opened({1: Spoil(manner="drip")}, request_timeout_ms=1_500)
    with pytest.raises(StoreUnavailableError) as raised:
        reads_of(gateways).headers(0, 0, 10)
    assert "timed out" in str(raised.value)
    assert len(reads_of(gateways).headers(0, 0, 10)) == 3


@pytest.mark.parametrize("transport", ["buffered", "framed"])
def test_a_length_of_two_gibibytes_takes_no_memory(opened: Open, transport: str) -> None:
    length = struct.pack(">i", 2**31 - 1)
    head = length if transport == "framed" else struct.pack(">i", -(2**31) + 65_538) + length
    _, gateways = opened({1: Spoil(lambda _: head + bytes(5_000))}, transport=transport)
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(StoreUnavailableError) as raised:
        reads_of(gateways).headers(0, 0, 10)
    assert "larger than an answer may be" in str(raised.value) or "MemoryError" in str(raised.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 64 * 1024


def test_two_billion_values_of_no_type_are_refused_not_counted(opened: Open) -> None:
    unknown_field, no_type, two_billion = b"\x59", b"\xf0", b"\xff\xff\xff\xff\x07"

    def made_up(answer: bytes) -> bytes:
        name_end = answer.index(b"getScannerResults") + len(b"getScannerResults")
        return answer[:name_end] + unknown_field + no_type + two_billion + bytes(100)

    _, gateways = opened({1: Spoil(made_up)}, protocol="compact")
    with pytest.raises(StoreUnavailableError) as raised:
        reads_of(gateways).headers(0, 0, 10)
    assert "no type" in str(raised.value)


@pytest.mark.parametrize(
    "result",
    [
        hbase2.TResult(row=bytes(12)),
        hbase2.TResult(row=bytes(12), columnValues=[hbase2.TColumnValue(b"log", b"batch")]),
    ],
)
def test_a_header_that_an_answer_leaves_out_is_not_an_absent_header(
    opened: Open, result: Any
) -> None:
    served, gateways = opened({})
    served.answer("get", lambda *_: result)
    served.answer("getScannerResults", lambda *_: [result])
    appends = TableAppends(gateways, TABLE, Locations(gateways, TABLE))
    for ask in (
        lambda: appends.header(0, 0),
        lambda: appends.newest(0, 5),
        lambda: appends.record("work"),
    ):
        with pytest.raises(StoreUnavailableError) as raised:
            ask()
        assert raised.value.outcome is Outcome.UNKNOWN


@pytest.mark.parametrize(
    "locations",
    [
        [],
        [hbase2.TRegionLocation()],
        [
            hbase2.TRegionLocation(
                hbase2.TServerName("host", 1, 1), hbase2.TRegionInfo(1, QUEUE, b"\0\1", b"")
            )
        ],
    ],
)
def test_locations_without_the_first_region_are_no_answer(
    opened: Open, locations: list[Any]
) -> None:
    served, gateways = opened({})
    served.answer("getAllRegionLocations", lambda *_: locations)
    with pytest.raises(StoreUnavailableError):
        region_locations(gateways, TABLE)


@pytest.mark.parametrize("partitions", [b"0", b"32768", b"\xff"])
def test_a_table_with_an_impossible_number_of_partitions_is_no_queue(
    opened: Open, partitions: bytes
) -> None:
    def other(truth: Callable[[Any], Any], name: Any) -> Any:
        descriptor = truth(name)
        descriptor.attributes[b"hqueue.partitions"] = partitions
        return descriptor

    served, gateways = opened({})
    served.answer("getTableDescriptor", other)
    with pytest.raises(NotAQueueError):
        Tables(gateways).describe(TABLE)
