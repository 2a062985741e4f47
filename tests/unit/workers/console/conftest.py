"""A console over a store in memory."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

import hqueue
from tests.support.backends import MemoryBackend
from tests.support.console import RunningConsole, running_console


@pytest.fixture(scope="package")
def memory_client() -> Iterator[hqueue.Client]:
    """A client with a queue ``orders``, whose messages would be markup if nothing escaped them."""
    with MemoryBackend().connect() as client:
        with client.create_queue("orders", partitions=3) as queue:
            for number in range(60):
                queue.put(
                    hqueue.Message(
                        "sales" if number % 3 else "<b>clicks</b>",
                        b'{"number": %d, "text": "<script>alert(1)</script>"}' % number,
                        b"user-%d" % (number % 5),
                        [("trace", b"<i>%d</i>" % number)],
                    )
                )
        yield client


@pytest.fixture(scope="package")
def site(memory_client: hqueue.Client) -> Iterator[RunningConsole]:
    """A console that only reads."""
    with running_console(memory_client) as running:
        yield running


@pytest.fixture(scope="package")
def changing_site(memory_client: hqueue.Client) -> Iterator[RunningConsole]:
    """A console that makes changes."""
    with running_console(memory_client, allow_changes=True) as running:
        yield running


@pytest.fixture
def browser(site: RunningConsole) -> Iterator[httpx.Client]:
    """What a browser is to the console."""
    with httpx.Client(base_url=site.address, timeout=30) as client:
        yield client
