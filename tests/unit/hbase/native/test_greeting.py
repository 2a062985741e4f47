"""What client and server say before the first request, by recorded bytes, cut anywhere."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hqueue.hbase.native.greeting import greeting
from hqueue.hbase.native.opening import Opened
from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.security import Security
from hqueue.hbase.native.wire import CLIENT, MASTER, REGISTRY, WHOLE_CONNECTION, varint
from hqueue.net.kerberos import Begun
from hqueue.net.layers import Wrapping
from hqueue.net.refusals import RefusedError
from hqueue.net.talking import Receive, Send, Talk
from hqueue.runtime.steps import Wait, carry_out
from hqueue.settings.addresses import Address
from tests.support.letter_context import LetterContext

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
        begun = Begun(LetterContext(), TOKEN, 7, self._is_fresh)  # type: ignore[arg-type]

        async def in_loop() -> Begun:
            return begun

        return Wait(lambda: begun, in_loop)

    def renew(self, generation: int) -> None:
        self.renewed.append(generation)


def security(login: Login | None, protections: Iterable[str] = ALL, **given: Any) -> Security:
    return Security(
        None,
        login,
        None,
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
    secured: Security,
    server: bytes,
    cut: int = 1,
    service: str = CLIENT,
    unaware: set[Address] | None = None,
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

    found = set() if unaware is None else unaware
    work = greeting(SERVER, service, secured, time.monotonic() + 30, found)
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
    [(CLIENT, "hbase/host.example@R"), (MASTER, "master/host.example@R")],
)
def test_each_service_has_its_principal(service: str, principal: str) -> None:
    login = Login()
    talk(security(login, ["integrity"]), good(b"ap-rep") + good(b"S\x07\1\0\0"), service=service)
    assert login.asked == [(principal, False)]


def of_connection(**said: Any) -> bytes:
    """An answer that belongs to no request."""
    header = pb.ResponseHeader(call_id=WHOLE_CONNECTION)
    parts = []
    if "principal" in said:
        named = pb.SecurityPreamableResponse(server_principal=said["principal"])
        parts.append(named.SerializeToString())
    else:
        header.exception.exception_class_name = f"org.apache.{said['error']}"
        header.exception.stack_trace = "because"
    parts.insert(0, header.SerializeToString())
    return framed(b"".join(varint(len(part)) + part for part in parts))


@pytest.mark.parametrize("principal", ["master/host.example@R", "hbase/host.example@R"])
@pytest.mark.parametrize("cut", [1, 1_000])
def test_who_may_be_a_master_or_a_region_server_is_asked_and_proves_it(
    principal: str, cut: int
) -> None:
    login = Login()
    _, said = talk(security(login), of_connection(principal=principal) + WHOLE, cut, REGISTRY)
    assert said.startswith(b"SecuriHBas\x00\x51" + framed(TOKEN))
    assert login.asked == [(principal, True)]


@pytest.mark.parametrize("named", ["hbase/host.example@R", "hbase/host.example@OTHER"])
def test_a_principal_without_a_realm_is_that_of_the_default_realm(named: str) -> None:
    login = Login()
    secured = security(login)._replace(regionserver="hbase/_HOST")
    talk(secured, of_connection(principal=named) + WHOLE, service=REGISTRY)
    assert login.asked == [("hbase/host.example", True)], "the library says which realm that is"


@pytest.mark.parametrize(
    "principal",
    [
        "hbase/other.example@R",
        "hbase/host.example@OTHER",
        "hbase/host.example@R2",
        "hbase",
        "",
        "@",
    ],
)
def test_no_other_principal_is_taken(principal: str) -> None:
    login = Login()
    talk(security(login), of_connection(principal=principal) + WHOLE, service=REGISTRY)
    assert login.asked == [("master/host.example@R", True)]


def test_where_both_have_one_principal_nobody_is_asked() -> None:
    login = Login()
    secured = security(login)._replace(master="hbase/_HOST@R")
    _, said = talk(secured, WHOLE, service=REGISTRY)
    assert said.startswith(b"HBas\x00\x51")


def test_a_server_that_does_not_say_who_it_is_is_taken_for_a_master_the_next_time() -> None:
    login, unaware = Login(), set[Address]()
    said = of_connection(error="hadoop.hbase.ipc.FatalConnectionException")
    with pytest.raises(ConnectionError, match="does not say who it is: FatalConnectionException"):
        talk(security(login), said, service=REGISTRY, unaware=unaware)
    assert unaware == {SERVER}
    talk(security(login), WHOLE, service=REGISTRY, unaware=unaware)
    assert login.asked == [("master/host.example@R", True)]


def test_a_server_without_security_says_so_and_is_refused_as_ever() -> None:
    said = of_connection(error="hadoop.hbase.ipc.SecurityNotEnabledException")
    with pytest.raises(RefusedError, match="hbase_fallback_to_simple"):
        talk(security(Login()), said + struct.pack(">ii", 0, -88), service=REGISTRY)


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
LATE = refused("javax.security.sasl.SaslException", "Problem with callback handler")


@pytest.mark.parametrize("protection", ["authentication", "privacy"])
@pytest.mark.parametrize("cut", [1, 3, 1_000])
def test_a_last_token_that_is_refused_comes_in_the_place_of_an_answer(
    protection: str, cut: int
) -> None:
    talked, _ = talk(security(Login(), [protection]), WHOLE)
    near, far = socket.socketpair()
    far.close()
    opened = Opened(near, talked.layer, talked.unused(), talked.beginning)

    def hear() -> None:
        for at in range(0, len(LATE), cut):
            piece = LATE[at : at + cut]
            opened.frames.space()[: len(piece)] = piece
            opened.frames.add(len(piece))
            assert opened.frames.next() is None

    with near, pytest.raises(RefusedError, match="see the server's log") as caught:
        hear()
    assert caught.value.facts["answer"] == "SaslException: Problem with callback handler"


def test_a_last_token_that_is_refused_is_heard_where_nothing_can_be_sent_any_more() -> None:
    left = [good(b"ap-rep"), good(b"S\x07\x01\0\0"), LATE]

    def do(step: Send | Receive) -> bytes | None:
        if not left:
            raise ConnectionError("the server closed the connection")
        if isinstance(step, Receive):
            return left.pop(0)
        if left == [LATE]:
            raise BrokenPipeError("it is gone")
        return None

    work = greeting(SERVER, CLIENT, security(Login()), time.monotonic() + 30, set())
    with pytest.raises(RefusedError, match="see the server's log"):
        carry_out(work, do)


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
