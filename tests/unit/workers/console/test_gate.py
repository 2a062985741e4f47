"""What the console refuses, and what each of its answers forbids a browser."""

from __future__ import annotations

import httpx
import pytest

from hqueue.errors import NotAllowedError
from hqueue_workers.console.gate import FormTokens, host_in
from tests.support.console import RunningConsole

FORM = {"content-type": "application/x-www-form-urlencoded"}


def test_each_answer_forbids_scripts_frames_and_guesses(browser: httpx.Client) -> None:
    for path in ("/queues", "/static/console.css", "/no-such-page", "/queues/no-such-queue"):
        headers = browser.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["referrer-policy"] == "same-origin"
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers


def test_no_page_has_a_script_or_a_style_within_itself(browser: httpx.Client) -> None:
    for path in ("/queues", "/queues/orders", "/queues/orders/messages", "/queues/orders/tail"):
        text = browser.get(path).text
        assert "<script>" not in text
        assert "<style" not in text
        assert " style=" not in text
        assert " onclick=" not in text


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil", "", "[]"],
)
def test_a_request_for_another_host_is_refused(browser: httpx.Client, host: str) -> None:
    answer = browser.get("/queues", headers={"host": host})
    assert answer.status_code in (400, 421)
    assert "orders" not in answer.text


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:1234", "LOCALHOST", "[::1]:80"])
def test_a_request_for_an_own_name_is_answered(browser: httpx.Client, host: str) -> None:
    assert browser.get("/queues", headers={"host": host}).status_code == 200


def test_health_is_answered_under_any_name_and_says_nothing_else(browser: httpx.Client) -> None:
    answer = browser.get("/healthz", headers={"host": "10.0.0.7"})
    assert (answer.status_code, answer.text) == (200, "ok\n")


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"},
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "cors", "sec-fetch-dest": "empty"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
    ],
)
def test_another_site_reads_nothing(browser: httpx.Client, headers: dict[str, str]) -> None:
    for path in ("/queues", "/queues/orders/tail/stream"):
        answer = browser.get(path, headers=headers)
        assert answer.status_code == 403
        assert "orders" not in answer.text


def test_a_link_from_another_site_can_be_followed(browser: httpx.Client) -> None:
    headers = {
        "sec-fetch-site": "cross-site",
        "sec-fetch-mode": "navigate",
        "sec-fetch-dest": "document",
    }
    assert browser.get("/queues", headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "OWN", "sec-fetch-site": "cross-site"}, 403),
        ({"origin": "OWN", "content-type": "text/plain"}, 415),
        ({"origin": "OWN", "content-type": "multipart/form-data; boundary=x"}, 415),
    ],
)
def test_a_change_must_come_from_an_own_page(
    browser: httpx.Client, site: RunningConsole, headers: dict[str, str], status: int
) -> None:
    given = {name: text.replace("OWN", site.address) for name, text in headers.items()}
    answer = browser.post("/groups/reset", headers={**FORM, **given}, content=b"token=x")
    assert answer.status_code == status


def test_a_form_has_a_bound(browser: httpx.Client, site: RunningConsole) -> None:
    headers = {**FORM, "origin": site.address}
    answer = browser.post("/groups/reset", headers=headers, content=b"a=" + b"x" * 20_000)
    assert answer.status_code == 413

    def endless() -> object:
        yield b"a=1"

    answer = browser.post("/groups/reset", headers=headers, content=endless())  # type: ignore[arg-type]
    assert answer.status_code == 411


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
def test_other_methods_are_refused(browser: httpx.Client, method: str) -> None:
    answer = browser.request(method, "/queues")
    assert answer.status_code == 405


def test_a_long_address_is_refused(browser: httpx.Client) -> None:
    assert browser.get("/queues?name=" + "x" * 9_000).status_code == 414


def test_large_headers_are_refused_however_they_come_in(browser: httpx.Client) -> None:
    assert browser.get("/queues", headers={"x-large": "x" * 20_000}).status_code == 431
    assert browser.get("/queues", headers={"x-large": "x" * 15_000}).status_code == 200


def test_the_session_is_a_cookie_that_scripts_and_other_sites_do_not_get(
    site: RunningConsole,
) -> None:
    with httpx.Client(base_url=site.address) as new:
        cookie = new.get("/queues").headers["set-cookie"]
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
        assert "set-cookie" not in new.get("/queues").headers


def test_a_session_is_not_what_another_program_chose(site: RunningConsole) -> None:
    with httpx.Client(base_url=site.address, cookies={"hqueue_console": "short"}) as new:
        assert "set-cookie" in new.get("/queues").headers


def test_a_token_is_of_one_session_and_one_console() -> None:
    tokens = FormTokens()
    token = tokens.token("a")
    tokens.check("a", token)
    for session, given in (("b", token), ("a", ""), ("a", None), (None, token), ("a", "\u00e9")):
        with pytest.raises(NotAllowedError):
            tokens.check(session, given)
    with pytest.raises(NotAllowedError):
        FormTokens().check("a", token)


@pytest.mark.parametrize(
    ("header", "host"),
    [
        ("a.example:80", "a.example"),
        ("A.example.", "a.example"),
        ("[::1]:80", "::1"),
        ("[::1]", "::1"),
        ("::1", ""),
        ("a:b", ""),
        ("a:80:80", ""),
        ("", ""),
    ],
)
def test_the_host_of_a_header(header: str, host: str) -> None:
    assert host_in(header) == host
