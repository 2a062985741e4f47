"""Connections that strangers make, and the files that a process may have open."""

from __future__ import annotations

import logging
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from hqueue.rpc.accepting import FileRoom

PROGRAM = """
import logging, resource, socket, sys, time
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
logging.basicConfig(format="logged: %(message)s")
from hqueue.rpc.server import ThriftServer
from hqueue.rpc.services import load

class Hub:
    def apiAddress(self):
        return "here"

listener = socket.create_server(("127.0.0.1", 0))
server = ThriftServer(
    load("hub").HQueueHubService, Hub(), listener,
    threads=2, connections_max=int(sys.argv[1]), call_bytes_max=1_000, idle_ms_max=1_000,
)
taken = [open("/dev/null") for _ in range(int(sys.argv[2]))]
server.start()
print(listener.getsockname()[1], flush=True)
sys.stdin.readline()
print(time.process_time(), flush=True)
"""


@pytest.mark.parametrize(("connections_max", "files"), [(10_000, 0), (40, 30)])
def test_more_connections_than_the_process_may_have_files_stop_nobody_and_cost_little(
    connections_max: int, files: int
) -> None:
    attack = """
import socket, struct, sys, time
port = int(sys.argv[1])
strangers = [socket.create_connection(("127.0.0.1", port), 10) for _ in range(300)]
call = struct.pack(">Ii", 0x80010001, 10) + b"apiAddress" + bytes(4) + b"\\0"
for _ in range(20):
    with socket.create_connection(("127.0.0.1", port), 10) as honest:
        honest.sendall(call)
        assert b"here" in honest.recv(100)
    time.sleep(0.05)
"""
    command = [sys.executable, "-c", PROGRAM, str(connections_max), str(files)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        assert server.stderr is not None
        try:
            port = server.stdout.readline().strip()
            subprocess.run([sys.executable, "-c", attack, port], check=True, timeout=60)
            server.stdin.write("\n")
            server.stdin.flush()
            assert float(server.stdout.readline()) < 5
        finally:
            server.kill()
        logged = server.stderr.read().splitlines()
    assert "Traceback" not in "\n".join(logged)
    assert len(logged) < 10, logged


@pytest.fixture
def files_max() -> Iterator[Callable[[int], None]]:
    """Sets how many files the process may have open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield lambda files: resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_servers_of_a_process_share_the_files_that_it_may_have(
    files_max: Callable[[int], None], caplog: pytest.LogCaptureFixture
) -> None:
    files_max(1_024)
    room = FileRoom()
    with caplog.at_level(logging.WARNING):
        assert room.take(100, "one") == 100
        assert not caplog.records
        assert room.take(10_000, "another") == (1_024 - 256 - 100) // 2
        assert room.take(64, "a third") == 64
    assert [record.getMessage() for record in caplog.records] == [
        "another accepts 334 connections instead of 10000, "
        "because the process may open only 1024 files: raise the limit (ulimit -n)"
    ]
    room.give_back(334)
    assert room.take(500, "another") == 500
