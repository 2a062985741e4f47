"""Whose begun calls give way when a port holds as much as it may."""

from __future__ import annotations

import random

import pytest

from hqueue.rpc.callers import Bounds, Caller, Callers
from hqueue.rpc.gathering import FrameGatherer
from hqueue.rpc.shares import UNPROVEN_PART

BYTES_MAX = 1_000
UNPROVEN_BYTES_MAX = BYTES_MAX // UNPROVEN_PART


class Port:
    """The callers of a port: which calls each has begun, and whose connection was closed."""

    def __init__(self) -> None:
        self.callers: Callers[Caller] = Callers(Bounds(10_000, BYTES_MAX, 10, 1_000))
        self.gone: list[Caller] = []

    def begin(self, held: int, *, principal: str | None = None, network: str = "") -> Caller:
        made = Caller(FrameGatherer(100), network)
        made.holder = principal
        self.callers.begin(made, held, 0)
        self._end_surplus()
        return made

    def move(self, caller: Caller, held: int) -> None:
        self.callers.move(caller, held, 1)
        self._end_surplus()

    def end(self, caller: Caller) -> None:
        self.callers.drop(caller)

    def _end_surplus(self) -> None:
        for each in self.callers.surplus():
            self.gone.append(each)
            self.callers.drop(each)
        assert self.callers.held_bytes <= BYTES_MAX


def test_one_that_takes_too_much_loses_its_own_calls_and_the_oldest_first() -> None:
    port = Port()
    honest = port.begin(300, principal="honest")
    greedy = [port.begin(100, principal="greedy") for _ in range(20)]
    assert port.gone == greedy[:13]
    port.move(honest, 500)
    assert port.gone == greedy[:15], "up to an equal share, an honest caller's call goes on"


def test_alone_a_principal_may_have_all_of_the_memory() -> None:
    port = Port()
    for _ in range(10):
        port.begin(100, principal="alone")
    assert not port.gone


def test_callers_that_have_proven_nothing_give_way_before_principals() -> None:
    port = Port()
    principals = [port.begin(240, principal=f"p{number}") for number in range(3)]
    strangers = [port.begin(30, network=f"10.0.0.{number}") for number in range(200)]
    assert not set(port.gone) & set(principals)
    left = [each for each in strangers if each not in port.gone]
    assert left == strangers[-len(left) :]
    assert sum(each.held for each in left) <= BYTES_MAX - 3 * 240


def test_they_keep_their_part_though_principals_would_take_all() -> None:
    port = Port()
    stranger = port.begin(UNPROVEN_BYTES_MAX, network="10.0.0.1")
    for _ in range(100):
        port.begin(50, principal="greedy")
    assert stranger not in port.gone
    port.move(stranger, UNPROVEN_BYTES_MAX + 1)
    assert port.gone[-1] is stranger


def test_of_those_that_have_proven_nothing_an_address_that_takes_too_much_loses_its_own() -> None:
    port = Port()
    honest = port.begin(100, network="10.0.0.1")
    attackers = [port.begin(50, network="10.0.0.2") for _ in range(100)]
    assert honest not in port.gone
    assert port.gone == attackers[: len(port.gone)]


def test_a_caller_that_has_proven_itself_leaves_the_part_of_strangers() -> None:
    port = Port()
    caller = port.begin(UNPROVEN_BYTES_MAX, network="10.0.0.1")
    caller.holder = "p"
    port.callers.mark_idle(caller, 1)
    port.callers.begin(caller, 600, 2)
    for number in range(100):
        port.begin(40, network=f"10.0.0.{number}")
    assert caller not in port.gone


@pytest.mark.parametrize("seed", range(10))
def test_whatever_others_do_nobody_loses_a_call_within_an_equal_share(seed: int) -> None:
    """One principal among few, and one address among few strangers: no order of events harms it."""
    choose = random.Random(seed)
    port = Port()
    principals = ["p0", "p1", "p2"]
    networks = ["n0", "n1"]
    honest = [
        port.begin((BYTES_MAX - UNPROVEN_BYTES_MAX) // 3 // 2, principal="honest"),
        port.begin(UNPROVEN_BYTES_MAX // 3, network="honest"),
    ]
    begun: list[Caller] = []
    for _ in range(2_000):
        begun = [each for each in begun if each.share is not None]
        step = choose.random()
        if begun and step < 0.3:
            port.move(choose.choice(begun), choose.randrange(1, 400))
        elif begun and step < 0.4:
            port.end(choose.choice(begun))
        elif step < 0.7:
            size = choose.randrange(1, 400)
            begun.append(port.begin(size, principal=choose.choice(principals)))
        else:
            size = choose.randrange(1, 100)
            begun.append(port.begin(size, network=choose.choice(networks)))
        assert not set(honest) & set(port.gone)
    shares = {each.share for each in (*begun, *honest) if each.share is not None}
    assert sum(share.bytes for share in shares) == port.callers.held_bytes
