"""The console in Chromium, whose user has a ticket of Kerberos and no certificate."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

import hqueue
from hqueue import Message
from tests.support.backends import MemoryBackend
from tests.support.certificates import Certificates
from tests.support.console import RunningConsole, running_console
from tests.support.tickets import SERVICE, Ticket, write_cache, write_keytab

pytestmark = pytest.mark.browser


@pytest.fixture
def client(certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> Iterator[hqueue.Client]:
    monkeypatch.setenv("KRB5_CONFIG", os.devnull)
    with MemoryBackend().connect(**certificates.of("console")) as client:
        client.create_queue("orders", partitions=1).close()
        client.add_subscriber("orders", "archive")
        yield client


@pytest.fixture
def site(
    client: hqueue.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RunningConsole]:
    monkeypatch.setenv("KRB5RCACHEDIR", str(tmp_path))
    keytab = write_keytab(tmp_path / "keytab", SERVICE)
    with running_console(client, spnego_keytab=keytab, allow_changes=True) as running:
        yield running


def test_a_ticket_opens_the_console_where_the_browser_trusts_it(
    site: RunningConsole, client: hqueue.Client, browser: Browser, tickets: Path
) -> None:
    write_cache(tickets, Ticket("alice@TEST"))
    with browser.new_context(ignore_https_errors=True) as context:
        page = context.new_page()
        page.set_default_timeout(60_000)
        for _ in range(2):
            page.goto(f"{site.address}/queues")
            expect(page.locator("body")).to_contain_text("AuthServerAllowlist")
        assert context.cookies() == []
    address = site.address.replace("127.0.0.1", "localhost")
    with browser.new_context(base_url=address, ignore_https_errors=True) as context:
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.goto("/queues")  # A new profile of Chromium loads Kerberos' library after this answer.
        page.goto("/queues")
        use(page, client)


EVENTS = """new Promise((done) => {
  const events = new EventSource("/queues/orders/tail/stream");
  events.onopen = () => { events.close(); done("open"); };
  events.onerror = () => done("refused");
})"""


def end_login(page: Page) -> None:
    """Have the browser prove itself again at its next request."""
    assert any("login" in each["name"] for each in page.context.cookies())
    page.context.clear_cookies(name=re.compile("login"))


def use(page: Page, client: hqueue.Client) -> None:
    """Look around, follow messages, and make a change."""
    expect(page.locator(".principal")).to_have_text("alice")
    page.goto("/queues/orders/tail?topic=live")
    expect(page.locator("#state")).to_have_text("Following.")
    with client.queue("orders") as queue:
        queue.put(Message("live", b"first"))
    expect(page.locator("#rows")).to_contain_text("first")
    for script, outcome in (
        (EVENTS, "open"),
        ("fetch('/queues', {headers: {'HX-Request': 'true'}}).then(each => each.status)", 200),
    ):
        end_login(page)
        assert page.evaluate(script) == outcome
    end_login(page)
    page.goto("/subscribers?queue=orders")
    end_login(page)
    page.locator("summary").click()
    page.locator("input[name=to]").first.fill("latest")
    page.locator("input[name=to]").first.press("Enter")
    page.locator("button.danger").click()
    expect(page.locator(".done")).to_contain_text("were moved")
    (state,) = client.list_subscribers("orders")
    assert state.lag == 0
