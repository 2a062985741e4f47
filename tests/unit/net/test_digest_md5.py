"""The exchange of DIGEST-MD5: the examples of RFC 2831, and what is not taken."""

from __future__ import annotations

import pytest

from hqueue.net.digest_md5 import DigestMd5
from hqueue.net.refusals import RefusedError

CHALLENGE = (
    b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,'
    b"charset=utf-8"
)


@pytest.mark.parametrize(
    ("service", "server_nonce", "nonce", "response", "proof"),
    [
        (
            "imap", "OA6MG9tEQGm2hh", "OA6MHXh6VqTrRk",
            "d388dad90d4bbd760a152321f2143af7", "ea40f60335c427b5527b84dbabcdfffd",
        ),
        (
            "acap", "OA9BSXrbuRhWay", "OA9BSuZWMSpW8m",
            "6084c6db3fede7352c551284490fd0fc", "2f0b3d7c3c2e486600ef710726aa2eae",
        ),
    ],
)  # fmt: skip
def test_the_examples_of_rfc_2831(
    service: str, server_nonce: str, nonce: str, response: str, proof: str
) -> None:
    uri = f"{service}/elwood.innosoft.com"
    mechanism = DigestMd5("chris", "secret", uri, nonce=nonce)
    challenge = CHALLENGE.replace(b"OA6MG9tEQGm2hh", server_nonce.encode())
    assert (
        mechanism.answer(challenge)
        == (
            f'charset=utf-8,username="chris",realm="elwood.innosoft.com",nonce="{server_nonce}",'
            f'nc=00000001,cnonce="{nonce}",digest-uri="{uri}",response={response},qop=auth'
        ).encode()
    )
    assert mechanism.protection is None
    assert mechanism.answer(f"rspauth={proof}".encode()) is None
    assert mechanism.protection == "authentication"


@pytest.mark.parametrize("proof", [b"", b'rspauth=""', b"rspauth=ea40f60335c427b5527b84dbabcdfffe"])
def test_a_server_that_does_not_know_the_password_is_refused(proof: bytes) -> None:
    mechanism = DigestMd5("chris", "secret", "imap/elwood.innosoft.com", nonce="OA6MHXh6VqTrRk")
    mechanism.answer(CHALLENGE)
    with pytest.raises(RefusedError, match="doesn't know the password"):
        mechanism.answer(proof)
    assert mechanism.protection is None


def test_each_exchange_has_a_nonce_of_its_own() -> None:
    answers = {DigestMd5("chris", "secret", "imap/host").answer(CHALLENGE) for _ in range(9)}
    assert len(answers) == 9


def test_the_password_is_neither_sent_nor_shown() -> None:
    mechanism = DigestMd5("chris", "hush-hush", "imap/host")
    shown = repr(mechanism).encode() + (mechanism.answer(CHALLENGE) or b"")
    assert b"hush-hush" not in shown


def test_texts_are_quoted_and_read_as_the_rfc_says() -> None:
    mechanism = DigestMd5('a "b" \\c', "secret", "imap/host")
    said = mechanism.answer(
        b' , realm="an \\"odd\\" one" , realm="second", nonce="n" ,algorithm=md5-sess,'
        b'qop="auth-int , auth",'
    )
    assert said is not None
    assert said.startswith(rb'username="a \"b\" \\c",realm="an \"odd\" one",nonce="n",')


def test_a_given_realm_counts_before_the_servers() -> None:
    said = DigestMd5("chris", "secret", "imap/host", realm="mine").answer(CHALLENGE)
    assert said is not None
    assert b'realm="mine"' in said


@pytest.mark.parametrize(
    ("user", "charset", "sent"),
    [("jörg", b",charset=utf-8", "jörg".encode()), ("jörg", b"", "jörg".encode("latin-1"))],
)
def test_a_name_is_sent_as_the_server_reads_it(user: str, charset: bytes, sent: bytes) -> None:
    challenge = b'realm="r",nonce="n",algorithm=md5-sess' + charset
    responses = [
        DigestMd5(user, "pässword", "imap/host", nonce="c").answer(challenge + more)
        for more in (b"", b',maxbuf="1"')
    ]
    assert responses[0] == responses[1]
    assert responses[0] is not None
    assert b'username="' + sent + b'"' in responses[0]


def test_a_name_that_the_server_cannot_read_is_refused() -> None:
    with pytest.raises(RefusedError, match="names in ISO 8859-1"):
        DigestMd5("Łukasz", "secret", "imap/host").answer(b'nonce="n",algorithm=md5-sess')


def test_a_server_without_a_protection_that_will_do_is_refused() -> None:
    with pytest.raises(RefusedError, match="no protection") as caught:
        DigestMd5("chris", "secret", "imap/host").answer(
            b'nonce="n",algorithm=md5-sess,qop="auth-conf,auth-int"'
        )
    assert caught.value.facts["offered"] == ["auth-conf", "auth-int"]


@pytest.mark.parametrize(
    "challenge",
    [
        b"", b"nonsense", b'nonce="n"', b"algorithm=md5-sess", b'nonce="n",algorithm=md5',
        b'nonce="n,algorithm=md5-sess', b'nonce="n"algorithm=md5-sess',
        b'nonce="",algorithm=md5-sess',
        b"\xff\xfe=\xff",
    ],
)  # fmt: skip
def test_a_malformed_challenge_is_not_taken(challenge: bytes) -> None:
    with pytest.raises(ValueError, match="malformed"):
        DigestMd5("chris", "secret", "imap/host").answer(challenge)


class Both:
    """Both ends' tokens, by the keys of one exchange."""

    def __init__(self) -> None:
        self.client, self.server = (
            DigestMd5("chris", "secret", "imap/host", nonce="c", protections=["integrity"])
            for _ in range(2)
        )
        for each in (self.client, self.server):
            each.answer(b'nonce="n",algorithm=md5-sess,qop="auth,auth-int"')
        self.server._keys = self.server._keys[::-1]


def test_the_first_protection_that_the_server_offers_is_chosen() -> None:
    for protections, qop in (
        (("authentication", "integrity"), b"auth"),
        (("integrity",), b"auth-int"),
    ):
        said = DigestMd5("chris", "secret", "imap/host", protections=protections).answer(
            b'nonce="n",algorithm=md5-sess,qop="auth-int,auth"'
        )
        assert said is not None
        assert said.endswith(b",qop=" + qop)


def test_integrity_takes_each_frame_once_in_its_order_and_none_that_was_changed() -> None:
    both = Both()
    frames = [both.client.wrap(data) for data in (b"", b"one", b"two" * 1_000)]
    assert frames[1][:3] == b"one"
    assert frames[1][-6:] == b"\0\1\0\0\0\1"
    for frame, data in zip(frames, (b"", b"one", b"two" * 1_000), strict=True):
        assert both.server.unwrap(bytearray(frame)) == data
    with pytest.raises(ConnectionError, match="changed on its way"):
        both.server.unwrap(bytearray(frames[0]))
    whole = both.client.wrap(b"next")
    for at in range(len(whole)):
        changed = bytearray(whole)
        changed[at] ^= 1
        for wrong in (changed, bytearray(whole[:at])):
            with pytest.raises(ConnectionError, match="changed on its way"):
                both.server.unwrap(wrong)
    assert both.server.unwrap(bytearray(whole)) == b"next"
