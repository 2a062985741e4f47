"""Choosing TCP ports for the server's processes."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Iterable, Mapping

from hqueue.errors import LocalServerError
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline
from hqueue.settings.addresses import PORT_MAX
from hqueue.settings.numbers import check_whole

__all__ = ["choose_ports", "is_free", "is_listening"]

CHOSEN_PORT_MIN = 20_000
CHOSEN_PORT_MAX = 32_000
"""Below the range from which systems take the ports of outgoing connections."""

TRIES_MAX = 2_000
FREED_WITHIN_S = 3.0


def choose_ports(
    names: Iterable[str],
    *,
    given: Mapping[str, int] | None = None,
    preferred: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """Choose a port for each name, all different.

    A given port is taken as it is. A preferred one is taken if it is free now. The others are
    random free ones. Another program may take a free port before the server binds it: the
    program that starts the server must be ready to choose again.

    Raises:
        LocalServerError: a given name is unknown, a given port is in use, or none is free.
    """
    names = list(names)
    given = dict(given or {})
    preferred = preferred or {}
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise LocalServerError(
            "no process of the local server has a port of this name", unknown=unknown, known=names
        )
    for name, port in given.items():
        check_whole(port, 1, PORT_MAX, error=LocalServerError, name=name)
        if not _becomes_free(port):
            raise LocalServerError(
                "this port is in use; give another one or end the program that uses it",
                name=name,
                port=port,
            )
    taken = set(given.values())
    if len(taken) < len(given):
        raise LocalServerError("two ports have the same number: give each its own", ports=given)
    ports: dict[str, int] = {}
    for name in names:
        if name in given:
            ports[name] = given[name]
            continue
        liked = preferred.get(name)
        usable = liked is not None and liked not in taken and is_free(liked)
        ports[name] = liked if liked is not None and usable else _random_port(taken)
        taken.add(ports[name])
    return ports


def _random_port(taken: set[int]) -> int:
    generator = random.SystemRandom()
    for _ in range(TRIES_MAX):
        port = generator.randrange(CHOSEN_PORT_MIN, CHOSEN_PORT_MAX)
        if port not in taken and is_free(port):
            return port
    raise LocalServerError("no free port was found", between=(CHOSEN_PORT_MIN, CHOSEN_PORT_MAX))


def _becomes_free(port: int) -> bool:
    """Say whether a port is free, or is soon: a server that was just ended may hold it a moment."""
    deadline = Deadline(SYSTEM_CLOCK, FREED_WITHIN_S * 1e3)
    while not (free := is_free(port)) and not deadline.expired:
        time.sleep(0.1)
    return free


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
