"""What a process of a run opens goes through the proxies, and never past them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import hqueue
import hqueue.connecting
import hqueue.hbase.native
from hqueue.hbase.native.native_store import NativeStore
from hqueue.hbase.native.opening import Opener
from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.requests import has_value
from hqueue.hbase.native.wire import CLIENT, MASTER, request_front
from hqueue.settings.addresses import Address
from tests.support.native_proxies import NativeProxies
from tests.support.proxy import Fate

from .__main__ import _names
from .schedule import FAULTS, GATEWAYS, HUBS, NATIVE, kinds
from .specification import Specification
from .ways import route_by

SERVER = Address("127.0.0.3", 1)
EVERYTHING = dict.fromkeys(("apart", "power", "slow", "clocks", "upgrades"), True)


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def address_of(listener: socket.socket) -> Address:
    return Address("127.0.0.1", listener.getsockname()[1])


def test_a_region_server_is_reached_by_its_proxy_and_the_master_directly() -> None:
    route = route_by({str(SERVER): "127.0.0.1:1"})
    assert route(SERVER, CLIENT) == Address("127.0.0.1", 1)
    assert route(SERVER, MASTER) == SERVER


def test_a_region_server_without_a_proxy_is_refused() -> None:
    route = route_by({str(SERVER): "127.0.0.1:1"})
    with pytest.raises(ConnectionRefusedError, match="no proxy"):
        route(Address("127.0.0.1", 2), CLIENT)


def test_clients_of_a_process_that_began_go_through_the_proxies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hqueue.hbase.native, "NativeStore", NativeStore)
    specification = Specification(
        "one", "single", "q", tmp_path, 1, {"zookeeper": "127.0.0.1:1"}, ways={"a:1": "b:2"}
    )
    begun = Specification.begin(specification.to_json())
    assert begun == specification
    store = hqueue.connecting.open_store(begun.client_settings())
    with contextlib.closing(store):
        with pytest.raises(ConnectionRefusedError, match="no proxy"):
            store._servers._opener(SERVER, CLIENT, 1)  # type: ignore[attr-defined]
        with pytest.raises(ConnectionRefusedError, match="no proxy"):
            asyncio.run(store._async_servers._opener(SERVER, CLIENT, 1))  # type: ignore[attr-defined]


def test_each_way_has_the_kinds_of_faults_that_fit_it() -> None:
    assert kinds(GATEWAYS, **EVERYTHING) == list(FAULTS)
    assert set(FAULTS) - set(kinds(NATIVE, **EVERYTHING)) == {"kill-gateway", "pause-gateway"}


@pytest.mark.parametrize(
    ("need", "kind"),
    [
        ("apart", "cut-one-way"),
        ("power", "unplug-all"),
        ("slow", "slow-zookeeper-disks"),
        ("clocks", "jump-server-clock"),
        ("upgrades", "upgrade-hub"),
    ],
)
def test_servers_are_harmed_only_in_what_they_have_of_their_own(need: str, kind: str) -> None:
    left_out = set(FAULTS) - set(kinds(GATEWAYS, **(EVERYTHING | {need: False})))
    assert left_out == {name for name, fault in FAULTS.items() if getattr(fault, need)}
    assert kind in left_out


@pytest.mark.parametrize("conditional", [True, False])
def test_only_conditional_changes_come_late(listening: socket.socket, *, conditional: bool) -> None:
    """What comes late and is no conditional put would be a fault that no network has: a delete
    that is repeated by nobody.
    """
    request = pb.MutateRequest(
        region=pb.RegionSpecifier(type=pb.RegionSpecifier.REGION_NAME, value=b"r"),
        mutation=pb.MutationProto(row=b"row"),
        condition=pb.Condition.FromString(has_value(b"row", (b"f", b"q"), None))
        if conditional
        else None,
    ).SerializeToString()
    came: list[bytes] = []

    def answer_one() -> None:
        listening.settimeout(60)
        for _ in range(1 + conditional):
            with listening.accept()[0] as taken:
                while data := taken.recv(1 << 16):
                    came.append(data)
                    if request in b"".join(came):
                        taken.sendall(b"x")
                        return

    with contextlib.closing(NativeProxies()) as proxies, ThreadPoolExecutor(1) as pool:
        proxies.holds_conditional_only = True
        proxies.fate = lambda _: Fate.HOLD
        answering = pool.submit(answer_one)
        server = proxies.route(address_of(listening), CLIENT)
        with Opener().open(server, CLIENT, 60).socket as opened:
            opened.sendall(request_front(1, b"Mutate", request, 0, 1_000))
            assert opened.recv(1) == b"", "the connection breaks"
        assert request not in b"".join(came)
        assert proxies.deliver() == conditional
        answering.result(timeout=60)
    assert (request in b"".join(came)) is conditional


def test_the_name_of_those_harmed_stands_for_all_kinds_that_harm_them() -> None:
    known = kinds(NATIVE, **EVERYTHING)
    *of_hubs, last = _names("hubs, compact", known)
    assert {"kill-hub", "move-topics"} <= set(of_hubs)
    assert all(FAULTS[name].track == HUBS and not FAULTS[name].upgrades for name in of_hubs)
    assert last == "compact"
    assert _names("upgrade", known) == [name for name in known if FAULTS[name].upgrades]
    assert _names("upgrade", ["compact"]) == ["upgrade"]
