"""Where a table's regions are, as far as it helps to choose a gateway: asked seldom, and a hint."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

from hqueue.errors import StoreUnavailableError
from hqueue.format import rowkey
from hqueue.hbase.thrift.idl import hbase2
from hqueue.hbase.thrift.locations import Locations
from hqueue.settings.addresses import GatewayAddress
from tests.support.doubles import SteppedClock

FRESH_MS, RETRY_MS = 30_000, 5_000


class Asked:
    """Gateways that count how often they are asked where two regions are."""

    def __init__(self, *hosts: str) -> None:
        self.settings = SimpleNamespace(gateways=[GatewayAddress(host) for host in hosts])
        self.times = 0
        self.away = False
        self.begun = threading.Semaphore(0)
        self.answers = threading.Event()
        self.answers.set()

    def call(self, *_: object) -> list[Any]:
        self.times += 1
        self.begun.release()
        assert self.answers.wait(30)
        if self.away:
            raise StoreUnavailableError("away")
        return [
            hbase2.TRegionLocation(
                hbase2.TServerName(host, 16_020, 1), hbase2.TRegionInfo(1, b"q", start, b"")
            )
            for host, start in (("second", b"\0\2"), ("first", b""))
        ]


def opened(*hosts: str) -> tuple[Asked, Locations, SteppedClock]:
    asked, clock = Asked(*hosts), SteppedClock(1_000.0)
    gateways: Any = asked
    return asked, Locations(gateways, "q", clock), clock


def test_each_row_lies_in_the_region_that_begins_at_or_before_it() -> None:
    asked, locations, _ = opened("first", "second")
    found = [locations.host_of(rowkey.encode(partition, 7)) for partition in range(4)]
    assert found == ["first", "first", "second", "second"]
    assert locations.host_of(rowkey.first_of(2)[:2]) == "second"
    assert asked.times == 1


def test_with_all_gateways_on_one_host_nothing_is_asked() -> None:
    asked, locations, _ = opened("first", "first")
    assert locations.host_of(rowkey.encode(0, 0)) is None
    assert asked.times == 0


def test_what_is_known_is_used_for_a_while_and_then_asked_again() -> None:
    asked, locations, clock = opened("first", "second")
    for times in (1, 2, 3):
        assert locations.host_of(b"\0\0") == "first"
        clock.now_ms += FRESH_MS - 1
        assert locations.host_of(b"\0\0") == "first"
        assert asked.times == times
        clock.now_ms += 1


def test_one_that_was_doubted_is_asked_again_sooner() -> None:
    asked, locations, clock = opened("first", "second")
    assert locations.host_of(b"\0\0") == "first"
    locations.doubt()
    clock.now_ms += RETRY_MS - 1
    locations.doubt()  # Later doubts put nothing off.
    assert locations.host_of(b"\0\0") == "first"
    assert asked.times == 1
    clock.now_ms += 1
    assert locations.host_of(b"\0\0") == "first"
    assert asked.times == 2


def test_without_an_answer_there_is_no_hint_and_nothing_is_asked_for_a_while() -> None:
    asked, locations, clock = opened("first", "second")
    asked.away = True
    for times in (1, 2):
        assert locations.host_of(b"\0\0") is None
        clock.now_ms += RETRY_MS - 1
        assert locations.host_of(b"\0\0") is None
        assert asked.times == times
        clock.now_ms += 1
    asked.away = False
    assert locations.host_of(b"\0\0") == "first"


def test_those_that_come_while_it_is_asked_first_wait_for_the_answer() -> None:
    asked, locations, _ = opened("first", "second")
    asked.answers.clear()
    with ThreadPoolExecutor(4) as threads:
        found = [threads.submit(locations.host_of, b"\0\0") for _ in range(4)]
        assert asked.begun.acquire(timeout=30)
        asked.answers.set()
    assert [each.result() for each in found] == ["first"] * 4
    assert asked.times == 1


def test_those_that_come_while_it_is_asked_again_go_by_what_is_known() -> None:
    asked, locations, clock = opened("first", "second")
    assert locations.host_of(b"\0\0") == "first"
    assert asked.begun.acquire(timeout=30)
    clock.now_ms += FRESH_MS
    asked.answers.clear()
    with ThreadPoolExecutor(1) as threads:
        found = threads.submit(locations.host_of, b"\0\0")
        assert asked.begun.acquire(timeout=30)
        assert locations.host_of(b"\0\0") == "first"
        asked.answers.set()
    assert found.result() == "first"
    assert asked.times == 2
