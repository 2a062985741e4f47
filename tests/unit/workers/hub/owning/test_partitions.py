"""Which partitions a hub claims, gives up and writes to."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from typing import Any, cast

import pytest

from hqueue import Address, StoreUnavailableError
from hqueue.metadata.managers import Hubs
from hqueue.metadata.owners import Owners
from hqueue.metadata.ports import ANY, Change
from hqueue_workers.hub.owning import partitions
from hqueue_workers.hub.owning.partitions import ClaimPaths, HubPartitions
from tests.support.memory.metadata import MemoryServer, MemorySession

CLAIMS = "/hqueue/regions/q/claims/partitions"
COUNT = 4


class Available:
    """The hubs that there are."""

    def __init__(self, *ports: int) -> None:
        self.ports = set(ports)

    def list(self) -> Collection[Address]:
        return [Address("h", port) for port in sorted(self.ports)]


class Hub:
    """A hub's partitions, and its session."""

    def __init__(self, server: MemoryServer, hubs: Available, port: int) -> None:
        self.session: MemorySession = server.open()
        self.address = Address("h", port)
        self.partitions = HubPartitions(
            self.session,
            "/hqueue",
            "q",
            COUNT,
            hubs=cast(Hubs, hubs),
            me=self.address,
            hosts=dict,
        )

    def settle(self) -> set[int]:
        self.partitions.settle()
        return set(self.partitions.held)


@pytest.fixture
def server() -> MemoryServer:
    return MemoryServer(session_timeout_ms=300)


def claimed(hub: Hub) -> set[int]:
    owners = Owners(hub.session, ClaimPaths("/hqueue", "q"), "hub").list()
    return {key.partition for key, name in owners.items() if name == str(hub.address)}


def test_a_hub_gives_half_to_another_and_takes_all_when_that_is_gone(server: MemoryServer) -> None:
    hubs = Available(1)
    first, second = Hub(server, hubs, 1), Hub(server, hubs, 2)
    assert first.settle() == set(range(COUNT))
    assert not second.settle(), "it is not available"
    hubs.ports.add(2)
    assert not second.settle(), "the other has all of it"
    assert len(first.settle()) == len(second.settle()) == 2
    assert not first.settle() & second.settle()
    hubs.ports.remove(2)
    second.session.expire()
    assert first.settle() == claimed(first) == set(range(COUNT))


def test_a_claim_that_another_hand_removed_is_made_again(server: MemoryServer) -> None:
    hub = Hub(server, Available(1), 1)
    hub.settle()
    server.open().records.delete({f"{CLAIMS}/1": ANY})
    assert claimed(hub) == {0, 2, 3}
    assert hub.settle() == claimed(hub) == set(range(COUNT))


def test_what_another_hand_wrote_over_a_claim_is_written_over_again(server: MemoryServer) -> None:
    hub = Hub(server, Available(1), 1)
    hub.settle()
    server.open().records.write({f"{CLAIMS}/1": Change(b"none of ours", ANY)})
    assert claimed(hub) == {0, 2, 3}
    assert hub.settle() == claimed(hub) == set(range(COUNT))


def test_what_was_claimed_while_the_session_was_lost_is_not_held(
    server: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = Hub(server, Available(1), 1)
    claim = hub.session.ephemerals.claim

    def claim_and_lose(values: Mapping[str, bytes]) -> Collection[str]:
        made = claim(values)
        hub.session.expire()
        hub.partitions.lose()
        return made

    with monkeypatch.context() as lost:
        lost.setattr(hub.session.ephemerals, "claim", claim_and_lose)
        assert not hub.settle()
    assert hub.settle() == claimed(hub) == set(range(COUNT))


def test_a_lost_session_is_noted_at_once_while_a_hub_plans(
    server: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = Hub(server, Available(1), 1)
    plan = partitions.assigned_to
    plans, go_on = threading.Event(), threading.Event()

    def slow(*given: Any) -> Any:
        plans.set()
        assert go_on.wait(30)
        return plan(*given)

    monkeypatch.setattr(partitions, "assigned_to", slow)
    settling = threading.Thread(target=hub.settle, daemon=True)
    settling.start()
    try:
        assert plans.wait(30)
        losing = threading.Thread(target=hub.partitions.lose, daemon=True)
        losing.start()
        losing.join(10)
        assert not losing.is_alive(), "as the event loop would wait"
    finally:
        go_on.set()
        settling.join(30)
    assert hub.settle() == set(range(COUNT))


@pytest.mark.parametrize("request_", ["claim", "release"])
def test_what_got_no_answer_is_settled_later(
    server: MemoryServer, monkeypatch: pytest.MonkeyPatch, request_: str
) -> None:
    hubs = Available(1)
    hub = Hub(server, hubs, 1)
    if request_ == "release":
        hub.settle()
        hubs.ports.add(2)
    ask = getattr(hub.session.ephemerals, request_)

    def unanswered(*args: object, **named: object) -> None:
        ask(*args, **named)
        raise StoreUnavailableError("no answer")

    with monkeypatch.context() as cut:
        cut.setattr(hub.session.ephemerals, request_, unanswered)
        hub.settle()
    assert hub.settle() == claimed(hub)
    assert len(claimed(hub)) == COUNT / len(hubs.ports)
