"""Tickets: who has none, a KDC that is silent or away, and configurations that differ."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hqueue.net.gssapi import GssError
from hqueue.net.kdc import KdcUnavailableError
from hqueue.net.kerberos import Login
from hqueue.net.refusals import RefusedError
from hqueue.runtime.steps import carry_out, carry_out_in_loop
from tests.support.keytabs import keytab

CLIENT, SERVER = "user@TEST", "hbase/here@TEST"
BOUND_S = 0.5
SILENT_S = 20
"""The library itself waits longer for a KDC that is silent."""


@pytest.fixture
def kdc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A KDC that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        config = tmp_path / "krb5.conf"
        config.write_text(
            "[libdefaults]\n default_realm = TEST\n udp_preference_limit = 1\n"
            f" dns_lookup_kdc = false\n[realms]\n TEST = {{\n  kdc = 127.0.0.1:{port}\n }}\n"
        )
        monkeypatch.setenv("KRB5_CONFIG", str(config))
        monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/none")
        yield listener


@pytest.fixture
def keys(tmp_path: Path) -> str:
    path = tmp_path / "keytab"
    path.write_bytes(keytab(CLIENT))
    return str(path)


def begin(login: Login, bound_s: float = 30, server: str = SERVER) -> None:
    def work():  # type: ignore[no-untyped-def]
        yield login.begin(server, confidential=False, ends_s=time.monotonic() + bound_s)

    carry_out(work(), lambda _: None)


def test_a_silent_kdc_holds_a_thread_up_no_longer_than_its_bound(
    kdc: socket.socket, keys: str
) -> None:
    login = Login(CLIENT, keys)
    for _ in range(2):
        begun_s = time.monotonic()
        with pytest.raises(KdcUnavailableError, match="did not answer in time"):
            begin(login, BOUND_S)
        assert BOUND_S / 2 <= time.monotonic() - begun_s < SILENT_S / 2


def test_a_silent_kdc_holds_no_loop_up(kdc: socket.socket, keys: str) -> None:
    login = Login(CLIENT, keys)

    def work():  # type: ignore[no-untyped-def]
        yield login.begin(SERVER, confidential=False, ends_s=time.monotonic() + 30)

    async def run() -> None:
        asked = asyncio.ensure_future(carry_out_in_loop(work(), asyncio.sleep))
        for _ in range(50):
            await asyncio.sleep(BOUND_S / 50)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked

    begun_s = time.monotonic()
    asyncio.run(run())
    assert time.monotonic() - begun_s < SILENT_S / 2


def test_a_kdc_that_is_away_may_come_back(kdc: socket.socket, keys: str) -> None:
    kdc.close()
    with pytest.raises(KdcUnavailableError, match="Cannot contact any KDC") as caught:
        begin(Login(CLIENT, keys))
    assert caught.value.facts["realm"] == "TEST"
    assert caught.value.facts["kdc"].startswith("127.0.0.1:")


def test_a_configuration_that_leaves_kdcs_to_dns_names_the_realm_alone(
    kdc: socket.socket, tmp_path: Path
) -> None:
    (tmp_path / "krb5.conf").write_text("[libdefaults]\n default_realm = ELSEWHERE\n")
    error = KdcUnavailableError("silent", "user")
    assert error.facts == {"realm": "ELSEWHERE", "reason": "silent"}


@pytest.mark.parametrize(
    ("login", "text"),
    [
        ({}, "there is no ticket: run kinit"),
        ({"ticket_cache": "FILE:/nowhere/tickets"}, "there is no ticket: run kinit"),
        ({"principal": CLIENT}, "there is no ticket: run kinit"),
        ({"keytab": "/nowhere/keytab"}, "kerberos_keytab can't be read"),
        ({"keytab": "keys", "principal": "other@TEST"}, "the keytab has no key that serves"),
        ({"keytab": os.devnull}, "kerberos_keytab is not a keytab"),
        ({"keytab": __file__}, "kerberos_keytab is not a keytab"),
        ({"config": "/nowhere/krb5.conf"}, "kerberos_config differs"),
    ],
)
def test_who_has_nothing_to_prove_itself_with_is_refused_before_a_kdc_is_asked(
    kdc: socket.socket, keys: str, login: dict[str, str], text: str
) -> None:
    given = {name: keys if value == "keys" else value for name, value in login.items()}
    with pytest.raises(RefusedError, match=text):
        begin(Login(**given))
    kdc.setblocking(False)
    with pytest.raises(BlockingIOError):
        kdc.accept()


def test_other_tickets_are_had_where_they_can_be(keys: str) -> None:
    with_keys, without = Login(CLIENT, keys), Login(CLIENT)
    for login, changes in ((with_keys, True), (without, False)):
        before = login.generation
        login.renew(before - 1)
        assert login.generation == before, "these are not used any more"
        login.renew(before)
        assert (login.generation != before) is changes


def test_what_the_library_says_is_in_the_error(kdc: socket.socket, keys: str) -> None:
    with pytest.raises(RefusedError) as caught:
        begin(Login())
    assert isinstance(caught.value.__cause__, GssError)
    assert "No Kerberos credentials available" in str(caught.value.facts["reason"]) or (
        "No credentials cache found" in str(caught.value.facts["reason"])
    )
