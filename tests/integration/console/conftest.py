"""The console in Chromium: a cluster in memory that has something on each page, and the browser."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

import hqueue
from hqueue import Consumer, DeadLetter, Message
from tests.integration.console.browsing import DESK, PHONE
from tests.support.backends import MemoryBackend
from tests.support.chromium import chromium
from tests.support.console import RunningConsole, running_console


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    # A name that an attacker's name server gives this machine's address.
    with chromium("--host-resolver-rules=MAP rebound.example 127.0.0.1") as opened:
        yield opened


@pytest.fixture(scope="module")
def client() -> Iterator[hqueue.Client]:
    """A client of a cluster in memory that has something on each page."""
    with MemoryBackend().connect() as client:
        for name, partitions in (("orders", 3), ("clicks", 8), ("invoices", 1)):
            client.create_queue(name, partitions=partitions, ttl="7d").close()
        with client.queue("orders") as queue:
            for number in range(80):
                value = b'{"order": %d, "customer": "customer-%d", "note": "<img src=x>"}'
                key, trace = b"customer-%d" % (number % 9), ("traceparent", b"00-%032x" % number)
                queue.put(Message("sales", value % (number, number % 9), key, [trace]))
            with Consumer("orders", group="billing", client=client) as consumer:
                consumed = 0
                while consumed < 80:
                    consumed += len(consumer.poll(60_000))
                consumer.commit()
            for number in range(12):
                queue.put(Message("returns", b'{"order": %d}' % number, b"customer-%d" % number))
            client.add_subscriber("orders", "archive")
            messages = list(queue.scan())
            queue.dead_letters.put(
                DeadLetter(each, "archive", "ValueError: no such customer", attempts=3)
                for each in messages[:4]
            )
        yield client


@pytest.fixture(scope="module")
def site(client: hqueue.Client) -> Iterator[RunningConsole]:
    with running_console(client, allow_changes=True) as running:
        with client.queue("orders") as queue:
            for number in range(6):  # Rates and lags have a history.
                running.measure()
                queue.put([Message("sales", b'{"order": %d}' % each) for each in range(number + 1)])
        running.measure()
        yield running


@pytest.fixture(params=["phone", "desk"])
def page(browser: Browser, site: RunningConsole, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A page of a browser that is as wide as a phone, or as a desk's screen. What the browser
    complains of fails the test.
    """
    viewport = PHONE if request.param == "phone" else DESK
    context = browser.new_context(base_url=site.address, viewport=viewport)  # type: ignore[arg-type]
    page = context.new_page()
    page.set_default_timeout(60_000)
    said: list[str] = []
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("console", lambda line: said.append(line.text) if line.type == "error" else None)
    yield page
    context.close()
    assert [
        line for line in said if not re.search("status of 40[04]|Status Error Code 400", line)
    ] == []
