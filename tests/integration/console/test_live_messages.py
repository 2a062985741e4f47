"""The page of live messages in Chromium."""

from __future__ import annotations

import contextlib
from unittest import mock

import pytest
from playwright.sync_api import Browser, Page, expect

import hqueue
from hqueue import Message
from hqueue_workers.console import following
from tests.integration.console.browsing import focus_by_tab
from tests.support.console import running_console
from tests.support.waiting import wait_for

pytestmark = pytest.mark.browser


def test_new_messages_appear_and_can_be_paused_by_keyboard(
    page: Page, client: hqueue.Client
) -> None:
    page.goto("/queues/orders/tail?topic=live")
    expect(page.locator("#state")).to_have_text("Following.")
    with client.queue("orders") as queue:
        queue.put(Message("live", b"<img src=x onerror=alert(1)> first"))
        expect(page.locator("#rows tr")).to_have_count(1)
        expect(page.locator("#rows")).to_contain_text("<img src=x onerror=alert(1)> first")
        assert page.locator("#rows img").count() == 0
        focus_by_tab(page, "#pause")
        page.keyboard.press("Space")
        expect(page.locator("#pause")).to_have_attribute("aria-pressed", "true")
        queue.put(Message("live", b"second"))
        expect(page.locator("#state")).to_have_text("Paused: 1 row was not shown.")
        expect(page.locator("#rows tr")).to_have_count(1)
        page.keyboard.press("Space")
        queue.put(Message("live", b"third"))
        expect(page.locator("#rows tr").first).to_contain_text("third")
        expect(page.locator("#rows tr").nth(1)).to_have_text(
            "The page was paused: 1 row was not shown."
        )


def numbers(page: Page) -> list[str]:
    """The values of the rows, the oldest first."""
    return [*reversed(page.locator("#rows td:nth-child(6)").all_inner_texts())]


def test_a_page_misses_no_message_while_the_console_starts_again(
    browser: Browser, client: hqueue.Client
) -> None:
    with contextlib.ExitStack() as stack, client.queue("orders") as queue:
        with running_console(client) as first:
            port = first.port
            context = stack.enter_context(browser.new_context(base_url=first.address))
            page = context.new_page()
            page.goto("/queues/orders/tail?topic=again")
            expect(page.locator("#state")).to_have_text("Following.")
            queue.put(Message("again", b"0"))
            expect(page.locator("#rows tr")).to_have_count(1)
        expect(page.locator("#state")).to_have_text("The connection was lost; trying again.")
        for number in (1, 2):
            queue.put(Message("again", b"%d" % number))
        stack.enter_context(running_console(client, port=port))
        expect(page.locator("#state")).to_have_text("Following.", timeout=60_000)
        queue.put(Message("again", b"3"))
        expect(page.locator("#rows tr")).to_have_count(4)
        assert sorted(numbers(page)) == ["0", "1", "2", "3"]


def test_messages_that_come_too_fast_have_a_row_with_a_link_to_them(
    page: Page, client: hqueue.Client
) -> None:
    page.goto("/queues/orders/tail?topic=fast")
    expect(page.locator("#state")).to_have_text("Following.")
    with (
        mock.patch.object(following, "ROWS_PER_SECOND_MAX", 2),  # A slow machine shows no more.
        client.queue("orders") as queue,
    ):
        queue.put([Message("fast", b"fast %d" % number) for number in range(50)], partition=1)
        gap = page.locator("#rows .gap").first
        expect(gap).to_contain_text("messages were too many", timeout=60_000)
    shown = [each for each in numbers(page) if each.startswith("fast")]
    focus_by_tab(page, "#rows .gap a")
    page.keyboard.press("Enter")
    expect(page.locator("#found")).to_be_visible()
    found = page.locator("#found td.value").all_inner_texts()
    missing = {f"fast {number}" for number in range(50)} - set(shown)
    assert missing
    assert missing <= set(found)


def test_a_page_that_follows_too_often_says_so(browser: Browser, client: hqueue.Client) -> None:
    with (
        running_console(client, streams_max=4) as site,
        browser.new_context(base_url=site.address) as context,
    ):
        first, second = context.new_page(), context.new_page()
        first.goto("/queues/orders/tail")
        expect(first.locator("#state")).to_have_text("Following.")
        second.goto("/queues/orders/tail")
        expect(second.locator("#state")).to_contain_text("close one of them")
        first.close()
        wait_for(lambda: site.console.streams == 0, "the first stream has ended")
        second.get_by_role("button", name="Follow").click()
        expect(second.locator("#state")).to_have_text("Following.")
