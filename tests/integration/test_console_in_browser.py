"""The console in Chromium: at the widths of a phone and a desk, and with the keyboard alone.

`make test-console` runs these tests. `make screenshots` has them write the pictures of
docs/console.md.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

import hqueue
from hqueue import Consumer, DeadLetter, Message
from tests.support.backends import MemoryBackend
from tests.support.chromium import chromium
from tests.support.console import RunningConsole, running_console

pytestmark = pytest.mark.browser

PHONE, DESK = {"width": 360, "height": 740}, {"width": 1280, "height": 800}
PAGES = (
    "/queues",
    "/queues/orders",
    "/queues/orders/messages",
    "/queues/orders/tail",
    "/queues/orders/dead-letters",
    "/queues/orders/topics",
    "/groups",
    "/groups/view?group=billing",
    "/subscribers",
    "/hubs",
    "/health",
    "/no-such-page",
)
PICTURES = os.environ.get("HQUEUE_SCREENSHOTS")
"""The folder for pictures of pages; None if none are wanted."""


@pytest.fixture(scope="module")
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


def focus_by_tab(page: Page, selector: str) -> None:
    """Press Tab until an element has the focus; each element on the way must show its own."""
    for _ in range(200):
        page.keyboard.press("Tab")
        shown = page.evaluate(
            "(() => { const style = getComputedStyle(document.activeElement);"
            " return style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0; })()"
        )
        assert shown, page.evaluate("document.activeElement.outerHTML")
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
    pytest.fail(f"Tab does not come to {selector}")


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
        expect(page.locator("#state")).to_contain_text("1 messages were not shown")
        expect(page.locator("#rows tr")).to_have_count(1)
        page.keyboard.press("Space")
        queue.put(Message("live", b"third"))
        expect(page.locator("#rows tr").first).to_contain_text("third")


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


def test_health_says_what_to_do(page: Page) -> None:
    page.goto("/health")
    focus_by_tab(page, "button.main")
    page.keyboard.press("Enter")
    expect(page.locator("#live .note").first).not_to_contain_text("have not run yet")


ATTACK = """
<img src="{console}/queues"><iframe src="{console}/queues"></iframe>
<form method="post" action="{console}/groups/reset" target="sent">
<input name="group" value="billing"><input name="queue" value="orders">
<input name="to" value="latest"><input name="confirmed" value="yes"></form>
<iframe name="sent"></iframe>
<script>
window.seen = [];
const read = (options) => fetch("{console}/queues", options)
  .then(async (answer) => window.seen.push(answer.type + await answer.text()))
  .catch(() => window.seen.push("refused"));
const stream = new EventSource("{console}/queues/orders/tail/stream");
stream.onerror = () => window.seen.push("no stream");
stream.onmessage = (event) => window.seen.push("stream" + event.data);
window.done = Promise.all([read({}), read({mode: "no-cors"}), read({credentials: "include"})]);
document.querySelector("form").submit();
</script>
"""


def test_another_site_in_the_browser_reads_and_changes_nothing(
    browser: Browser, site: RunningConsole, client: hqueue.Client
) -> None:
    client.reset_group("billing", "orders", "earliest")
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(f"{site.address}/queues")  # The browser has the console's cookie.
        page.route(
            "http://evil.example/",
            lambda route: route.fulfill(
                body=ATTACK.replace("{console}", site.address), content_type="text/html"
            ),
        )
        page.goto("http://evil.example/")
        page.evaluate("window.done")
        page.wait_for_function("window.seen.includes('no stream')")
        seen = page.evaluate("window.seen")
        assert not any("orders" in each for each in seen), seen
        assert any(each in seen for each in ("refused", "opaque"))
        for frame in page.frames:
            if frame is not page.main_frame:
                assert "orders" not in frame.content()
    described = client.describe_group("billing", queue="orders")
    assert {each.committed for each in described.partitions} == {hqueue.MessageID(0, 1)}


def test_a_name_that_is_given_this_address_is_refused(
    browser: Browser, site: RunningConsole
) -> None:
    with browser.new_context() as context:
        page = context.new_page()
        answer = page.goto(f"http://rebound.example:{site.port}/queues")
        assert answer is not None
        assert answer.status == 421
        assert "orders" not in page.content()


@pytest.mark.parametrize(
    "picture",
    [
        ("console-queues", "/queues", "desk", "light"),
        ("console-messages", "/queues/orders/messages?rows=25", "desk", "dark"),
        ("console-dead-letters", "/queues/orders/dead-letters?subscriber=archive", "desk", "light"),
        ("console-phone", "/groups/view?group=billing", "phone", "light"),
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
