"""Delegation tokens: Hadoop's files, what is read of an identifier, and what is never shown."""

from __future__ import annotations

import copy
import logging
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hqueue import InvalidInputError
from hqueue.net.refusals import RefusedError
from hqueue.net.tokens import DelegationToken, HeldTokens, read_tokens
from tests.support.token_door import TOKEN, identifier

LONG = DelegationToken(b"\0\0\1\x28" + b"i" * 296, b"p" * 20, "c" * 40)

WRITABLE = bytes.fromhex(
    "48445453000307306633652d6964230000001f0800120f617070404558414d504c452e434f4d180520c0843d28"
    "80897a300914000102030405060708090a0b0c0d0e0f101112131048424153455f415554485f544f4b454e0730"
    "6633652d6964286363636363636363636363636363636363636363636363636363636363636363636363636363"
    "63638e012c00000128696969696969696969696969696969696969696969696969696969696969696969696969"
    "696969696969696969696969696969696969696969696969696969696969696969696969696969696969696969"
    "696969696969696969696969696969696969696969696969696969696969696969696969696969696969696969"
    "696969696969696969696969696969696969696969696969696969696969696969696969696969696969696969"
    "696969696969696969696969696969696969696969696969696969696969696969696969696969696969696969"
    "696969696969696969696969696969696969696969696969696969696969696969696969696969696969696969"
    "696969696969696969696969696969696969696969696969696969696969696969696914707070707070707070"
    "70707070707070707070701048424153455f415554485f544f4b454e2863636363636363636363636363636363"
    "6363636363636363636363636363636363636363636363630e3132372e302e302e313a38303230026864026673"
    "15484446535f44454c45474154494f4e5f544f4b454e0e3132372e302e302e313a3830323001036b65790a7365"
    "637265742d6b6579"
)
PROTOBUF = bytes.fromhex(
    "4844545301ea040a610a07306633652d696412560a230000001f0800120f617070404558414d504c452e434f4d"
    "180520c0843d2880897a30091214000102030405060708090a0b0c0d0e0f101112131a1048424153455f415554"
    "485f544f4b454e2207306633652d69640aae030a28636363636363636363636363636363636363636363636363"
    "636363636363636363636363636363631281030aac020000012869696969696969696969696969696969696969"
    "696969696969696969696969696969696969696969696969696969696969696969696969696969696969696969"
    "696969696969696969696969696969696969696969696969696969696969696969696969696969696969696969"
    "696969696969696969696969696969696969696969696969696969696969696969696969696969696969696969"
    "696969696969696969696969696969696969696969696969696969696969696969696969696969696969696969"
    "696969696969696969696969696969696969696969696969696969696969696969696969696969696969696969"
    "696969696969696969696969696969696969696969696969696969696969696969696969696969696969696969"
    "69696969696969121470707070707070707070707070707070707070701a1048424153455f415554485f544f4b"
    "454e2228636363636363636363636363636363636363636363636363636363636363636363636363636363630a"
    "410a0e3132372e302e302e313a38303230122f0a026864120266731a15484446535f44454c45474154494f4e5f"
    "544f4b454e220e3132372e302e302e313a3830323012110a036b65791a0a7365637265742d6b6579"
)
"""What Hadoop's `Credentials` writes: a token for HDFS, two for HBase, and a secret key."""


@pytest.mark.parametrize("data", [WRITABLE, PROTOBUF])
def test_the_files_that_hadoop_writes_are_read(data: bytes) -> None:
    assert sorted(read_tokens(data), key=lambda token: token.service) == [TOKEN, LONG]


@pytest.mark.parametrize("token", [TOKEN, LONG])
def test_a_token_is_handed_over_as_a_file_of_hadoops(token: DelegationToken) -> None:
    assert DelegationToken.from_bytes(token.to_bytes()) == token


@pytest.mark.parametrize("data", [WRITABLE, PROTOBUF])
def test_a_file_that_is_cut_off_is_none(data: bytes) -> None:
    wrong = 0
    for end in range(len(data)):
        try:
            read_tokens(data[:end])
        except ValueError:
            wrong += 1
    # Version 0 has secrets behind its tokens, which are not read.
    assert wrong == len(data) if data is PROTOBUF else wrong > len(data) - 60


@pytest.mark.parametrize("length", [0, 10, 0x3F3F3F3F])
def test_an_identifier_that_would_harm_a_server_is_refused(length: int) -> None:
    malformed = length.to_bytes(4, "big") + TOKEN.identifier[4:]
    with pytest.raises(ValueError, match="malformed"):
        read_tokens(DelegationToken(malformed, b"p", "c").to_bytes())


@given(st.binary(max_size=80), st.sampled_from((b"", b"HDTS\0", b"HDTS\1", b"HDTS\2")))
def test_whatever_lies_in_a_file_is_tokens_or_an_error(data: bytes, mark: bytes) -> None:
    try:
        read_tokens(mark + data)
    except ValueError:
        pass


@given(st.binary(max_size=80))
def test_whatever_an_identifier_says_a_token_can_be_shown(data: bytes) -> None:
    assert "DelegationToken(" in repr(DelegationToken(data, b"p", "c"))


def test_an_identifier_says_whose_it_is_and_until_when() -> None:
    token = DelegationToken(identifier("me@R", 1_700_000_000_000, 1_700_000_600_000), b"p", "c")
    assert token.principal == "me@R"
    assert (token.issued_ms, token.expires_ms) == (1_700_000_000_000, 1_700_000_600_000)
    assert "2023-11-14T22:23:20+00:00" in repr(token)
    unknown = DelegationToken(b"", b"", "c")
    assert (unknown.principal, unknown.issued_ms, unknown.expires_ms) == ("", 0, 0)


def test_no_secret_is_shown_or_pickled(caplog: pytest.LogCaptureFixture) -> None:
    shown = f"{TOKEN} {TOKEN!r} {[TOKEN]} {HeldTokens()!r}"
    for part in (TOKEN.password, TOKEN.identifier):
        assert repr(part)[2:-1] not in shown
        assert part.hex() not in shown
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("x").warning("%s %r", TOKEN, TOKEN)
    assert repr(TOKEN.password)[2:-1] not in caplog.text
    for copied in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match="not pickled"):
            copied(TOKEN)


@pytest.mark.parametrize("data", [b"", b"secret-bytes", WRITABLE])
def test_bytes_that_are_no_token_are_refused_and_not_shown(data: bytes) -> None:
    with pytest.raises(InvalidInputError, match="not the bytes of a delegation token") as caught:
        DelegationToken.from_bytes(data)
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


def later(
    token: DelegationToken, expires_ms: int, principal: str = "app@EXAMPLE.COM"
) -> DelegationToken:
    return DelegationToken(identifier(principal, 0, expires_ms), b"p", token.service)


def test_the_token_that_expires_last_is_used() -> None:
    held = HeldTokens()
    assert held.all() == []
    new, old = later(TOKEN, 9_000_000), later(TOKEN, 3_000_000)
    for token in (TOKEN, new, old):
        held.use(token)
    assert held.all() == [new]
    others = later(TOKEN, 1, "other@EXAMPLE.COM")
    held.use(others)
    assert held.all() == [others]
    held.use(LONG)
    assert held.all() == [others, LONG]


def test_a_file_is_read_each_time_and_given_tokens_go_before_it(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    held = HeldTokens(str(path))
    with pytest.raises(RefusedError, match="check hbase_token_file") as caught:
        held.all()
    assert caught.value.facts["file"] == str(path)
    path.write_bytes(TOKEN.to_bytes())
    assert held.all() == [TOKEN]
    path.write_bytes(b"HDTS\0\1secret")
    with pytest.raises(RefusedError, match="check hbase_token_file") as caught:
        held.all()
    assert "secret" not in f"{caught.value} {caught.value.facts}"
    path.write_bytes(WRITABLE)
    assert len(held.all()) == 2
    held.use(LONG)
    assert held.all() == [LONG]
