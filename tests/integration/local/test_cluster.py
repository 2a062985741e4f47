"""The cluster: acknowledged writes survive, and partitions are soon served again."""

from __future__ import annotations

import time
from pathlib import Path

import happybase
import pytest
from thriftpy2.thrift import TException

from hqueue import local
from hqueue.local.process import marked_processes

from .rows import TABLE, connected, read_rows, write_rows

BACK_WITHIN_S = 30.0


def region_server_of(server: local.LocalServer, table: str) -> str:
    """The process that serves the first region of a table."""
    with connected(server) as connection:
        port = connection.table(table).regions()[0]["port"]
    return next(p.name for p in server.processes if port in p.ports.values())


def seconds_until_written(server: local.LocalServer, key: bytes) -> float:
    """Write a row through the second host's gateway until it is acknowledged."""
    gateway = server.gateways[1]
    began = time.monotonic()
    while True:
        try:
            connection = happybase.Connection(gateway.host, gateway.thrift1_port, timeout=15_000)
            connection.table(TABLE).put(key, {b"f:q": key})
            connection.close()
        except (OSError, TException):
            assert time.monotonic() - began < 2 * BACK_WITHIN_S
        else:
            return time.monotonic() - began


@pytest.mark.servers
@pytest.mark.cluster
@pytest.mark.thorough("a cluster of its own is killed part by part and whole, 110 s")
@pytest.mark.timeout(900)
def test_writes_survive_killed_region_servers_and_the_death_of_everything(home: Path) -> None:
    server = local.start("cluster", gateways=True)
    assert {gateway.host for gateway in server.gateways} == {"127.0.0.1", "127.0.0.2", "127.0.0.3"}
    assert server.status().rss_bytes < 6 * 1024**3
    written = write_rows(server, "before", 200)

    for table in (TABLE, "hbase:meta"):
        name = region_server_of(server, table)
        server.kill(name)
        key = f"after-{table}".encode()
        assert seconds_until_written(server, key) < BACK_WITHIN_S
        written.add(key)
        server.restart(name)
    assert read_rows(server) == written

    for process in server.processes:
        server.kill(process.name)
    assert marked_processes(home) == []

    server = local.start("cluster", gateways=True)
    assert read_rows(server) == written
    server.stop()
    assert marked_processes(home) == []
