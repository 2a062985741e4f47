"""Browsers that prove who their users are by tickets of Kerberos, and what stands for a ticket."""

from __future__ import annotations

import base64
import contextlib
import logging
import os
import re
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import hqueue
from hqueue import Client, Message, SettingsError
from hqueue.metadata.access_rules import AccessRule, Operation
from hqueue_workers.console import signing_in
from hqueue_workers.console.settings import ConsoleSettings
from hqueue_workers.console.signing_in import Logins
from tests.support.backends import MemoryBackend
from tests.support.certificates import Certificates
from tests.support.console import RunningConsole, running_console
from tests.support.doubles import SteppedClock
from tests.support.tickets import SERVICE, Negotiation, Ticket, WithTicket, write_keytab
from tests.support.waiting import wait_for

COOKIE = "hqueue_login"


@pytest.fixture(autouse=True)
def kerberos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KRB5RCACHEDIR", str(tmp_path))
    monkeypatch.setenv("KRB5_CONFIG", os.devnull)


@pytest.fixture
def keytab(tmp_path: Path) -> str:
    return write_keytab(tmp_path / "keytab", SERVICE)


@pytest.fixture
def taking(memory_client: Client, keytab: str) -> Iterator[RunningConsole]:
    """A console on loopback that takes tickets, and serves two principals."""
    with running_console(memory_client, spnego_keytab=keytab, principals="alice,carol") as running:
        yield running


@contextlib.contextmanager
def browser_of(
    site: RunningConsole, negotiation: Negotiation | None = None, **given: object
) -> Iterator[httpx.Client]:
    options = {"base_url": site.address, "timeout": 30, "auth": negotiation, **given}
    with httpx.Client(**options) as client:  # type: ignore[arg-type]
        yield client


def audited(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "hqueue.audit"]


def test_a_ticket_opens_the_console_and_a_cookie_stands_for_it(
    taking: RunningConsole, tmp_path: Path
) -> None:
    negotiation = WithTicket(tmp_path, Ticket())
    with browser_of(taking, negotiation) as browser:
        answer = browser.get("/queues")
        assert answer.status_code == 200
        assert '<span class="principal">alice</span>' in answer.text
        assert negotiation.context is not None
        assert negotiation.context.complete  # The console has proven itself, too.
        for path in ("/queues/orders", "/queues/orders/messages", "/static/console.css"):
            again = browser.get(path)
            assert again.status_code == 200
            assert "www-authenticate" not in again.headers
        assert negotiation.tokens == 1
        (given,) = [
            each for each in answer.headers.get_list("set-cookie") if each.startswith(COOKIE)
        ]
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(given.split("; "))
        assert len(answer.headers.get_list("set-cookie")) == 2  # Forms have another one.


def test_a_browser_without_a_ticket_hears_what_to_do(
    taking: RunningConsole, caplog: pytest.LogCaptureFixture
) -> None:
    refused = 'hqueue_console_refused_requests_total{status="401"}'
    with browser_of(taking) as browser, caplog.at_level(logging.INFO):
        for path in ("/queues", "/queues/orders/tail/stream", "/static/console.css", "/none"):
            answer = browser.get(path)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Negotiate"
            assert "kinit" in answer.text
            assert "orders" not in answer.text
            assert "set-cookie" not in answer.headers
        assert browser.get("/queues", auth=("alice", "secret")).status_code == 401
        guessed = {"cookie": f"{COOKIE}={'x' * 43}"}
        assert browser.get("/queues", headers=guessed).status_code == 401
        assert browser.get("/healthz").text == "ok\n"
    assert audited(caplog) == []  # So the first request of each browser is answered.
    assert refused.encode() not in taking.console.metrics.text()


def test_another_site_makes_no_browser_show_its_ticket(taking: RunningConsole) -> None:
    with browser_of(taking) as browser:
        for headers in (
            {"origin": "https://evil.example"},
            {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
            {"host": "evil.example"},
        ):
            answer = browser.get("/queues", headers=headers)
            assert answer.status_code in (403, 421)
            assert "www-authenticate" not in answer.headers


@pytest.mark.parametrize(
    ("given", "text", "reason"),
    [
        ("Negotiate", "no token", ""),
        ("Negotiate ====", "no token", ""),
        ("Negotiate \u00e9", "no token", ""),
        ("Negotiate " + base64.b64encode(b"NTLMSSP\0\1\0\0\0").decode(), "NTLM", ""),
        ("Negotiate " + base64.b64encode(os.urandom(2_000)).decode(), "not accepted", "reason"),
        ("negotiate AAAA", "not accepted", "reason"),
    ],
)
def test_a_token_that_proves_nothing_is_refused_and_audited(
    taking: RunningConsole,
    caplog: pytest.LogCaptureFixture,
    given: str,
    text: str,
    reason: str,
) -> None:
    with browser_of(taking) as browser, caplog.at_level(logging.INFO):
        answer = browser.get("/queues", headers={"authorization": given.encode("latin-1")})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Negotiate"
    assert text in answer.text
    assert "orders" not in answer.text
    assert "set-cookie" not in answer.headers
    (line,) = audited(caplog)
    assert 'who="anonymous"' in line
    assert 'allowed="no"' in line
    assert text in line
    assert reason in line
    assert len(line) < 1_000
    assert b'refused_requests_total{status="401"} 1.0' in taking.console.metrics.text()


def test_several_tokens_in_a_request_are_refused(taking: RunningConsole, tmp_path: Path) -> None:
    headers = [*WithTicket(tmp_path, Ticket()).header().items(), ("authorization", "Basic eA==")]
    with browser_of(taking) as browser:
        assert browser.get("/queues", headers=headers).status_code == 401


def test_a_large_ticket_has_room_and_nothing_else_has(
    taking: RunningConsole, site: RunningConsole, tmp_path: Path
) -> None:
    header = WithTicket(tmp_path, Ticket(extra=47_000)).header()
    with browser_of(taking) as browser:
        assert browser.get("/queues", headers=header).status_code == 200
    with browser_of(taking) as browser:
        long = {"authorization": "Negotiate " + "A" * 66_000}
        assert browser.get("/queues", headers=long).status_code == 431
        assert browser.get("/queues", headers={"x-large": "x" * 20_000}).status_code == 431
        assert browser.get("/queues", headers={"cookie": "x" * 20_000}).status_code == 431
    with browser_of(taking) as browser, contextlib.suppress(httpx.HTTPError):
        headers = {"authorization": "Negotiate " + "A" * 200_000}
        assert browser.get("/queues", headers=headers).status_code in (400, 431)
    with browser_of(site) as browser:  # A console that takes no tickets has no room for them.
        assert browser.get("/queues", headers=header).status_code in (400, 431)


def test_who_is_not_in_the_list_is_known_and_refused(
    taking: RunningConsole, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for client, status, text in (
        ("bob@TEST", 403, "principals"),
        ("alice@OTHER", 401, "no rule makes a principal"),
        ("alice/admin@TEST", 401, "no rule makes a principal"),
    ):
        caplog.clear()
        with (
            browser_of(taking, WithTicket(tmp_path, Ticket(client))) as browser,
            caplog.at_level(logging.INFO),
        ):
            answer = browser.get("/queues")
        assert answer.status_code == status
        assert text in answer.text
        assert "orders" not in answer.text
        assert client.partition("@")[0] in "".join(audited(caplog)) or status == 401


def test_a_cookie_counts_at_the_address_that_got_it(taking: RunningConsole, tmp_path: Path) -> None:
    with browser_of(taking, WithTicket(tmp_path, Ticket())) as browser:
        assert browser.get("/queues").status_code == 200
        stolen = dict(browser.cookies)
        elsewhere = httpx.HTTPTransport(local_address="127.0.0.2")
        with browser_of(taking, transport=elsewhere, cookies=stolen) as thief:
            assert thief.get("/queues").status_code == 401
        assert browser.get("/queues", auth=None).status_code == 200  # It goes on for its owner.


def test_another_users_ticket_takes_the_place_of_a_cookie(
    taking: RunningConsole, tmp_path: Path
) -> None:
    with browser_of(taking, WithTicket(tmp_path, Ticket())) as browser:
        assert "alice" in browser.get("/queues").text
        carol = WithTicket(tmp_path, Ticket("carol@TEST"))
        answer = browser.get("/queues", headers=carol.header(), auth=None)
        assert '<span class="principal">carol</span>' in answer.text
        assert '<span class="principal">carol</span>' in browser.get("/queues", auth=None).text


def test_a_login_ends_with_its_time_and_the_browser_proves_itself_again(
    taking: RunningConsole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    negotiation = WithTicket(tmp_path, Ticket())
    monkeypatch.setattr(signing_in, "LOGIN_S_MAX", 0.0)
    with browser_of(taking, negotiation) as browser:
        for count in (1, 2):
            assert browser.get("/queues").status_code == 200
            assert negotiation.tokens == count
        assert browser.get("/queues", auth=None).status_code == 401


def test_a_form_is_sent_again_with_a_token_and_changes_once(
    memory_client: Client, keytab: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signing_in, "LOGIN_S_MAX", 0.0)  # Each request needs a token.
    given = {"spnego_keytab": keytab, "allow_changes": True, "change_principals": "ops"}
    with memory_client.create_queue("signed-letters", partitions=1) as queue:
        queue.put(Message("sales", b"a sale"))
        (message,) = queue.scan()
        queue.dead_letters.put([hqueue.DeadLetter(message, "reader", "no", attempts=1)])
        statuses = {}
        with running_console(memory_client, **given) as site:
            for name in ("looker", "ops"):
                negotiation = WithTicket(tmp_path, Ticket(f"{name}@TEST"))
                with browser_of(site, negotiation) as browser:
                    text = browser.get("/health").text
                    (token,) = set(re.findall(r'name="token" value="(\w+)"', text)) or {""}
                    form = {"token": token, "subscriber": "reader", "action": "redrive"}
                    answer = browser.post(
                        "/queues/signed-letters/dead-letters/change",
                        data={**form, "confirmed": "yes"},
                        headers={"origin": site.address},
                    )
                    statuses[name] = answer.status_code
                    assert negotiation.tokens == 2
        assert statuses == {"looker": 403, "ops": 303}
        assert [*queue.dead_letters.waiting("reader")] == []


def test_rules_decide_for_tickets_and_changes_of_them_hold_at_once(
    keytab: str, tmp_path: Path
) -> None:
    rule = AccessRule("alice", frozenset({Operation.READ}), "events")
    with MemoryBackend().connect() as client:
        client.create_queue("events", partitions=1).close()
        rules = client.coordination.access_rules
        rules.change(lambda known: known.granted(rule))
        settings = {"spnego_keytab": keytab, "authorizer": "rules"}
        with (
            running_console(client, **settings) as site,
            browser_of(site, WithTicket(tmp_path, Ticket())) as browser,
        ):
            assert browser.get("/queues/events").status_code == 200
            rules.change(lambda known: known.revoked(rule))
            wait_for(
                lambda: browser.get("/queues/events").status_code == 403, "the rule holds no more"
            )


def test_a_page_follows_messages_with_a_cookie(taking: RunningConsole, tmp_path: Path) -> None:
    negotiation = WithTicket(tmp_path, Ticket())
    with (
        browser_of(taking, negotiation) as browser,
        browser.stream("GET", "/queues/orders/tail/stream") as stream,
    ):
        assert stream.status_code == 200
        assert next(stream.iter_lines()).startswith("id: ")


@pytest.fixture
def secured(certificates: Certificates) -> Iterator[Client]:
    with MemoryBackend().connect(**certificates.of("console")) as client:
        client.create_queue("events", partitions=1).close()
        yield client


def trusting(certificates: Certificates, name: str | None, **made: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(certificates.folder / "ca.pem"))
    if name is not None:
        context.load_cert_chain(certificates.of(name, **made)["tls_certificate"])
    return context


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_with_tls_a_certificate_counts_or_else_a_ticket(
    secured: Client,
    certificates: Certificates,
    keytab: str,
    tmp_path: Path,
    version: ssl.TLSVersion,
) -> None:
    certificates.authority("strangers")
    with running_console(secured, spnego_keytab=keytab, principals="ann,alice") as site:
        for name, shown in (("ann", "ann"), (None, "alice")):
            context = trusting(certificates, name)
            context.maximum_version = version
            negotiation = WithTicket(tmp_path, Ticket())
            with browser_of(site, negotiation, verify=context) as browser:
                answer = browser.get("/queues")
                assert f'<span class="principal">{shown}</span>' in answer.text
                assert browser.get("/queues/events").status_code == 200
                given = answer.headers.get_list("set-cookie")
                assert all("; Secure" in each and each.startswith("__Host-") for each in given)
                assert (negotiation.tokens, len(given)) == ((0, 1) if name else (1, 2))
        with browser_of(site, verify=trusting(certificates, None)) as browser:
            assert browser.get("/queues").status_code == 401
            assert browser.get("/healthz").text == "ok\n"
        # A certificate that proves nothing is no way round, nor does a ticket mend it.
        context = trusting(certificates, "a-stranger", authority="strangers")
        context.maximum_version = version
        with (
            browser_of(site, WithTicket(tmp_path, Ticket()), verify=context) as browser,
            pytest.raises(httpx.HTTPError),
        ):
            browser.get("/queues")
        with browser_of(
            site, WithTicket(tmp_path, Ticket()), verify=trusting(certificates, "bob")
        ) as browser:
            assert browser.get("/queues").status_code == 403
        port = site.console.metrics_port
        with pytest.raises(httpx.HTTPError):  # Metrics still demand a certificate.
            httpx.get(f"https://127.0.0.1:{port}/metrics", verify=trusting(certificates, None))


def test_three_hundred_half_handshakes_hold_nobody_up(
    taking: RunningConsole, tmp_path: Path
) -> None:
    request = b"GET /queues HTTP/1.1\r\nHost: localhost\r\n"
    begun = base64.b64encode(os.urandom(30_000))
    with contextlib.ExitStack() as stack:
        for number in range(300):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", taking.port), 30))
            with contextlib.suppress(ConnectionError):
                if number % 3 == 0:  # Hears that it must prove itself, and does not.
                    sock.sendall(request + b"\r\n")
                elif number % 3 == 1:  # Half a token.
                    sock.sendall(request + b"Authorization: Negotiate " + begun)
                else:
                    sock.sendall(request + b"Authorization: Negotiate " + begun + b"\r\n\r\n")
        with browser_of(taking, WithTicket(tmp_path, Ticket())) as browser:
            assert browser.get("/queues").status_code == 200
        assert taking.console.connections <= 256


def test_logins_have_a_bound_for_each_and_for_all() -> None:
    logins = Logins(logins_max=40)
    own = [logins.begin("alice", "::1", 60) for _ in range(signing_in.LOGINS_EACH_MAX + 1)]
    assert [logins.principal_of(each, "::1") for each in own] == [None, *["alice"] * (len(own) - 1)]
    assert len(set(own)) == len(own)
    newest = [logins.begin(f"user-{number}", "::1", 60) for number in range(40)]
    assert len(logins) == 40
    assert not any(logins.principal_of(each, "::1") for each in own)
    assert all(logins.principal_of(each, "::1") for each in newest)
    for each in newest:
        logins.end(each)
        logins.end(each)
    assert len(logins) == 0


def test_a_login_ends_in_time() -> None:
    clock = SteppedClock()
    logins = Logins(clock)
    short, long = (logins.begin("alice", "::1", valid_s) for valid_s in (60, 1e6))
    clock.sleep_ms(59_999)
    assert logins.principal_of(short, "::1") == "alice"
    assert logins.principal_of(short, "10.0.0.1") is None
    clock.sleep_ms(1)
    assert logins.principal_of(short, "::1") is None
    clock.sleep_ms(3_539_999)
    assert logins.principal_of(long, "::1") == "alice"
    clock.sleep_ms(1)
    assert logins.principal_of(long, "::1") is None
    assert len(logins) == 0


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"host": "0.0.0.0"}, "needs tls where other machines"),
        ({"spnego_principal": "HTTP/elsewhere@TEST"}, "no key of the principal"),
        ({"spnego_principal_rules": "SAN:.*/x/"}, "spnego_principal_rules"),
        ({"spnego_keytab": "/no/such/file"}, "can't be read"),
    ],
)
def test_a_console_that_could_take_no_tickets_does_not_start(
    memory_client: Client, keytab: str, given: dict[str, str], text: str
) -> None:
    with (
        pytest.raises(SettingsError, match=text),
        running_console(memory_client, **{"spnego_keytab": keytab, **given}),
    ):
        pass


@pytest.mark.parametrize("name", ["spnego_principal", "spnego_principal_rules"])
def test_settings_of_tickets_need_a_keytab(name: str) -> None:
    with pytest.raises(SettingsError, match="needs spnego_keytab"):
        ConsoleSettings(**{name: "x"})  # type: ignore[arg-type]
