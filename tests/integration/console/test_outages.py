"""The console in Chromium while queues and servers come and go; and with callers that hang up."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

import hqueue
from hqueue import Message, local
from tests.integration.console.over_servers import SHOWN_MS, hasty_console
from tests.support.console import RunningConsole
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.browser, pytest.mark.servers]

QUEUE, SHORT = "console-in-outages", "console-short-lived"


@pytest.fixture(scope="module")
def client(server: local.LocalServer) -> Iterator[hqueue.Client]:
    with hqueue.connect(settings=server.settings(hbase="native")) as client:
        client.create_queue(QUEUE, partitions=2, ttl="1d").close()
        yield client
        client.delete_queue(QUEUE, force=True)


@pytest.fixture(scope="module")
def site(client: hqueue.Client, server: local.LocalServer) -> Iterator[RunningConsole]:
    with hasty_console(server) as running:
        yield running


@pytest.fixture
def context(browser: Browser, site: RunningConsole) -> Iterator[BrowserContext]:
    with browser.new_context(base_url=site.address) as context:
        context.set_default_timeout(60_000)
        yield context


def opened(context: BrowserContext, address: str) -> Page:
    page = context.new_page()
    page.goto(address)
    return page


def following(context: BrowserContext, address: str) -> Page:
    page = opened(context, address)
    expect(page.locator("#state")).to_have_text("Following.", timeout=SHOWN_MS)
    return page


def test_pages_of_a_queue_say_that_it_was_disabled_and_deleted(
    context: BrowserContext, client: hqueue.Client
) -> None:
    with client.create_queue(SHORT, partitions=1) as queue:
        queue.put(Message("last", b"words"))
    partitions = opened(context, f"/queues/{SHORT}")
    messages = opened(context, f"/queues/{SHORT}/messages")
    live = following(context, f"/queues/{SHORT}/tail")
    client.disable_queue(SHORT)
    state = partitions.locator(".facts div", has_text="State")
    expect(state).to_contain_text("disabled", timeout=SHOWN_MS)
    expect(partitions.locator("#live [role=status]").first).to_contain_text("the queue is disabled")
    ended = re.compile("Press Follow to begin again.$")
    expect(live.locator("#state")).to_have_text(ended, timeout=SHOWN_MS)
    expect(live.locator("#state")).to_contain_text("disabled")
    messages.get_by_role("button", name="Search").click()
    expect(messages.locator("#stale")).to_contain_text("disabled", timeout=SHOWN_MS)
    expect(messages.locator("#found")).to_contain_text("words")  # It stays.
    client.enable_queue(SHORT)
    expect(state).to_contain_text("enabled", timeout=SHOWN_MS)
    live.get_by_role("button", name="Follow").click()
    expect(live.locator("#state")).to_have_text("Following.", timeout=SHOWN_MS)
    client.delete_queue(SHORT, force=True)
    expect(partitions.locator("#stale")).to_contain_text("may be old", timeout=SHOWN_MS)
    expect(partitions.locator("#stale")).to_contain_text(SHORT)
    expect(live.locator("#state")).to_have_text(ended, timeout=SHOWN_MS)
    expect(live.locator("#state")).to_contain_text(SHORT)
    messages.get_by_role("button", name="Search").click()
    expect(messages.locator("#stale")).to_contain_text(SHORT, timeout=SHOWN_MS)


def test_callers_that_hang_up_or_never_read_leave_no_stream_behind(
    context: BrowserContext, site: RunningConsole, client: hqueue.Client
) -> None:
    request = f"GET /queues/{QUEUE}/tail/stream HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\n\r\n"
    before = site.console.streams
    opened: list[socket.socket] = []
    for _ in range(3):
        silent = socket.create_connection(("127.0.0.1", site.port), timeout=30)
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        silent.sendall(request.encode())
        opened.append(silent)
    wait_for(lambda: site.console.streams == before + 3, "the streams are open")
    for _ in range(20):  # Callers that leave at once.
        with socket.create_connection(("127.0.0.1", site.port), timeout=30) as leaving:
            leaving.sendall(request.encode())
    with client.queue(QUEUE) as queue:
        for _ in range(5):
            queue.put([Message("noise", b"x" * 200) for _ in range(200)])
    page = following(context, f"/queues/{QUEUE}/tail?topic=beside")
    with client.queue(QUEUE) as queue:
        queue.put(Message("beside", b"others are served"))
    expect(page.locator("#rows")).to_contain_text("others are served", timeout=SHOWN_MS)
    page.close()
    for each in opened:
        each.close()
    wait_for(lambda: site.console.streams == 0, "no stream is left")


def test_pages_say_that_the_servers_have_gone_and_recover_without_a_click(
    context: BrowserContext, client: hqueue.Client, server: local.LocalServer
) -> None:
    listed = opened(context, "/queues")
    expect(listed.locator("#live")).to_contain_text(QUEUE)
    live = following(context, f"/queues/{QUEUE}/tail?topic=numbers")
    with client.queue(QUEUE) as queue:

        def put(number: int) -> bool:
            with contextlib.suppress(hqueue.StoreUnavailableError):
                queue.put(Message("numbers", b"number %d" % number), partition=number % 2)
                return True
            return False

        for number in range(4):
            assert put(number)
        expect(live.locator("#rows tr")).to_have_count(4)
        server.kill("master")  # With it the region server and ZooKeeper.
        try:
            stale = listed.locator("#stale")
            expect(stale).to_contain_text("What this page shows may be old", timeout=SHOWN_MS)
            expect(listed.locator("#live")).to_contain_text(QUEUE)  # It stays.
            away = context.new_page()
            answer = away.goto(f"/queues/{QUEUE}")
            assert answer is not None
            assert answer.status == 503
            expect(away.locator("[role=alert]")).to_be_visible()
            expect(away.locator("#again")).to_be_visible()
            expect(live.locator("#state")).to_contain_text("Trying again.", timeout=SHOWN_MS)
            health = opened(context, "/health")  # The way that the error names is open.
            expect(health.locator("h1")).to_have_text("Health")
            health.close()
        finally:
            server.restart("master")
        for number in range(4, 8):
            wait_for(lambda number=number: put(number), "a put succeeds", timeout_s=180)
    expect(listed.locator("#stale")).to_be_hidden(timeout=SHOWN_MS)
    expect(away.locator("h1")).to_have_text(QUEUE, timeout=SHOWN_MS)
    expect(live.locator("#state")).to_have_text("Following.", timeout=SHOWN_MS)
    for number in range(8):  # A put whose answer was lost may have been repeated.
        row = live.locator("#rows tr", has_text=f"number {number}").first
        expect(row).to_be_visible(timeout=SHOWN_MS)
    assert live.locator("#rows .gap").count() == 0
