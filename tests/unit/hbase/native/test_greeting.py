"""What client and server say before the first request, by recorded bytes, cut anywhere."""

from __future__ import annotations

import contextlib
import struct
import time
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hqueue.hbase.native.greeting import Security, greeting
from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.wire import CLIENT, MASTER, REGISTRY
from hqueue.net.kerberos import Begun
from hqueue.net.layers import Wrapping
from hqueue.net.refusals import RefusedError
from hqueue.net.talking import Receive, Send, Talk
from hqueue.runtime.steps import Wait, carry_out
from hqueue.settings.addresses import Address
from tests.unit.net.test_sasl import Context

SERVER = Address("Host.Example", 16_020)
ALL = ("authentication", "integrity", "privacy")

TOKEN = bytes.fromhex("608202ac06092a864886f71201020201006e") + b"\x82"
"""As a client's first one begins."""


class Login:
    """Has a ticket for everybody."""

    def __init__(self, *, is_fresh: bool = True) -> None:
        self.asked: list[tuple[str, bool]] = []
        self.renewed: list[int] = []
        self._is_fresh = is_fresh

    def begin(self, server: str, *, confidential: bool, ends_s: float) -> Wait:
        self.asked.append((server, confidential))
        begun = Begun(Context(), TOKEN, 7, self._is_fresh)  # type: ignore[arg-type]
        return Wait(lambda: begun, None)  # type: ignore[arg-type]

    def renew(self, generation: int) -> None:
        self.renewed.append(generation)


def security(login: Login | None, protections: Iterable[str] = ALL, **given: Any) -> Security:
    return Security(
        None,
        login,
        tuple(protections),
        "hbase/_HOST@R",
        "master/_HOST@R",
        **given,  # type: ignore[arg-type]
    )


def good(token: bytes) -> bytes:
    return struct.pack(">ii", 0, len(token)) + token


def refused(name: str, text: str) -> bytes:
    written = [
        part for word in (name, text) for part in (struct.pack(">i", len(word)), word.encode())
    ]
    return struct.pack(">i", 1) + b"".join(written)


def talk(
    secured: Security, server: bytes, cut: int = 1, service: str = CLIENT
) -> tuple[Talk, bytes]:
    """A talk with a server that says this, so many bytes at a time; and what the client said."""
    said, left = bytearray(), server

    def do(step: Send | Receive) -> bytes | None:
        nonlocal left
        if isinstance(step, Send):
            said.extend(step.data)
            return None
        if not left:
            raise ConnectionError("the server closed the connection")
        now, left = left[:cut], left[cut:]
        return now

    work = greeting(SERVER, service, secured, time.monotonic() + 30)
    return carry_out(work, do), bytes(said)


def framed(token: bytes) -> bytes:
    return struct.pack(">I", len(token)) + token


def header_of(said: bytes) -> Any:
    (length,) = struct.unpack_from(">I", said)
    assert len(said) == 4 + length
    return pb.ConnectionHeader.FromString(said[4:])


def test_without_security_nothing_is_waited_for() -> None:
    _, said = talk(Security(), b"")
    assert said[:6] == b"HBas\x00\x50"
    header = header_of(said[6:])
    assert header.service_name == CLIENT
    assert header.user_info.effective_user


@pytest.mark.parametrize("cut", [1, 2, 5, 1_000])
def test_a_client_proves_itself_and_names_no_user(cut: int) -> None:
    login = Login()
    server = good(b"ap-rep") + good(b"S\x07\x01\0\0")
    talked, said = talk(security(login), server, cut)
    expected = b"HBas\x00\x51" + framed(TOKEN) + framed(b"") + framed(b"S\x01\0\0\0")
    assert said[: len(expected)] == expected
    assert not header_of(said[len(expected) :]).HasField("user_info")
    assert talked.layer is None
    assert login.asked == [("hbase/host.example@R", True)]


def test_the_header_is_wrapped_where_a_protection_was_agreed_on() -> None:
    talked, said = talk(security(Login(), ["privacy"]), good(b"ap-rep") + good(b"S\x07\x01\0\0"))
    assert isinstance(talked.layer, Wrapping)
    ends = framed(b"S\x04\xff\xff\xff")
    wrapped = said[said.index(ends) + len(ends) :]
    assert wrapped[:5] == struct.pack(">I", len(wrapped) - 4) + b"E"
    header_of(wrapped[5:])


@pytest.mark.parametrize(
    ("service", "principal"),
    [(CLIENT, "hbase/host.example@R"), (MASTER, "master/host.example@R"),
     (REGISTRY, "master/host.example@R")],
)  # fmt: skip
def test_each_service_has_its_principal(service: str, principal: str) -> None:
    login = Login()
    talk(security(login, ["integrity"]), good(b"ap-rep") + good(b"S\x07\1\0\0"), service=service)
    assert login.asked == [(principal, False)]


def test_a_server_that_asks_for_no_proof_is_refused_unless_that_is_allowed() -> None:
    falls_back = struct.pack(">ii", 0, -88)
    with pytest.raises(RefusedError, match="hbase_fallback_to_simple"):
        talk(security(Login()), falls_back)
    talked, said = talk(security(Login(), falls_back=True), falls_back)
    expected = b"HBas\x00\x51" + framed(TOKEN)
    assert header_of(said[len(expected) :]).user_info.effective_user
    assert talked.layer is None


def test_a_refused_ticket_is_replaced_and_a_fresh_one_is_refused_for_good() -> None:
    answer = refused("javax.security.sasl.SaslException", "GSS initiate failed")
    old, fresh = Login(is_fresh=False), Login()
    with pytest.raises(ConnectionError, match="SaslException: GSS initiate failed"):
        talk(security(old), answer)
    with pytest.raises(RefusedError, match="the server's log") as caught:
        talk(security(fresh), answer)
    assert old.renewed == fresh.renewed == [7]
    assert caught.value.facts == {
        "answer": "SaslException: GSS initiate failed", "server_principal": "hbase/host.example@R",
    }  # fmt: skip


WHOLE = good(b"ap-rep") + good(b"S\x07\x01\0\0")


@pytest.mark.parametrize("end", range(len(WHOLE)))
def test_a_server_that_ends_anywhere_in_the_handshake_is_an_error_that_may_pass(end: int) -> None:
    with pytest.raises(ConnectionError, match="closed"):
        talk(security(Login()), WHOLE[:end], 3)


@given(
    st.one_of(
        st.binary(max_size=60),
        st.tuples(st.integers(0, len(WHOLE)), st.binary(max_size=30)).map(
            lambda cut: WHOLE[: cut[0]] + cut[1]
        ),
        st.tuples(st.sampled_from((-1, 0, 1, 2)), st.integers(-(2**31), 2**31 - 1)).map(
            lambda pair: struct.pack(">ii", *pair) + bytes(20)
        ),
    )
)
def test_whatever_a_server_says_is_an_answer_or_an_error_of_the_connection(server: bytes) -> None:
    with contextlib.suppress(OSError, ValueError):
        talk(security(Login()), server, 7)
