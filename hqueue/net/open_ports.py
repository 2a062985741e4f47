"""Ports that are open to everybody: a process says so once."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

from hqueue.runtime.logs import Log

__all__ = ["SAID", "say_open", "say_optional"]

logger = Log(__name__)

SAID: list[str] = []
"""What was said in this process."""


def say_open(whose: str, listeners: Iterable[socket.socket], said: list[str] = SAID) -> None:
    """Say that a port without security can be reached from other machines, if it can: once for all
    ports of a process.

    Args:
        whose: what the port is called.
        listeners: where it listens.
        said: what was said before.
    """
    for listener in listeners:
        host, port = listener.getsockname()[:2]
        if not ipaddress.ip_address(host.partition("%")[0]).is_loopback and not said:
            said.append(whose)
            logger.warning(
                "open: %s listens at %s port %d without TLS, and everybody who reaches that may "
                "call it; turn tls on, or let it listen on loopback (logged once for all ports)",
                whose,
                host,
                port,
            )


def say_optional(whose: str, listeners: Iterable[socket.socket], said: list[str] = SAID) -> None:
    """Say that a port also serves callers without TLS: once for all ports of a process.

    Args:
        whose, listeners, said: as `say_open`.
    """
    for listener in listeners:
        if not said:
            said.append(whose)
            host, port = listener.getsockname()[:2]
            logger.warning(
                "optional: %s serves callers without TLS, too, at %s port %d, as the principal "
                "'anonymous'; set tls_optional to false when all callers speak TLS (logged once "
                "for all ports)",
                whose,
                host,
                port,
            )
