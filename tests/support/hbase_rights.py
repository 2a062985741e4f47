"""Rights in HBase, granted as its shell does it."""

from __future__ import annotations

from typing import Any

from hqueue.connecting import open_store
from hqueue.hbase.native.native_store import NativeStore
from hqueue.hbase.native.tables import Tables
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline
from hqueue.runtime.stepwise import stepwise
from hqueue.settings.connection import Settings

__all__ = ["HBaseRights"]

ACTIONS = "RWXCA"
"""The shell's letters, in the order of the protocol's numbers."""
TABLE = 3
"""The protocol's number of rights on tables."""


class HBaseRights(Tables):
    """Grants and revokes rights, by a principal that may.

    Args:
        settings: of a connection that is this principal's.
    """

    def __init__(self, settings: Settings) -> None:
        store = open_store(settings)
        assert isinstance(store, NativeStore)
        self._store = store
        super().__init__(store._servers, store._async_servers, store._registry, SYSTEM_CLOCK)

    def grant(self, user: str, rights: str, table: str) -> None:
        """Give a user these rights on a table.

        Args:
            user: its short name.
            rights: letters of the shell. Others that it had there it has no more.
        """
        self._ask("Grant", _user_permission(user, rights, table))

    def revoke(self, user: str, table: str) -> None:
        """Take the rights of a user on a table."""
        self._ask("Revoke", _user_permission(user, "", table))

    def close(self) -> None:
        """Close the connections."""
        self._store.close()

    @stepwise
    def _ask(self, method: str, user_permission: bytes) -> Any:
        deadline = Deadline(SYSTEM_CLOCK, 60_000)
        message = _Message(_field(1, user_permission))
        yield from self._master.ask(method, message, _Message, "", deadline)


class _Message(bytes):
    """A message of the protocol, as its bytes."""

    def SerializeToString(self) -> bytes:  # noqa: N802
        return self

    @classmethod
    def FromString(cls, data: bytes) -> _Message:  # noqa: N802
        return cls(data)


def _user_permission(user: str, rights: str, table: str) -> bytes:
    scope = _field(1, _field(1, "default") + _field(2, table))
    scope += b"".join(_field(4, ACTIONS.index(letter)) for letter in rights)
    return _field(1, user) + _field(3, _field(1, TABLE) + _field(4, scope))


def _field(number: int, value: int | str | bytes) -> bytes:
    if isinstance(value, int):
        return bytes([number << 3, value])
    data = value.encode() if isinstance(value, str) else bytes(value)
    length, rest = [], len(data)
    while rest > 127:
        length.append(rest & 127 | 128)
        rest >>= 7
    return bytes([number << 3 | 2, *length, rest]) + data
