"""A host and a port, wherever they are written."""

from __future__ import annotations

import pytest

from hqueue import GatewayAddress, InvalidInputError, SettingsError
from hqueue.settings.addresses import Address, is_host, zookeeper_servers


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("rs1.example:5000", "rs1.example", 5_000),
        ("127.0.0.1:1", "127.0.0.1", 1),
        ("[::1]:65535", "::1", 65_535),
    ],
)
def test_an_address_is_read_as_it_is_written(text: str, host: str, port: int) -> None:
    assert Address.parse(text) == Address(host, port)
    assert str(Address(host, port)) == text


@pytest.mark.parametrize(
    "text", ["", "h", "h:", ":1", "h:0", "h:65536", "h:x", "h:-1", "h: 1", "a b:1", "[::1]", "h:²"]
)
def test_what_is_no_host_and_port_is_no_address(text: str) -> None:
    with pytest.raises(InvalidInputError):
        Address.parse(text)


NO_HOSTS = [
    "\0", "h\0", "h\x1b[2J", "h\x7f", "h\u2028", "a b", "134744072", "8.8", "1.2.3", "0x7f.1",
    "0x7f000001", "127.0.0.1.", "1.2.3.4.5", "256.1.1.1", "010.1.1.1",
]  # fmt: skip


@pytest.mark.parametrize("host", NO_HOSTS, ids=repr)
def test_what_is_neither_a_name_nor_an_ip_address_is_no_host(host: str) -> None:
    assert not is_host(host)
    with pytest.raises(InvalidInputError):
        Address.parse(f"{host}:1")
    with pytest.raises(SettingsError):
        GatewayAddress(host)


@pytest.mark.parametrize(
    "host",
    [
        "h",
        "h.",
        "rs1",
        "1e3",
        "3com.example",
        "web.1.x",
        "a_b",
        "0xyz",
        "8.8.8.8",
        "::1",
        "1" * 60 + "h",
    ],
)
def test_names_that_have_digits_and_ip_addresses_are_hosts(host: str) -> None:
    assert is_host(host)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("rs1", GatewayAddress("rs1")),
        (" rs1:1/2 ", GatewayAddress("rs1", 1, 2)),
        ("[::1]", GatewayAddress("::1")),
        ("[::1]:1/2", GatewayAddress("::1", 1, 2)),
    ],
)
def test_a_gateway_has_two_ports_or_the_usual_ones(text: str, address: GatewayAddress) -> None:
    assert GatewayAddress.parse(text) == address
    assert GatewayAddress.parse(str(address)) == address


@pytest.mark.parametrize("text", ["rs1:", "rs1:1", "rs1:1/", "rs1:1/x", "rs1:0/1", "rs1:1/65536"])
def test_what_has_other_ports_is_no_gateway(text: str) -> None:
    with pytest.raises(SettingsError):
        GatewayAddress.parse(text)


@pytest.mark.parametrize(
    ("hosts", "servers"),
    [
        ("zk1:2182", [("zk1", 2_182)]),
        ("zk1, zk2:1/hqueue", [("zk1", 2_181), ("zk2", 1)]),
        ("[::1]:5,[::2]", [("::1", 5), ("::2", 2_181)]),
    ],
)
def test_zookeepers_servers_are_those_before_its_path(
    hosts: str, servers: list[tuple[str, int]]
) -> None:
    assert zookeeper_servers(hosts) == servers


@pytest.mark.parametrize("hosts", ["", "zk1,", "zk1:", "zk1:x", "zk1:0"])
def test_what_names_no_servers_is_no_zookeeper(hosts: str) -> None:
    with pytest.raises(InvalidInputError):
        zookeeper_servers(hosts)
