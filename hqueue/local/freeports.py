"""Choosing TCP ports for the server's processes."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterable, Mapping

from hqueue.errors import LocalServerError

__all__ = ["choose_ports", "is_free", "is_listening"]

PORT_MIN = 20_000
PORT_MAX = 32_000
"""Below the range from which systems take the ports of outgoing connections."""

TRIES_MAX = 2_000


def choose_ports(
    names: Iterable[str],
    *,
    given: Mapping[str, int] | None = None,
    preferred: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """Choose a port for each name, all different.

    A given port is taken as it is. A preferred one is taken if it is free now. The others are
    random free ones. Another program may take a free port before the server binds it: whoever
    starts the server must be ready to choose again.

    Raises:
        LocalServerError: a given name is unknown, a given port is in use, or none is free.
    """
    names = list(names)
    given = dict(given or {})
    preferred = preferred or {}
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise LocalServerError("no process has a port of this name", unknown=unknown, known=names)
    for name, port in given.items():
        if not 1 <= port <= 65_535:
            raise LocalServerError("a port is a number from 1 to 65535", name=name, port=port)
        if not is_free(port):
            raise LocalServerError(
                "this port is in use; give another one or end the program that uses it",
                name=name,
                port=port,
            )
    taken = set(given.values())
    if len(taken) < len(given):
        raise LocalServerError("two names have the same port", ports=given)
    ports: dict[str, int] = {}
    for name in names:
        port = given.get(name) or preferred.get(name)
        if name not in given and (port is None or port in taken or not is_free(port)):
            port = _random_port(taken)
        assert port is not None
        ports[name] = port
        taken.add(port)
    return ports


def _random_port(taken: set[int]) -> int:
    generator = random.SystemRandom()
    for _ in range(TRIES_MAX):
        port = generator.randrange(PORT_MIN, PORT_MAX)
        if port not in taken and is_free(port):
            return port
    raise LocalServerError("no free port was found", between=(PORT_MIN, PORT_MAX))


def is_free(port: int) -> bool:
    """Say whether nothing on this machine listens on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As the servers do: connections of an ended server don't keep its port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def is_listening(host: str, port: int, timeout_s: float = 1.0) -> bool:
    """Say whether a connection to the port is accepted within the bound."""
    try:
        socket.create_connection((host, port), timeout=timeout_s).close()
    except OSError:
        return False
    return True
