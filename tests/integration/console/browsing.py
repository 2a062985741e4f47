"""What the tests in Chromium share: widths, pages, and the keyboard."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page

__all__ = ["DESK", "PAGES", "PHONE", "focus_by_tab"]

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
