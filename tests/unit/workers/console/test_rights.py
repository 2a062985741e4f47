"""Who may open the console with TLS, and what access rules let each principal see and change."""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import ssl
from collections.abc import Iterator

import httpx
import pytest

import hqueue
from hqueue import Client, Message, SettingsError
from hqueue.metadata.access_rules import AccessRule, Operation
from hqueue_workers.console.settings import ConsoleSettings
from tests.support.backends import MemoryBackend
from tests.support.certificates import Certificates
from tests.support.console import RunningConsole, running_console


@contextlib.contextmanager
def browser_of(
    site: RunningConsole, certificates: Certificates, name: str | None
) -> Iterator[httpx.Client]:
    """A browser that has the certificate of a principal, or none."""
    context = ssl.create_default_context(cafile=str(certificates.folder / "ca.pem"))
    if name is not None:
        context.load_cert_chain(certificates.of(name)["tls_certificate"])
    with httpx.Client(base_url=site.address, verify=context, timeout=30) as client:
        yield client


@pytest.fixture(scope="module")
def secured(certificates: Certificates) -> Iterator[Client]:
    """A client with TLS, and two queues."""
    with MemoryBackend().connect(**certificates.of("console")) as client:
        for name in ("events", "secrets"):
            with client.create_queue(name, partitions=1) as queue:
                queue.put(Message("clicks", b"a click"))
                queue.put(Message("payments", b"a payment"))
                queue.dead_letters.put(
                    [hqueue.DeadLetter(next(iter(queue.scan())), "reader", "no", attempts=1)]
                )
        yield client


def allow(client: Client, *rules: AccessRule) -> None:
    def edit(known: hqueue.metadata.access_rules.AccessRules) -> object:
        for rule in rules:
            known = known.granted(rule)
        return known

    client.coordination.access_rules.change(edit)  # type: ignore[arg-type]


def test_who_has_no_certificate_or_a_strangers_is_refused(
    secured: Client, certificates: Certificates
) -> None:
    certificates.authority("console-strangers")
    with running_console(secured) as site:
        with browser_of(site, certificates, None) as browser, pytest.raises(httpx.HTTPError):
            browser.get("/queues")
        stranger = certificates.of("stranger", authority="console-strangers")["tls_certificate"]
        context = ssl.create_default_context(cafile=str(certificates.folder / "ca.pem"))
        context.load_cert_chain(stranger)
        with (
            httpx.Client(base_url=site.address, verify=context) as browser,
            pytest.raises(httpx.HTTPError),
        ):
            browser.get("/queues")
        with socket.create_connection(("127.0.0.1", site.port), 30) as sock:
            sock.sendall(b"GET /queues HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"events" not in sock.recv(65_536)
        with browser_of(site, certificates, "ann") as browser:
            assert browser.get("/queues").status_code == 200


def test_a_principal_opens_it_and_is_shown(
    secured: Client, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    with running_console(secured, principals="ann,ops*") as site:
        with browser_of(site, certificates, "ann") as browser:
            answer = browser.get("/queues")
            assert answer.status_code == 200
            assert '<span class="principal">ann</span>' in answer.text
            assert "; Secure" in answer.headers["set-cookie"]
            assert answer.headers["set-cookie"].startswith("__Host-")
        with caplog.at_level(logging.WARNING), browser_of(site, certificates, "bob") as browser:
            refused = browser.get("/queues")
            assert refused.status_code == 403
            assert "events" not in refused.text
        assert any('who="bob"' in each.getMessage() for each in caplog.records)


def test_rules_decide_what_a_principal_sees(secured: Client, certificates: Certificates) -> None:
    read = frozenset({Operation.READ})
    allow(
        secured,
        AccessRule("reader", read, "events"),
        AccessRule("clicker", read, "events", "clicks"),
    )
    with running_console(secured, authorizer="rules", administrators="root") as site:
        with browser_of(site, certificates, "reader") as browser:
            site.measure()
            listed = browser.get("/queues").text
            assert "events" in listed
            assert "secrets" not in listed
            assert browser.get("/queues/secrets").status_code == 403
            assert browser.get("/queues/secrets/messages").status_code == 403
            assert browser.get("/queues/secrets/tail/stream").status_code == 403
            assert browser.get("/queues/secrets/dead-letters").status_code == 403
            assert browser.get("/subscribers?queue=secrets").status_code == 403
            assert "a payment" in browser.get("/queues/events/messages").text
        with browser_of(site, certificates, "clicker") as browser:
            assert browser.get("/queues/events").status_code == 200
            assert browser.get("/queues/events/messages").status_code == 403
            found = browser.get("/queues/events/messages?topic=clicks").text
            assert "a click" in found
            (address,) = re.findall(r'href="(/queues/events/messages/0/[-\d]+)"', found)
            assert browser.get(address).status_code == 200
            assert browser.get("/queues/events/messages?topic=payments").status_code == 403
            with secured.queue("events") as queue:
                payment = next(each for each in queue.scan() if each.topic == "payments")
            hidden = browser.get(f"/queues/events/messages/0/{payment.id}")
            assert hidden.status_code == 403
            assert "a payment" not in hidden.text
        with browser_of(site, certificates, "nobody") as browser:
            assert "events" not in browser.get("/queues").text
        with browser_of(site, certificates, "root") as browser:
            assert browser.get("/queues/secrets/messages").status_code == 200


def test_rules_decide_what_a_principal_changes(
    secured: Client, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    both = frozenset({Operation.READ, Operation.CONSUME})
    allow(
        secured,
        AccessRule("ops", both, "events", "*", "reader"),
        AccessRule("reader", both, "events"),
        AccessRule("looker", frozenset({Operation.READ}), "events"),
        AccessRule("auditor", both, "events", "*", "another"),
    )
    outcomes = {}
    with running_console(secured, allow_changes=True, authorizer="rules") as site:
        for name in ("looker", "auditor", "ops", "reader"):
            with browser_of(site, certificates, name) as browser, caplog.at_level(logging.INFO):
                token = re.findall(r'name="token" value="(\w+)"', browser.get("/health").text)[0]
                form = {"token": token, "subscriber": "reader", "action": "redrive"}
                answer = browser.post(
                    "/queues/events/dead-letters/change",
                    data={**form, "confirmed": "yes"},
                    headers={"origin": site.address},
                )
                outcomes[name] = answer.status_code
    assert outcomes == {"looker": 403, "auditor": 403, "ops": 303, "reader": 400}
    lines = [each.getMessage() for each in caplog.records if each.name == "hqueue.audit"]
    assert any('who="looker"' in line and 'allowed="no"' in line for line in lines)
    done = [line for line in lines if 'allowed="yes"' in line]
    assert len(done) == 1
    assert 'who="ops"' in done[0]
    assert 'outcome="done"' in done[0]


def test_changes_need_callers_that_prove_who_they_are(memory_client: Client) -> None:
    with (
        pytest.raises(SettingsError, match="prove who they are"),
        running_console(memory_client, host="0.0.0.0", allow_changes=True),
    ):
        pass


@pytest.mark.parametrize(
    "wrong",
    [
        {"authorizer": "acl"},
        {"host": ""},
        {"port": 65_536},
        {"connections_max": 1},
        {"history_ms": 1},
        {"administrators": "a b"},
    ],
)
def test_a_wrong_setting_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(SettingsError):
        ConsoleSettings(**wrong)  # type: ignore[arg-type]


def test_rules_need_tls(memory_client: Client) -> None:
    with (
        pytest.raises(SettingsError, match="tls"),
        running_console(memory_client, authorizer="rules"),
    ):
        pass
