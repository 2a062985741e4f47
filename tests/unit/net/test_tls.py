"""TLS's layer, against OpenSSL's in memory: what passes, and what is refused and why."""

from __future__ import annotations

import contextlib
import random
import ssl
from pathlib import Path

import pytest

from hqueue.net.contexts import TlsContexts
from hqueue.net.refusals import RefusedError
from hqueue.net.tls import Tls
from hqueue.net.tls_files import TlsFiles
from tests.support.tls_servers import HERE, server_context

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


class Server:
    """The other side, without a socket."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self.is_over = False
        self.failure: ssl.SSLError | None = None

    def take(self, data: bytes) -> bytes:
        """What it says to this."""
        self._incoming.write(data)
        try:
            if not self.is_over and self.failure is None:
                self.tls.do_handshake()
                self.is_over = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as exc:
            self.failure = exc
        return self._outgoing.read()

    def hear(self) -> bytes:
        """What came of data."""
        heard = bytearray()
        with contextlib.suppress(ssl.SSLWantReadError):
            while True:
                heard += self.tls.read(1 << 16)
        return bytes(heard)

    def close(self) -> bytes:
        """What it says in the end."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.unwrap()
        return self._outgoing.read()

    def say(self, data: bytes) -> bytes:
        while data:
            data = data[self.tls.write(data) :]
        return self._outgoing.read()


def files(tls_folder: Path, client: str | None = None, ca: str = "ca") -> TlsFiles:
    shown = None if client is None else str(tls_folder / f"{client}.pem")
    return TlsFiles(str(tls_folder / f"{ca}.pem"), shown)


def shake(tls: Tls, server: Server, chance: random.Random | None = None) -> bytes:
    """The handshake, cut anywhere; what the server said in the end."""
    while True:
        said, is_over = tls.shake()
        answer = server.take(said)
        if is_over:
            return answer
        assert answer, "neither side says anything"
        while answer:
            cut = len(answer) if chance is None else chance.randint(1, len(answer))
            tls.feed(memoryview(answer[:cut]))
            answer = answer[cut:]
            if answer:
                said, is_over = tls.shake()
                assert not said
                assert not is_over


def read(tls: Tls) -> bytes:
    space, found = memoryview(bytearray(1_000)), bytearray()
    while filled := tls.read_into(space):
        found += space[:filled]
    return bytes(found)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seed", range(3))
def test_data_passes_in_both_versions_wherever_it_is_cut(
    tls_folder: Path, version: ssl.TLSVersion, seed: int
) -> None:
    chance = random.Random(seed)
    server = Server(server_context(tls_folder, needs_client=True, version=version))
    tls = Tls(TlsContexts(files(tls_folder, "client")).current(), HERE, "hbase_tls")
    tls.feed(memoryview(shake(tls, server, chance)))
    assert (tls.version or "").replace(".", "_") == version.name
    ours, theirs = chance.randbytes(50_000), chance.randbytes(50_000)
    server.take(tls.seal(ours))
    assert (
        b"".join(iter(lambda: server.tls.read(1 << 16) if server.tls.pending() else b"", b""))
        in ours
    )
    said, found = server.say(theirs), b""
    while said:
        cut = chance.randint(1, 20_000)
        tls.feed(memoryview(said[:cut]))
        said, found = said[cut:], found + read(tls)
    assert found == theirs


@pytest.mark.parametrize(
    ("ca", "certificate", "reason"),
    [
        ("other", "server", "certificate"),
        ("ca", "stranger", "unable to get local issuer certificate"),
        ("ca", "elsewhere", "IP address mismatch"),
        ("ca", "expired", "certificate has expired"),
    ],
)
def test_a_server_with_a_wrong_certificate_is_refused(
    tls_folder: Path, ca: str, certificate: str, reason: str
) -> None:
    server = Server(server_context(tls_folder, certificate))
    with pytest.raises(RefusedError, match="compare its authority with tls_ca") as caught:
        shake(Tls(TlsContexts(files(tls_folder, ca=ca)).current(), HERE, "hbase_tls"), server)
    assert reason in str(caught.value.facts["reason"])


def test_a_name_that_is_not_verified_may_be_another(tls_folder: Path) -> None:
    client = TlsContexts(files(tls_folder), verify_hostname=False)
    shake(Tls(client.current(), HERE, "hbase_tls"), Server(server_context(tls_folder, "elsewhere")))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("client", [None, "stranger", "expired"])
def test_a_refused_client_learns_it_before_it_has_heard_anything(
    tls_folder: Path, version: ssl.TLSVersion, client: str | None
) -> None:
    server = Server(server_context(tls_folder, needs_client=True, version=version))
    tls = Tls(TlsContexts(files(tls_folder, client)).current(), HERE, "hbase_tls")

    def connect() -> None:
        tls.feed(memoryview(shake(tls, server)))  # TLS 1.3 is over for the client now.
        read(tls)

    with pytest.raises(RefusedError, match="tls_certificate"):
        connect()
    assert server.failure is not None


def test_what_is_not_tls_is_refused(tls_folder: Path) -> None:
    tls = Tls(TlsContexts(files(tls_folder)).current(), HERE, "hbase_tls")
    tls.shake()
    tls.feed(memoryview(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    with pytest.raises(RefusedError, match="does not speak TLS"):
        tls.shake()


def test_no_version_in_common_is_a_refusal(tls_folder: Path) -> None:
    context = server_context(tls_folder, version=ssl.TLSVersion.TLSv1_2)
    client = TlsContexts(files(tls_folder))
    client.current().minimum_version = ssl.TLSVersion.TLSv1_3
    with pytest.raises(RefusedError, match="share no version or cipher of TLS"):
        shake(Tls(client.current(), HERE, "hbase_tls"), Server(context))


def test_a_server_that_closes_or_changes_bytes_ends_the_connection(tls_folder: Path) -> None:
    server = Server(server_context(tls_folder))
    tls = Tls(TlsContexts(files(tls_folder)).current(), HERE, "hbase_tls")
    tls.feed(memoryview(shake(tls, server)))
    said = server.say(b"before")
    tls.feed(memoryview(said + server.close()))
    space = memoryview(bytearray(100))
    assert bytes(space[: tls.read_into(space)]) == b"before"
    with pytest.raises(ConnectionError, match="closed"):
        tls.read_into(space)

    other = Tls(TlsContexts(files(tls_folder)).current(), HERE, "hbase_tls")
    server = Server(server_context(tls_folder))
    other.feed(memoryview(shake(other, server)))
    changed = bytearray(server.say(b"data"))
    changed[-1] ^= 1
    other.feed(memoryview(changed))
    with pytest.raises(OSError, match=r"(?i)bad.record.mac|decryption.failed"):
        read(other)
