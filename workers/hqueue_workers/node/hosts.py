"""Where a role listens, and where others reach it."""

from __future__ import annotations

import socket
from typing import Any

__all__ = ["LOOPBACK", "fill_hosts", "named_host"]

LOOPBACK = "127.0.0.1"


def fill_hosts(settings: Any) -> None:
    """Fill in ``host`` and ``listen_host`` of settings that are being made. If neither is given,
    only this machine reaches the role: to open a port to others takes a setting.
    """
    if not settings.host and not settings.listen_host:
        object.__setattr__(settings, "host", LOOPBACK)
    if not settings.listen_host:
        object.__setattr__(settings, "listen_host", settings.host)
    if not settings.host:
        object.__setattr__(settings, "host", socket.gethostname())


def named_host(settings: Any) -> str:
    """The host that a role's certificate must name; empty if the settings name only this machine,
    because ports that other settings open may still be reached from elsewhere.
    """
    return "" if settings.host == LOOPBACK else str(settings.host)
