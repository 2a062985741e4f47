"""``hqueue console`` as a process: it says where it is, answers a browser, and ends cleanly."""

from __future__ import annotations

import re

import httpx
import pytest

from tests.acceptance.commands import Run, Start


@pytest.mark.usefixtures("server")
def test_the_console_says_where_it_is_and_ends_at_sigterm(start: Start, shared: str) -> None:
    running = start("console", "--port", "0")
    while "is ready at" not in (line := running.error_line()):
        assert line, "the console has ended"
    found = re.search(r"http://127\.0\.0\.1:\d+/", line)
    assert found is not None
    with httpx.Client(base_url=found[0], timeout=60) as browser:
        assert browser.get("/healthz").text == "ok\n"
        assert browser.get(f"/queues/{shared}").status_code == 200
        assert "read-only" in browser.get("/queues").text
    running.terminate()
    ended = running.end()
    assert (ended.code, ended.out) == (0, b"")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--port", "65536"), "port"),
        (("--host", "0.0.0.0", "--allow-changes"), "prove who they are"),
        (("--authorizer", "acl"), "all or rules"),
        (("--authorizer", "rules"), "tls"),
        (("--host", "no-such-host.invalid", "--port", "0"), "can't listen here"),
    ],
)
@pytest.mark.in_memory
def test_a_wrong_option_of_the_console_says_what_is_wrong(
    run: Run, options: tuple[str, ...], text: str
) -> None:
    ended = run("console", *options)
    assert ended.code != 0
    assert text in ended.err
