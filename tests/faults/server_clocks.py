"""Clocks of servers that can be set: each server's own wall clock, by libfaketime.

A server reads how far its clock is off from a file, every second. Its monotonic clock goes on: a
clock that is set changes no wait.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path

from hqueue.local.cluster import ClusterHosts

__all__ = ["NOTICED_WITHIN_S", "NoClocksError", "ServerClocks", "can_set_clocks"]

NOTICED_WITHIN_S = 2.0
"""A server sees its clock's new time within that, if it gets a processor."""

FOLDERS = ("/usr/lib", "/usr/lib64", "/usr/local/lib")
LIBRARY = "faketime/libfaketimeMT.so.1"


class NoClocksError(Exception):
    """Servers' clocks can't be set on this machine."""


def _library() -> Path | None:
    found = (path for folder in FOLDERS for path in Path(folder).glob(f"**/{LIBRARY}"))
    return next(found, None)


def can_set_clocks() -> bool:
    """Whether libfaketime is installed."""
    return _library() is not None


class ServerClocks:
    """The clocks of some servers, right at first.

    Args:
        folder: of a file for each.
        names: the servers' names.

    Raises:
        NoClocksError: libfaketime is missing.
    """

    def __init__(self, folder: Path, names: Iterable[str]) -> None:
        library = _library()
        if library is None:
            raise NoClocksError("servers' clocks take libfaketime: install Debian's `faketime`")
        self._library = library
        self._files = {name: folder / f"{name}.clock" for name in names}
        folder.mkdir(parents=True, exist_ok=True)
        for name in self._files:
            self.set(name, 0)

    def set(self, name: str, ahead_s: float) -> None:
        """Set a server's clock so far ahead of this machine's, or back if negative; at once."""
        file = self._files[name]
        fresh = file.with_suffix(".new")
        fresh.write_text(f"{ahead_s:+.3f}\n", encoding="ascii")
        fresh.replace(file)

    def environment(self, name: str) -> dict[str, str]:
        """What a server needs in its environment so that its clock is this one."""
        return {
            "LD_PRELOAD": str(self._library),
            "FAKETIME_TIMESTAMP_FILE": str(self._files[name]),
            "FAKETIME_CACHE_DURATION": "1",
            "DONT_FAKE_MONOTONIC": "1",
            # Otherwise it changes the times until which Java waits by the monotonic clock: waits
            # end too soon, and servers spin.
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        }

    def on(self, hosts: ClusterHosts) -> ClusterHosts:
        """The same hosts, but their servers have these clocks, where they have one."""

        def command(name: str) -> tuple[str, ...]:
            before = hosts.command(name)
            if name not in self._files:
                return before
            environment = (f"{key}={value}" for key, value in self.environment(name).items())
            return (*before, "env", *environment)

        return dataclasses.replace(hosts, command=command)
