"""The console in Chromium with the keyboard alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

import hqueue
from hqueue import Message
from tests.integration.console.browsing import PAGES, focus_by_tab

pytestmark = pytest.mark.browser


REACHED = "a[href], button:enabled, input:not([type=hidden]), select, summary, [tabindex='0']"
"""What Tab must come to."""
FOCUS = """(reached) => {
  const parts = [...document.querySelectorAll(reached)].filter((each) => each.checkVisibility());
  const focused = document.activeElement;
  const style = getComputedStyle(focused);
  const outlined = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
  const place = focused.getBoundingClientRect();
  const seen = place.bottom > 0 && place.top < innerHeight && place.right > 0
    && place.left < innerWidth;
  const room = parseFloat(style.outlineWidth) + parseFloat(style.outlineOffset) - 1;
  let cut = false;  // Whether a part that scrolls cuts the outline off.
  for (let at = focused.parentElement; at && at !== document.body; at = at.parentElement) {
    const part = at.getBoundingClientRect();
    if (getComputedStyle(at).overflowY === "visible") continue;
    cut = cut || place.top - room < part.top || place.bottom + room > part.bottom;
  }
  return {at: parts.indexOf(focused), count: parts.length, outlined, seen, cut,
          html: focused.outerHTML.slice(0, 200)};
}"""


@pytest.mark.parametrize("page", ["phone"], indirect=True)
@pytest.mark.parametrize("path", PAGES)
def test_tab_comes_to_each_part_of_a_page_in_its_order_and_shows_where_it_is(
    page: Page, path: str
) -> None:
    page.goto(path)
    count, place = 1, 0
    while place < count:
        page.keyboard.press("Tab")
        found = page.evaluate(FOCUS, REACHED)
        count = found["count"]
        assert found["at"] == place, found
        assert found["outlined"], found
        assert found["seen"], found
        assert not found["cut"], found
        place += 1


def test_the_first_tab_skips_to_the_content(page: Page) -> None:
    page.goto("/queues")
    page.keyboard.press("Tab")
    expect(page.locator("a.skip")).to_be_focused()
    expect(page.locator("a.skip")).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("#content")).to_be_focused()


def test_messages_are_searched_and_opened_by_keyboard(page: Page) -> None:
    page.goto("/queues")
    focus_by_tab(page, "a[href='/queues/orders']")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("orders")
    focus_by_tab(page, "a[href='/queues/orders/messages']")
    page.keyboard.press("Enter")
    expect(page.locator("#found")).to_be_visible()
    focus_by_tab(page, "input[name=topic]")
    page.keyboard.type("sales")
    focus_by_tab(page, "input[name=text]")
    page.keyboard.type("customer-7")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("text=customer-7"))
    expect(page.locator("#found tbody tr").first).to_contain_text("customer-7")
    assert page.locator("#found img").count() == 0  # Values are text.
    focus_by_tab(page, "#found tbody a")
    page.keyboard.press("Enter")
    expect(page.locator("pre").first).to_contain_text('"customer": "customer-7"')
    focus_by_tab(page, "summary")
    page.keyboard.press("Enter")
    expect(page.locator("details pre").first).to_be_visible()


def test_a_wrong_search_says_what_is_wrong(page: Page) -> None:
    page.goto("/queues/orders/messages")
    focus_by_tab(page, "input[name=start]")
    page.keyboard.type("nonsense")
    page.keyboard.press("Enter")
    expect(page.locator("#stale")).to_contain_text("nonsense")
    page.keyboard.press("Control+A")
    page.keyboard.type("earliest")
    page.keyboard.press("Enter")
    expect(page.locator("#stale")).to_be_hidden()
    expect(page.locator("#found")).to_contain_text("Looked at")


def test_a_value_is_saved_as_a_file_and_not_shown(page: Page, client: hqueue.Client) -> None:
    value = b"<script>alert(1)</script>" * 20_000
    with client.queue("invoices") as queue:
        queue.put(Message("files", value))
        *_, message = queue.scan()
    page.goto(f"/queues/invoices/messages/0/{message.id}")
    expect(page.locator("pre").first).to_contain_text("<script>alert(1)</script>")
    focus_by_tab(page, "a[download]")
    with page.expect_download() as downloading:
        page.keyboard.press("Enter")
    assert downloading.value.suggested_filename == f"invoices-0-{message.id}.bin"
    assert Path(downloading.value.path()).read_bytes() == value


def test_a_group_is_reset_by_keyboard_after_the_question(page: Page, client: hqueue.Client) -> None:
    client.reset_group("billing", "orders", "latest")
    page.goto("/groups/view?group=billing")
    focus_by_tab(page, "input[name=to]")
    page.keyboard.type("earliest")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("Overwrite the offsets of billing in orders?")
    focus_by_tab(page, "button.danger")
    page.keyboard.press("Enter")
    expect(page.locator(".done")).to_have_text("The offsets were set.")
    described = client.describe_group("billing", queue="orders")
    assert {each.committed for each in described.partitions} == {hqueue.MessageID(0, 1)}


def test_a_dead_letter_is_redriven_by_keyboard_after_the_question(
    page: Page, client: hqueue.Client
) -> None:
    with client.queue("orders") as queue:
        before = [*queue.dead_letters.waiting("archive")]
        page.goto("/queues/orders/dead-letters")
        focus_by_tab(page, "input[name=subscriber]")
        page.keyboard.type("archive")
        page.keyboard.press("Enter")
        expect(page).to_have_url(re.compile("subscriber=archive"))
        focus_by_tab(page, "tbody button")
        page.keyboard.press("Enter")
        question = re.compile(r"^Redrive dead letter \d+-\d+ of archive in orders\?$")
        expect(page.locator("h1")).to_have_text(question)
        focus_by_tab(page, "button.danger")
        page.keyboard.press("Enter")
        expect(page.locator(".done")).to_have_text("1 redriven.")
        assert len([*queue.dead_letters.waiting("archive")]) == len(before) - 1


def test_health_says_what_to_do(page: Page) -> None:
    page.goto("/health")
    focus_by_tab(page, "button.main")
    page.keyboard.press("Enter")
    expect(page.locator("#live .note").first).to_contain_text("Checked at", timeout=60_000)
    expect(page.locator("button.main")).to_be_enabled()  # It can be pressed again.
