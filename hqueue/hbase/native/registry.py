"""Where a cluster begins: who names its first servers. The port; its adapters are beside it."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

from hqueue.errors import InvalidInputError
from hqueue.hbase.native.exchanges import Asking
from hqueue.settings.addresses import Address

__all__ = ["Registry", "address_of", "checked_address"]

_META = "meta"
_MASTER = "master"


class Registry(abc.ABC):
    """What names the servers that everything else is found by. Thread-safe.

    What was named is kept until it is doubted: so what names servers may be away for a while.
    Its questions are work. Each makes one try, bounded by ``request_timeout_ms``. All raise
    `StoreUnavailableError` where there was no usable answer, and `RequestRefusedError` where it was
    refused; nothing is applied then, whatever it was asked for.
    """

    def __init__(self) -> None:
        self._known: dict[str, Address] = {}

    @abc.abstractmethod
    def cluster_id(self) -> Asking[str]:
        """The cluster's ID: HBase's own, a UUID."""

    def meta(self) -> Asking[Address]:
        """The region server that has ``hbase:meta``."""
        return (yield from self._found(_META, self._find_meta))

    def master(self) -> Asking[Address]:
        """The active master."""
        return (yield from self._found(_MASTER, self._find_master))

    def doubt_meta(self, address: Address) -> None:
        """Ask again before the next use, if this is what is known."""
        self._doubt(_META, address)

    def doubt_master(self, address: Address) -> None:
        """Like `doubt_meta`."""
        self._doubt(_MASTER, address)

    @abc.abstractmethod
    def _find_meta(self) -> Asking[Address]:
        """Ask for the server of ``hbase:meta``."""

    @abc.abstractmethod
    def _find_master(self) -> Asking[Address]:
        """Ask for the active master."""

    def _found(self, name: str, find: Callable[[], Asking[Address]]) -> Asking[Address]:
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = yield from find()
        return known

    def _doubt(self, name: str, address: Address) -> bool:
        """Whether this was what is known."""
        return self._known.get(name) == address and self._known.pop(name, None) is not None


def address_of(server: Any) -> Address:
    """The address in a ServerName.

    Raises:
        ValueError: the ServerName has no valid address.
    """
    return checked_address(server.host_name, server.port)


def checked_address(host: str, port: int) -> Address:
    """An address that a server named.

    Raises:
        ValueError: the address is impossible.
    """
    try:
        return Address.parse(str(Address(host, port)))
    except InvalidInputError as exc:
        raise ValueError(exc.text) from None
