"""The exchange of GSSAPI: which layer is chosen, and what is not taken."""

from __future__ import annotations

import pytest

from hqueue.net.refusals import RefusedError
from hqueue.net.sasl import Gssapi
from tests.support.letter_context import LetterContext


def exchanged(*protections: str, offer: bytes) -> tuple[Gssapi, bytes]:
    mechanism = Gssapi(LetterContext(), protections)
    assert mechanism.answer(b"ap-rep") == b""
    assert mechanism.protection is None
    return mechanism, mechanism.answer(b"S" + offer)


ALL = ("authentication", "integrity", "privacy")


@pytest.mark.parametrize(
    ("protections", "offered", "chosen", "reply"),
    [
        (ALL, 7, "authentication", b"S\x01\0\0\0"),
        (ALL, 6, "integrity", b"S\x02\xff\xff\xff"),
        (ALL, 4, "privacy", b"S\x04\xff\xff\xff"),
        (ALL[::-1], 7, "privacy", b"S\x04\xff\xff\xff"),
        (ALL[::-1], 1, "authentication", b"S\x01\0\0\0"),
        (("integrity",), 7, "integrity", b"S\x02\xff\xff\xff"),
    ],
)
def test_the_first_protection_that_the_server_offers_is_chosen(
    protections: tuple[str, ...], offered: int, chosen: str, reply: bytes
) -> None:
    mechanism, said = exchanged(*protections, offer=bytes((offered, 1, 0, 0)))
    assert (mechanism.protection, said) == (chosen, reply)
    assert mechanism.wraps is (chosen != "authentication")


def test_a_server_without_a_protection_that_will_do_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"hbase\.rpc\.protection") as caught:
        exchanged("privacy", offer=b"\x03\1\0\0")
    assert caught.value.facts == {
        "offered": ["authentication", "integrity"], "allowed": ["privacy"],
    }  # fmt: skip


@pytest.mark.parametrize("offer", [b"", b"\x01", b"\x01\0\0", b"\x01\0\0\0\0"])
def test_a_malformed_offer_is_not_taken(offer: bytes) -> None:
    with pytest.raises(ValueError, match="malformed"):
        exchanged(*ALL, offer=offer)


def test_a_frame_must_be_encrypted_where_that_was_agreed_on() -> None:
    private, _ = exchanged("privacy", offer=b"\x07\1\0\0")
    assert private.wrap(b"data") == b"Edata"
    assert private.unwrap(bytearray(b"Edata")) == b"data"
    with pytest.raises(ConnectionError, match="not encrypted"):
        private.unwrap(bytearray(b"Sdata"))
    signed, _ = exchanged("integrity", offer=b"\x07\1\0\0")
    assert signed.wrap(b"data") == b"Sdata"
    assert signed.unwrap(bytearray(b"Sdata")) == b"data"
