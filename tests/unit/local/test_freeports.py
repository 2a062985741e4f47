"""Choosing ports for the local server."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from hqueue.errors import LocalServerError
from hqueue.local.freeports import choose_ports, is_free, is_listening


@pytest.fixture
def listening() -> Iterator[int]:
    """A port on which something listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_ports_are_free_and_different() -> None:
    ports = choose_ports([f"p{i}" for i in range(50)])
    assert len(set(ports.values())) == 50
    assert all(is_free(port) for port in ports.values())


def test_given_ports_are_taken_and_preferred_ones_if_free(listening: int) -> None:
    free = choose_ports(["x", "y"])
    ports = choose_ports(
        ["a", "b", "c"],
        given={"a": free["x"]},
        preferred={"a": listening, "b": free["y"], "c": listening},
    )
    assert ports["a"] == free["x"]
    assert ports["b"] == free["y"]
    assert ports["c"] not in (listening, *free.values())


def test_a_given_port_in_use_is_refused(listening: int) -> None:
    assert is_listening("127.0.0.1", listening)
    with pytest.raises(LocalServerError, match="in use") as caught:
        choose_ports(["a"], given={"a": listening})
    assert caught.value.port == listening


@pytest.mark.parametrize(
    "given", [{"other": 25_000}, {"a": 0}, {"a": 65_536}, {"a": 25_001, "b": 25_001}]
)
def test_wrong_given_ports_are_refused(given: dict[str, int]) -> None:
    with pytest.raises(LocalServerError):
        choose_ports(["a", "b"], given=given)
