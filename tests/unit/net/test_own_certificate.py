"""What a certificate of this process says, whether or not others would accept it."""

from __future__ import annotations

import ssl

import pytest

from hqueue.net.contexts import TlsContexts
from hqueue.net.own_certificate import UNFIT, read_certificate, shake_hands
from hqueue.net.refusals import RefusedError
from hqueue.net.tls_files import TlsFiles
from tests.support.certificates import Certificates


def common_name(certificate: object) -> str:
    (name,) = dict(certificate)["subject"][-1]  # type: ignore[call-overload]
    return str(name[1])


@pytest.mark.parametrize(
    "made", [{}, {"days": -1}, {"usage": "clientAuth"}, {"usage": "serverAuth"}]
)
def test_it_is_read_whoever_accepts_it(certificates: Certificates, made: dict[str, object]) -> None:
    path = certificates.make("read", **made)  # type: ignore[arg-type]
    found = read_certificate(str(path), None)
    assert common_name(found) == "read"
    assert ("DNS", "localhost") in found["subjectAltName"]
    assert {"notBefore", "notAfter"} <= found.keys()


def test_one_that_is_for_neither_side_is_refused(certificates: Certificates) -> None:
    path = certificates.make("neither", usage="codeSigning")
    with pytest.raises(RefusedError, match="extendedKeyUsage"):
        read_certificate(str(path), None)


def test_a_key_of_another_certificate_is_refused(certificates: Certificates) -> None:
    one, other = (str(certificates.make(name)) for name in ("one-key", "other-key"))
    with pytest.raises(RefusedError, match="belong together"):
        read_certificate(one, other)


def test_hands_are_shaken_in_memory_and_both_see_the_other(certificates: Certificates) -> None:
    ca = str(certificates.folder / "ca.pem")
    client = TlsContexts(TlsFiles(ca, str(certificates.make("calling")))).current()
    server = TlsContexts(TlsFiles(ca, str(certificates.make("called"))), serves=True).current()
    seen = shake_hands(client, server, "localhost")
    assert [*map(common_name, seen)] == ["called", "calling"]
    with pytest.raises(ssl.SSLCertVerificationError, match="elsewhere"):
        shake_hands(client, server, "elsewhere")
    unfit = str(certificates.make("unfit", usage="clientAuth"))
    with pytest.raises(ssl.SSLCertVerificationError) as caught:
        shake_hands(client, TlsContexts(TlsFiles(ca, unfit), serves=True).current(), "localhost")
    assert caught.value.verify_code == UNFIT
