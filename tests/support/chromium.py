"""Chromium for tests of pages."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

__all__ = ["chromium"]

NAMES = ("chromium", "chromium-browser", "google-chrome")


@contextlib.contextmanager
def chromium(*arguments: str, **variables: str) -> Iterator[Browser]:
    """Chromium, as the system has it: nothing is downloaded. The test fails if it is missing.

    Args:
        arguments: what is given to it beside what the tests need.
        variables: its environment's, beside those of this process.
    """
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.fail(
            f"these tests need one of {', '.join(NAMES)} on the PATH: install Debian's package "
            "chromium"
        )
    given = list(arguments)
    if os.geteuid() == 0:
        given.append("--no-sandbox")  # Chromium's own sandbox refuses root.
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=found, args=given, env={**os.environ, **variables}
        )
        yield browser
        browser.close()
