"""A process whose ports are open to other machines says so once, whatever its role is; one whose
ports are not says nothing.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import hqueue
from hqueue import Subscription
from hqueue.net.open_ports import SAID
from hqueue.net.security import security_of
from hqueue.topics.endpoint import Endpoint
from tests.integration.pushing import WorkerThread
from tests.support.backends import MemoryBackend
from tests.support.certificates import Certificates
from tests.support.hubs import HubThread
from tests.support.waiting import wait_for

Stack = contextlib.ExitStack


def _hub(stack: Stack, client: hqueue.Client, host: str) -> None:
    """With the Thrift API, metrics and health."""
    settings = {"listen_host": host, "metrics_host": host, "api_host": host, "api_port": 0}
    stack.enter_context(HubThread(client, "q", **settings))


def _worker(stack: Stack, client: hqueue.Client, host: str) -> None:
    settings = {"listen_host": host, "metrics_host": host, "api_host": host, "api_port": 0}
    stack.enter_context(WorkerThread(client, **settings)).api_address()
    wait_for(client.coordination.workers.list, "it is registered")


def _api(stack: Stack, client: hqueue.Client, host: str) -> None:
    settings = {"push": False, "metrics_host": host, "api_host": host, "api_port": 0}
    stack.enter_context(WorkerThread(client, **settings)).api_address()


def _health(stack: Stack, client: hqueue.Client, host: str) -> None:
    """Open alone, beside others on loopback."""
    stack.enter_context(HubThread(client, "q", metrics_host=host))


def _subscriber(stack: Stack, client: hqueue.Client, host: str) -> None:
    options = {"host": "127.0.0.1", "listen_host": host}
    queue = client.queue("q")
    for name in ("a", "b"):
        stack.enter_context(queue.subscriber(Subscription(name), print, **options))


def _hub_client(stack: Stack, client: hqueue.Client, host: str) -> None:
    security = security_of(client.settings)
    for _ in range(2):
        made = Endpoint(host, 0, None if security is None else security.delivery_guard())
        stack.callback(made.close, 0)
        made.start()


ROLES = [_hub, _worker, _api, _health, _subscriber, _hub_client]


@pytest.fixture(autouse=True)
def new_process() -> Iterator[None]:
    """One that has said nothing yet."""
    before, SAID[:] = SAID[:], []
    yield
    SAID[:] = before


@pytest.mark.parametrize("serve", ROLES, ids=lambda serve: serve.__name__.strip("_"))
@pytest.mark.parametrize(
    "case",
    [("0.0.0.0", False, 1), ("127.0.0.1", False, 0), ("0.0.0.0", True, 0)],
    ids=["open", "loopback", "with certificates"],
)
def test_a_role_says_once_that_it_is_open(
    serve: Callable[[Stack, hqueue.Client, str], None],
    case: tuple[str, bool, int],
    certificates: Certificates,
    caplog: pytest.LogCaptureFixture,
) -> None:
    host, by_tls, lines = case
    given: dict[str, Any] = {"delivery_principals": "x"} if by_tls else {}
    if by_tls:
        given |= certificates.of("any")
    with caplog.at_level(logging.WARNING), Stack() as stack:
        client = stack.enter_context(MemoryBackend().apart(2_000).connect(**given))
        client.create_queue("q", partitions=1)
        serve(stack, client, host)
    found = [text for each in caplog.records if (text := each.getMessage()).startswith("open: ")]
    assert len(found) == lines
    assert all("turn tls on, or let it listen on loopback" in text for text in found)
