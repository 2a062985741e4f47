"""What a server's process takes, measured from outside."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.thrift_calls import field, head, listed
from tests.support.waiting import wait_for

CALLERS = 6
SLACK_BYTES = 32 << 20
"""What lies between pieces of memory that are in use."""

_MESSAGE = field(15, 6, listed(12, 4, bytes(4))) + b"\0"
CALL = head(b"publishMessages") + field(15, 4, listed(12, 60_000, _MESSAGE * 60_000)) + b"\0"
"""Of 300,000 structs: two of them are more than may be read at a time."""
PUBLISHED = b"\x80\x01\x00\x02"


class Served:
    """The process."""

    def __init__(self, kind: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.called_process", kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def call(self, _: object) -> bytes:
        """Call; the kind of the reply."""
        with socket.create_connection(("127.0.0.1", self.port), 120) as caller:
            caller.sendall(CALL)
            return caller.recv(1_000)[:4]

    @property
    def rss_bytes(self) -> int:
        with open(f"/proc/{self._process.pid}/statm", encoding="ascii") as pages:
            return int(pages.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    @property
    def most_bytes(self) -> int:
        with open(f"/proc/{self._process.pid}/status", encoding="ascii") as lines:
            (line,) = [line for line in lines if line.startswith("VmHWM:")]
        return int(line.split()[1]) * 1024

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(params=["threads", "loop"])
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    process = Served(request.param)
    yield process
    process.close()


def test_heavy_calls_at_once_take_no_more_memory_than_one_and_it_is_given_back(
    served: Served,
) -> None:
    before = served.rss_bytes
    assert served.call(None) == PUBLISHED
    one = served.most_bytes - before
    with ThreadPoolExecutor(CALLERS) as callers:
        assert [*callers.map(served.call, range(CALLERS))] == [PUBLISHED] * CALLERS
    assert served.most_bytes - before <= one + CALLERS * len(CALL) + SLACK_BYTES
    wait_for(lambda: served.rss_bytes - before <= SLACK_BYTES, "it is given back")
