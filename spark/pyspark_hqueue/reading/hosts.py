"""The names that Spark may know a host by."""

from __future__ import annotations

import functools
import socket

__all__ = ["names_of"]


@functools.lru_cache(maxsize=4_096)
def names_of(host: str) -> tuple[str, ...]:
    """The host as it was given, its full and its short name, and its addresses.

    Spark knows a worker by the name that it was started with, and HBase's configuration names a
    region server; a name that no worker has costs nothing.
    """
    names = {host: None}
    try:
        full, aliases, addresses = socket.gethostbyaddr(host)
    except OSError:
        return tuple(names)
    for name in (full, *aliases, *addresses):
        names[name] = None
        if not name.replace(".", "").isdigit():
            names[name.partition(".")[0]] = None
    return tuple(names)
