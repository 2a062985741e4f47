"""The console's pages in Chromium, at the widths of a phone and a desk.

`make screenshots` has these tests write the pictures of docs/console.md.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from unittest import mock

import pytest
from playwright.sync_api import Browser, Page, expect

import hqueue.aio
from hqueue.errors import Outcome, StoreUnavailableError
from tests.integration.console.browsing import DESK, PAGES, PHONE
from tests.support.console import RunningConsole

pytestmark = pytest.mark.browser

PICTURES = os.environ.get("HQUEUE_SCREENSHOTS")
"""The folder for pictures of pages; None if none are wanted."""


@pytest.mark.parametrize("path", PAGES)
def test_a_page_fits_its_width_and_does_not_move(page: Page, path: str) -> None:
    page.add_init_script(
        "window.moved = 0; new PerformanceObserver(list => { for (const entry of list.getEntries())"
        " if (!entry.hadRecentInput) window.moved += entry.value; })"
        ".observe({type: 'layout-shift', buffered: true});"
    )
    page.goto(path)
    page.wait_for_load_state("load")
    assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
    if page.locator("#live").count():
        page.evaluate("htmx.ajax('GET', location.href, {target: '#live', select: '#live',"
                      " swap: 'outerHTML'})")  # fmt: skip
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert page.evaluate("window.moved") < 0.01


@pytest.mark.parametrize("path", PAGES)
def test_a_page_names_its_parts_for_those_who_do_not_see_it(page: Page, path: str) -> None:
    page.goto(path)
    assert page.locator("h1").count() == 1
    assert page.locator("html").get_attribute("lang") == "en"
    unnamed = page.evaluate(
        "[...document.querySelectorAll('input:not([type=hidden]), select, textarea')]"
        ".filter(each => !each.labels.length && !each.ariaLabel).map(each => each.outerHTML)"
    )
    assert unnamed == []
    nameless = page.evaluate(
        "[...document.querySelectorAll('button, a, svg')].filter(each => !each.textContent.trim()"
        " && !each.getAttribute('aria-label')).map(each => each.outerHTML)"
    )
    assert nameless == []
    assert page.locator("nav[aria-label=Console]").count() == 1


@pytest.mark.parametrize("page", ["phone"], indirect=True)
@pytest.mark.parametrize("path", PAGES)
def test_a_finger_meets_one_target(page: Page, path: str) -> None:
    page.goto(path)
    assert page.evaluate(TARGETS) == []


TARGETS = """() => {
  // A target is large enough for a finger, or lies so far from the others: WCAG 2.2, 2.5.8.
  const SIDE = 24;
  const targets = [...document.querySelectorAll(
    "a[href], button, input:not([type=hidden]), select, summary")]
    .filter((each) => each.checkVisibility() && !each.matches(".skip"))
    .map((each) => ({each, place: each.getBoundingClientRect()}))
    .map(({each, place}) => ({
      each, place, x: (place.left + place.right) / 2, y: (place.top + place.bottom) / 2,
      small: place.width < SIDE || place.height < SIDE,
    }));
  const near = (one, other) => {
    if (other.small) return Math.hypot(one.x - other.x, one.y - other.y) < SIDE;
    const x = Math.max(other.place.left - one.x, 0, one.x - other.place.right);
    const y = Math.max(other.place.top - one.y, 0, one.y - other.place.bottom);
    return Math.hypot(x, y) < SIDE / 2;
  };
  return targets
    .filter((one) => one.small && targets.some((other) => other !== one && near(one, other)))
    .map(({each, place}) => `${place.width}x${place.height} ${each.outerHTML.slice(0, 120)}`);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", ["/queues", "/queues/orders/dead-letters", "/health"])
def test_texts_have_contrast(page: Page, path: str, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    page.goto(path)
    faint = page.evaluate(CONTRAST)
    assert faint == []


CONTRAST = """() => {
  const parsed = (text) => {
    const found = text.match(/[\\d.]+/g).map(Number);
    return {rgb: found.slice(0, 3), alpha: found.length > 3 ? found[3] : 1};
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((each) => each / 255)
      .map((each) => each <= 0.03928 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (each) => {
    for (let at = each; at; at = at.parentElement) {
      const color = parsed(getComputedStyle(at).backgroundColor);
      if (color.alpha === 1) return color.rgb;
    }
    return [255, 255, 255];
  };
  const faint = [];
  for (const each of document.querySelectorAll("body *")) {
    const own = [...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !each.checkVisibility()) continue;
    const a = light(parsed(getComputedStyle(each).color).rgb);
    const b = light(ground(each));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) faint.push(`${ratio.toFixed(2)} ${each.outerHTML.slice(0, 120)}`);
  }
  return faint;
}"""


@pytest.mark.parametrize(
    "picture",
    [
        ("console-queues", "/queues", "desk", "light"),
        ("console-messages", "/queues/orders/messages?rows=25", "desk", "dark"),
        ("console-dead-letters", "/queues/orders/dead-letters?subscriber=archive", "desk", "light"),
        ("console-phone", "/groups/view?group=shipping", "phone", "light"),
    ],
)
def test_pictures_for_the_page_in_the_documentation(
    browser: Browser, site: RunningConsole, tmp_path: Path, picture: tuple[str, str, str, str]
) -> None:
    name, path, width, scheme = picture
    viewport = PHONE if width == "phone" else DESK
    with browser.new_context(
        base_url=site.address,
        viewport=viewport,  # type: ignore[arg-type]
        color_scheme=scheme,  # type: ignore[arg-type]
    ) as context:
        page = context.new_page()
        page.goto(path)
        file = Path(PICTURES or tmp_path) / f"{name}.png"
        page.screenshot(path=file)
        assert file.read_bytes().startswith(b"\x89PNG")


def test_a_page_of_servers_that_are_away_is_loaded_again(
    browser: Browser, site: RunningConsole
) -> None:
    away = StoreUnavailableError("ZooKeeper gave no answer", outcome=Outcome.UNKNOWN)
    with browser.new_context(base_url=site.address) as context:
        page = context.new_page()
        with mock.patch.object(hqueue.aio.Client, "list_queues", side_effect=away):
            answer = page.goto("/queues?name=ord")
            assert answer is not None
            assert answer.status == 503
            expect(page.locator("[role=alert]")).to_have_text("ZooKeeper gave no answer")
            expect(page.locator("#again")).to_be_visible()
            asked = page.wait_for_event("response", timeout=30_000)
            assert asked.status == 503
            expect(page.locator("h1")).to_have_text("That did not work")
        expect(page.locator("#live")).to_contain_text("orders", timeout=30_000)
        expect(page).to_have_url(re.compile(r"/queues\?name=ord$"))
