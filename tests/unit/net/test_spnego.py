"""Tokens of callers over HTTP: which prove something, and which keytabs can be served."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hqueue.errors import SettingsError
from hqueue.net.refusals import RefusedError
from hqueue.net.spnego import TOKEN_BYTES_MAX, Proof, TicketService
from tests.support.tickets import SERVICE, Ticket, WithTicket, kerberos_in, key_of, write_keytab

OTHER = "HTTP/other.test@TEST"


@pytest.fixture(autouse=True)
def replay_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KRB5RCACHEDIR", str(tmp_path))
    monkeypatch.setenv("KRB5_CONFIG", os.devnull)


Served = Callable[..., TicketService]


@pytest.fixture
def serve(tmp_path: Path) -> Served:
    def made(
        *principals: str, principal: str | None = None, rules: str = "DEFAULT"
    ) -> TicketService:
        path = write_keytab(tmp_path / "keytab", *(principals or (SERVICE,)))
        return TicketService(path, principal, rules)

    return made


def take(service: TicketService, token: bytes) -> Proof:
    return asyncio.run(service.take(token))


def test_a_ticket_proves_its_owner_and_the_answer_proves_the_service(
    serve: Served, tmp_path: Path
) -> None:
    negotiation = WithTicket(tmp_path, Ticket("alice@TEST"))
    proof = take(serve(), negotiation.token())
    assert proof.principal == "alice"
    assert 3_500 < proof.valid_s <= 3_600 + 300
    assert negotiation.context is not None
    assert not negotiation.context.complete
    negotiation.context.step(kerberos_in(proof.answer))
    assert negotiation.context.complete


@pytest.mark.parametrize(
    ("ticket", "reason"),
    [
        (Ticket(key=bytes(32)), "decrypt"),
        (Ticket(service=OTHER), "decrypt"),
        (Ticket(valid_s=-3_600), "expired"),
        (Ticket("alice@OTHER"), "no rule makes a principal"),
        (Ticket("alice/admin@TEST"), "no rule makes a principal"),
        (Ticket("anonymous@TEST"), "can't have"),
        (Ticket("al ice@TEST"), "can't have"),
        (Ticket("*@TEST"), "can't have"),
        (Ticket("alice\\@TEST@OTHER"), "no rule makes a principal"),
        (Ticket("x" * 400 + "@TEST"), "too long"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.client[:20],
)
def test_a_ticket_that_proves_nothing_here_is_refused(
    serve: Served, tmp_path: Path, ticket: Ticket, reason: str
) -> None:
    with pytest.raises(RefusedError) as refused:
        take(serve(), WithTicket(tmp_path, ticket).token())
    assert reason in f"{refused.value.text} {refused.value.facts}"


def test_a_user_of_another_realm_is_never_the_one_of_this_realm(
    serve: Served, tmp_path: Path
) -> None:
    rules = r"RULE:^([^@\/]+)@OTHER$/other-$1/, DEFAULT"
    service = serve(rules=rules)
    for client, principal in (("alice@OTHER", "other-alice"), ("alice@TEST", "alice")):
        assert take(service, WithTicket(tmp_path, Ticket(client)).token()).principal == principal
    for client in ("alice@TEST.OTHER", "alice@OTHER.TEST", "alice@test", "alice\\@OTHER@TEST"):
        with pytest.raises(RefusedError):
            take(service, WithTicket(tmp_path, Ticket(client)).token())


def test_a_token_counts_once(serve: Served, tmp_path: Path) -> None:
    service = serve()
    token = WithTicket(tmp_path, Ticket()).token()
    assert take(service, token).principal == "alice"
    for taking in (service, serve()):  # A process that was restarted knows it, too.
        with pytest.raises(RefusedError) as refused:
            take(taking, token)
        assert "replay" in str(refused.value.facts["reason"])


def test_forged_and_foreign_tokens_are_refused(serve: Served, tmp_path: Path) -> None:
    service = serve()
    negotiation = WithTicket(tmp_path, Ticket())
    token = negotiation.token()
    for forged in (
        b"",
        b"\x60",
        b"\x60\x84\xff\xff\xff\xff",
        bytes(1_000),
        os.urandom(1_000),
        token[:-1],
        token[:100],
        token[:50] + os.urandom(len(token) - 50),
    ):
        with pytest.raises(RefusedError):
            take(service, forged)
    for at in range(0, len(token), 7):
        changed = bytearray(negotiation.token())
        changed[at] ^= 0x40
        try:
            principal = take(service, bytes(changed)).principal
        except RefusedError:
            continue
        assert principal == "alice"  # The bit is of a part that the ticket does not sign.
    for ntlm in (b"NTLMSSP\0\1\0\0\0", b"\x60\x48\x06\x06+\6\1\5\5\2...NTLMSSP\0\1\0\0\0"):
        with pytest.raises(RefusedError, match="NTLM"):
            take(service, ntlm)
    with pytest.raises(RefusedError, match="more than"):
        take(service, bytes(TOKEN_BYTES_MAX + 1))


def test_a_large_ticket_is_taken(serve: Served, tmp_path: Path) -> None:
    token = WithTicket(tmp_path, Ticket(extra=47_000)).token()
    assert 47_000 < len(token) <= TOKEN_BYTES_MAX
    assert take(serve(), token).principal == "alice"


def test_other_keys_of_the_keytab_are_not_served(serve: Served, tmp_path: Path) -> None:
    service = serve("host/localhost@TEST", SERVICE, OTHER)
    for name in (SERVICE, OTHER):
        assert take(service, WithTicket(tmp_path, Ticket(service=name)).token()).principal
    with pytest.raises(RefusedError):
        take(service, WithTicket(tmp_path, Ticket(service="host/localhost@TEST")).token())
    one = serve(SERVICE, OTHER, principal="HTTP/localhost")
    with pytest.raises(RefusedError):
        take(one, WithTicket(tmp_path, Ticket(service=OTHER)).token())


def test_a_new_key_in_the_keytab_counts_from_the_next_token_on(
    serve: Served, tmp_path: Path
) -> None:
    service = serve()
    negotiation = WithTicket(tmp_path, Ticket(key=key_of("new")))
    with pytest.raises(RefusedError):
        take(service, negotiation.token())
    new = tmp_path / "new"
    written = write_keytab(new, SERVICE)
    assert Path(written).write_bytes(
        Path(written).read_bytes().replace(key_of(SERVICE), key_of("new"))
    )
    new.replace(tmp_path / "keytab")
    assert take(service, negotiation.token()).principal == "alice"
    (tmp_path / "keytab").unlink()
    with pytest.raises(RefusedError) as refused:
        take(service, negotiation.token())
    assert "not found" in str(refused.value.facts["reason"])


def test_many_tokens_at_a_time_hold_no_loop_up(
    serve: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = serve()
    free, most, running = threading.Event(), 0, 0
    lock = threading.Lock()
    accept = service._credential.accept

    def slow(token: bytes) -> object:
        nonlocal most, running
        with lock:
            running += 1
            most = max(most, running)
        assert free.wait(60)
        with lock:
            running -= 1
        return accept(token)

    monkeypatch.setattr(service._credential, "accept", slow)
    negotiation = WithTicket(tmp_path, Ticket())
    tokens = [negotiation.token() for _ in range(100)]

    async def run() -> list[Proof]:
        taking = [asyncio.ensure_future(service.take(token)) for token in tokens]
        began_s = time.monotonic()
        await asyncio.sleep(0.05)  # The loop goes on.
        assert time.monotonic() - began_s < 30
        assert not any(each.done() for each in taking)
        free.set()
        return await asyncio.gather(*taking)

    assert {proof.principal for proof in asyncio.run(run())} == {"alice"}
    assert most <= 4


@pytest.mark.parametrize(
    ("principals", "principal", "text"),
    [
        (("host/localhost@TEST",), None, "no key of the principal"),
        ((SERVICE,), "HTTP/elsewhere@TEST", "no key of the principal"),
        ((SERVICE,), "HTTP/localhost@OTHER", "no key of the principal"),
        (("host/localhost@TEST",), "host/localhost@TEST", "no key of the principal"),
        ((SERVICE, "HTTP/localhost@OTHER"), None, "several realms"),
        ((SERVICE, "HTTP/localhost@OTHER"), "HTTP/localhost", "several realms"),
    ],
)
def test_a_keytab_without_the_principal_is_refused(
    serve: Served, principals: tuple[str, ...], principal: str | None, text: str
) -> None:
    with pytest.raises(SettingsError, match=text) as refused:
        serve(*principals, principal=principal)
    assert str(refused.value.facts["found"])


def test_a_file_that_is_no_keytab_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="spnego_keytab can't be read"):
        TicketService(str(tmp_path / "none"), None, "DEFAULT")
    for data in (b"", b"\x05\x01", b"-----BEGIN", b"\x05\x02\x7f\xff\xff\xff"):
        (tmp_path / "bad").write_bytes(data)
        with pytest.raises(SettingsError, match="keytab"):
            TicketService(str(tmp_path / "bad"), None, "DEFAULT")


def test_a_replay_cache_that_can_not_be_written_is_logged_and_lets_nobody_in(
    serve: Served,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("KRB5RCACHEDIR", str(tmp_path / "none"))
    service = serve()
    assert "KRB5RCACHEDIR" in caplog.text
    with pytest.raises(RefusedError):
        take(service, WithTicket(tmp_path, Ticket()).token())


def test_a_configuration_that_can_not_be_read_is_refused(
    serve: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "krb5.conf").write_text("[libdefaults\n")
    monkeypatch.setenv("KRB5_CONFIG", str(tmp_path / "krb5.conf"))
    with pytest.raises(SettingsError, match="check kerberos_config"):
        serve()


@pytest.mark.parametrize("rules", ["", "RULE:x", "SAN:.*/x/", r"RULE:^(.*)@X$/$2/", "RULE:(/x/"])
def test_wrong_rules_are_refused(serve: Served, rules: str) -> None:
    with pytest.raises(SettingsError, match=r"spnego_principal_rules must be RULE:"):
        serve(rules=rules)
