"""The console in Chromium: a cluster in memory that has something on each page, and the browser."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

import hqueue
from tests.integration.console.browsing import DESK, PHONE
from tests.integration.console.shop import Shop, open_shop, shop_console
from tests.support.chromium import chromium
from tests.support.console import RunningConsole


@pytest.fixture(scope="package")
def tickets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the browser's user has tickets of Kerberos, if a test writes some."""
    return tmp_path_factory.mktemp("tickets") / "cache"


@pytest.fixture(scope="package")
def browser(tickets: Path) -> Iterator[Browser]:
    given = (
        # A name that an attacker's name server gives this machine's address.
        "--host-resolver-rules=MAP rebound.example 127.0.0.1",
        # It shows tickets at this name, and not at 127.0.0.1.
        "--auth-server-allowlist=localhost",
    )
    with chromium(*given, KRB5CCNAME=f"FILE:{tickets}", KRB5_CONFIG=os.devnull) as opened:
        yield opened


@pytest.fixture(scope="package")
def shop() -> Iterator[Shop]:
    with open_shop() as opened:
        yield opened


@pytest.fixture(scope="package")
def client(shop: Shop) -> hqueue.Client:
    """A client of a cluster in memory that has something on each page."""
    return shop.client


@pytest.fixture(scope="package")
def site(shop: Shop) -> Iterator[RunningConsole]:
    with shop_console(shop) as running:
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
