"""Rows in an ordinary table, through either gateway, without hqueue's own client."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import happybase

from hqueue import local

TABLE = "rows-of-the-local-tests"


@contextlib.contextmanager
def connected(server: local.LocalServer) -> Iterator[happybase.Connection]:
    """A connection to the first Thrift1 gateway, with the table in place."""
    gateway = server.gateways[0]
    connection = happybase.Connection(gateway.host, gateway.thrift1_port, timeout=30_000)
    with contextlib.closing(connection):
        if TABLE.encode() not in connection.tables():
            connection.create_table(TABLE, {"f": {}})
        yield connection


def write_rows(server: local.LocalServer, prefix: str, number: int) -> set[bytes]:
    """Write rows one by one, so that each is acknowledged, and return their keys."""
    keys = [f"{prefix}-{i}".encode() for i in range(number)]
    with connected(server) as connection:
        table = connection.table(TABLE)
        for key in keys:
            table.put(key, {b"f:q": key})
    return set(keys)


def read_rows(server: local.LocalServer) -> set[bytes]:
    """The keys of all rows, each checked for its value."""
    with connected(server) as connection:
        rows = list(connection.table(TABLE).scan())
    assert all(cells == {b"f:q": key} for key, cells in rows)
    return {key for key, _ in rows}
