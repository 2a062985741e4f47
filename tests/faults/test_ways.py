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

from .schedule import FAULTS, GATEWAYS, NATIVE, kinds
from .specification import Specification
from .ways import route_by

SERVER = Address("127.0.0.3", 1)


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
    assert kinds(GATEWAYS, apart=True, power=True, clocks=True, upgrades=True) == list(FAULTS)
    natively = kinds(NATIVE, apart=True, power=True, clocks=True, upgrades=True)
    assert set(FAULTS) - set(natively) == {"kill-gateway", "pause-gateway"}


def test_power_is_cut_only_where_disks_are_the_servers_own() -> None:
    of_power = set(FAULTS) - set(
        kinds(GATEWAYS, apart=True, power=False, clocks=True, upgrades=True)
    )
    assert of_power == {name for name, fault in FAULTS.items() if fault.power}
    assert "unplug-all" in of_power


def test_the_network_is_cut_only_where_hosts_are_apart() -> None:
    of_network = set(FAULTS) - set(
        kinds(GATEWAYS, apart=False, power=True, clocks=True, upgrades=True)
    )
    assert "cut-one-way" in of_network
    assert of_network == {name for name, fault in FAULTS.items() if fault.apart}


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


def test_clocks_are_set_only_where_servers_have_their_own() -> None:
    of_clocks = set(FAULTS) - set(
        kinds(GATEWAYS, apart=True, power=True, clocks=False, upgrades=True)
    )
    assert of_clocks == {name for name, fault in FAULTS.items() if fault.clocks}
    assert of_clocks
