"""The console in Chromium, attacked by another site in the same browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser

import hqueue
from tests.support.console import RunningConsole

pytestmark = pytest.mark.browser

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
