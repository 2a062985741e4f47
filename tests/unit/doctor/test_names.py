"""Names of hosts."""

from __future__ import annotations

import socket
from typing import Any

import pytest

import hqueue
from hqueue.doctor import Finding, Level, Subject
from hqueue.doctor.names import check_names, look_up

FORWARDS = {"host1": "10.0.0.1", "host2.example.com": "10.0.0.2", "me": "10.0.0.9"}
BACKWARDS = {"10.0.0.1": "host1.example.com", "10.0.0.2": "other.example.com"}


@pytest.fixture(autouse=True)
def name_service(monkeypatch: pytest.MonkeyPatch) -> None:
    def forwards(host: str, port: object, **given: Any) -> list[Any]:
        if host not in FORWARDS:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (FORWARDS[host], 0))]

    def backwards(address: str) -> Any:
        if address not in BACKWARDS:
            raise socket.herror(1, "Unknown host")
        return BACKWARDS[address], [], [address]

    monkeypatch.setattr(socket, "getaddrinfo", forwards)
    monkeypatch.setattr(socket, "gethostbyaddr", backwards)
    monkeypatch.setattr(socket, "gethostname", lambda: "me")


def found_of(*hosts: str, by_kerberos: bool = True) -> list[Finding]:
    return [*look_up(hosts, by_kerberos=by_kerberos)]


def test_names_that_agree_are_well() -> None:
    [found] = found_of("host1", "host1")
    assert (found.level, found.found) == (Level.OK, "host1 has the address 10.0.0.1")


def test_an_unknown_name_is_wrong() -> None:
    [found] = found_of("nowhere")
    assert found.level is Level.WRONG
    assert found.found.startswith("nowhere has no address")


def test_another_name_backwards_is_warned_of_where_tickets_go_by_names() -> None:
    [found] = found_of("host2.example.com")
    assert found.level is Level.WARNING
    assert (
        found.found == "host2.example.com has the address 10.0.0.2, whose name is other.example.com"
    )
    [found] = found_of("host2.example.com", by_kerberos=False)
    assert found.level is Level.OK


def test_addresses_are_not_looked_up() -> None:
    assert found_of("10.0.0.7", "::1") == []


def test_the_hosts_of_the_settings_are_looked_up_and_this_one() -> None:
    settings = hqueue.Settings(zookeeper="host1:2181,nowhere:2181", hbase_masters="elsewhere")
    found = [*check_names(Subject(settings))]
    assert [each.level for each in found] == [Level.OK, Level.OK, Level.WRONG, Level.WRONG]
    assert found[0].found == "this machine, me, has the address 10.0.0.9"


def test_this_machine_without_an_address_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "nobody")
    settings = hqueue.Settings(gateways="10.0.0.1", zookeeper="10.0.0.1")
    [found] = check_names(Subject(settings))
    assert found.level is Level.WARNING
    assert "this machine's own name, nobody, has no address" in found.found
