"""The connection to one server's service: when it is used again, and when another is opened."""

from __future__ import annotations

import time
from typing import Generic, Protocol, TypeVar

from hqueue.hbase.native.calls import UnsentError
from hqueue.settings.connection import Settings

__all__ = ["Link"]


class Reusable(Protocol):
    """What a link needs of a connection."""

    @property
    def usable(self) -> bool: ...

    @property
    def used_s(self) -> float: ...

    def retire(self) -> None: ...


Connected = TypeVar("Connected", bound=Reusable)


class Link(Generic[Connected]):
    """The connection to one server's service, if there is one. One caller at a time opens it: its
    driver sees to that.

    Args:
        settings: the bounds.
    """

    def __init__(self, settings: Settings) -> None:
        self.connection: Connected | None = None
        self._settings = settings
        self._failure: OSError | None = None
        self._failed_s = float("-inf")

    def good(self) -> Connected | None:
        """The connection, if a request may be sent on it now."""
        connection = self.connection
        if connection is None:
            return None
        idle_ms = (time.monotonic() - connection.used_s) * 1e3
        is_good = idle_ms <= self._settings.connection_idle_ms and connection.usable
        return connection if is_good else None

    def begin_opening(self, asked_s: float, ends_s: float) -> float:
        """Another connection will be opened: retire the one before it. The seconds it may take.

        Args:
            asked_s: when the caller asked for it: a failure since then is its failure, too.
            ends_s: when the caller's time is over.

        Raises:
            UnsentError: it could not be opened meanwhile.
        """
        if self._failure is not None and self._failed_s >= asked_s:
            raise UnsentError(str(self._failure)) from self._failure
        if self.connection is not None:
            self.connection.retire()
            self.connection = None
        left_s = min(self._settings.connect_timeout_ms / 1e3, ends_s - time.monotonic())
        return max(0.001, left_s)

    def opened(self, connection: Connected) -> None:
        """It was opened. So may another have been meanwhile, by what interrupted the caller."""
        self._failure = None
        before, self.connection = self.connection, connection
        if before is not None:
            before.retire()

    def failed(self, failure: OSError) -> None:
        """It could not be opened."""
        self._failed_s, self._failure = time.monotonic(), failure
