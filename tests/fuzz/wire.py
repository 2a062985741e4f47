"""Answers off the wire: a gateway pair whose answers are damaged, cut off, late or made up."""

from __future__ import annotations

import dataclasses
import functools
import logging
import struct
import time
from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import strategies as st

from hqueue import HQueueError, Settings
from hqueue.hbase.thrift.appends import TableAppends
from hqueue.hbase.thrift.gateways import Gateways
from hqueue.hbase.thrift.locations import Locations, region_locations
from hqueue.hbase.thrift.reads import TableReads
from hqueue.hbase.thrift.tables import Tables

from .damage import Damage, damaged, damages
from .fuzz_store import SteppedClock
from .gateway import QUEUE, FakeGateway, Spoil
from .log import Table, tables
from .target import Target

__all__ = ["TARGETS", "Bulk", "gateway", "settings_of", "spoils"]

REQUEST_MS = 150
TRY_S_MAX = 5.0
"""A call makes one try, or tries while the stepped clock lets it; each is bounded by the above."""

TABLE = QUEUE.decode()
WALL_MS = 1_700_000_000_000


@functools.lru_cache(maxsize=4)
def gateway(transport: str, protocol: str) -> FakeGateway:
    """One for each way to speak, for as long as the process lives."""
    return FakeGateway(transport, protocol)


def settings_of(served: FakeGateway, **given: Any) -> Settings:
    return Settings(
        gateways=(served.address,),
        transport=served.transport,
        protocol=served.protocol,
        connect_timeout_ms=1_000,
        gateway_retry_ms=1,
        **{"request_timeout_ms": REQUEST_MS, "operation_timeout_ms": REQUEST_MS, **given},
    )


@dataclasses.dataclass(frozen=True)
class _Changed:
    """Damage to an answer, as a function."""

    done: tuple[Damage, ...]

    def __call__(self, answer: bytes) -> bytes:
        return damaged(answer, self.done, answer)


@dataclasses.dataclass(frozen=True)
class _MadeUp:
    """The head of the answer, and then something else."""

    kept: int
    tail: bytes

    def __call__(self, answer: bytes) -> bytes:
        return answer[: self.kept] + self.tail


sizes = st.sampled_from([0, 1, 3, 2**16, 2**24, 2**28, 2**31 - 1, -1, -(2**31)])
tokens = st.one_of(
    st.builds(struct.Struct(">bh").pack, st.integers(0, 16), st.integers(-1, 4)),
    st.builds(struct.Struct(">bi").pack, st.integers(0, 16), sizes),
    st.builds(struct.Struct(">bbi").pack, st.integers(0, 16), st.integers(0, 16), sizes),
    st.builds(struct.Struct(">i").pack, sizes),
    st.binary(max_size=4),
    st.sampled_from([b"\0", b"\xff" * 6, b"\xff\xff\xff\xff\x07", b"\x19\xfc", b"\x1c\x0c"]),
)
"""Pieces of Thrift: heads of fields, lists and maps, lengths, and the ends of structs."""

made_up = st.builds(
    _MadeUp,
    st.integers(0, 60),
    st.lists(tokens, max_size=8).map(b"".join),
)
changes: st.SearchStrategy[Callable[[bytes], bytes]] = st.one_of(
    damages(3).map(tuple).map(_Changed), made_up, st.just(bytes)
)
manners = (
    st.integers(0, 40)
    .map({0: "stall", 1: "drip", 2: "close", 3: "close"}.get)
    .map(lambda manner: manner or "whole")
)
spoils = st.builds(Spoil, changes, st.none() | st.integers(0, 500), manners)
plans = st.dictionaries(st.integers(1, 4), spoils, min_size=1, max_size=3)


@dataclasses.dataclass(frozen=True)
class _Ports:
    gateways: Gateways
    appends: TableAppends
    reads: TableReads
    tables: Tables


def _scan(ports: _Ports) -> None:
    stream = ports.reads.open(0, 0, 2**62, None)
    try:
        stream.read(2)
        stream.read(2)
    finally:
        stream.close()


CALLS: dict[str, Callable[[_Ports], object]] = {
    "newest": lambda p: p.reads.newest(0, 2**62),
    "headers": lambda p: p.reads.headers(0, 0, 500),
    "header": lambda p: p.appends.header(0, 0),
    "get": lambda p: p.reads.get([(0, 0), (1, 0)], None),
    "scan": _scan,
    "put": lambda p: p.appends.put_if_absent(0, 5, b"header", {b"t": b"cell"}),
    "delete headers": lambda p: p.appends.delete_headers(0, [0, 5], 1),
    "delete row": lambda p: p.appends.delete_row(0, 0, [b"t"]),
    "record": lambda p: p.appends.record("work"),
    "replace record": lambda p: p.appends.replace_record("work", b"old", b"new"),
    "clock": lambda p: p.appends.clock_offset_ms(),
    "locations": lambda p: region_locations(p.gateways, TABLE),
    "describe": lambda p: p.tables.describe(TABLE),
    "list": lambda p: p.tables.list(),
    "create": lambda p: p.tables.create("new", 2, 60, {}),
    "alter": lambda p: p.tables.alter(TABLE, ttl_seconds=60, attributes={"compression": "GZ"}),
    "disable": lambda p: p.tables.disable(TABLE),
    "delete": lambda p: p.tables.delete(TABLE),
    "truncate": lambda p: p.tables.truncate(TABLE),
}
wires = st.tuples(st.sampled_from(["buffered", "framed"]), st.sampled_from(["binary", "compact"]))


class Bulk(Gateways):
    """Takes every answer for one with large values."""

    def call(self, *given: Any, **options: Any) -> Any:
        return super().call(*given, **{**options, "bulk": True})


def _call(given: tuple[tuple[str, str], bool, Table, Mapping[int, Spoil], str]) -> None:
    """Whatever comes off the wire, a call ends in time, and with no other error than its own."""
    logging.getLogger("hqueue").setLevel(logging.CRITICAL)
    wire, bulk, table, plan, call = given
    served = gateway(*wire)
    served.begin({row.key: row for row in table.rows()}, plan)
    clock = SteppedClock(WALL_MS)
    gateways = (Bulk if bulk else Gateways)(settings_of(served), clock)
    locations = Locations(gateways, TABLE, clock)
    ports = _Ports(
        gateways,
        TableAppends(gateways, TABLE, locations, clock),
        TableReads(gateways, TABLE, locations),
        Tables(gateways, clock),
    )
    began_s = time.monotonic()
    try:
        CALLS[call](ports)
    except HQueueError:
        pass
    finally:
        gateways.close()
    took_s = time.monotonic() - began_s
    assert took_s < TRY_S_MAX, f"it took {took_s:.1f} s"


TARGETS: list[Target[Any]] = [
    Target(
        "wire", st.tuples(wires, st.booleans(), tables, plans, st.sampled_from(list(CALLS))), _call
    )
]
