"""Servers that are called: away, or with a certificate that is not good."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import hqueue
from hqueue.doctor import Finding, Level, Subject
from hqueue.doctor.hubs import check_hubs
from hqueue.doctor.peers import Peers, look_at_peers
from hqueue.net.contexts import TlsContexts
from hqueue.net.endpoints import Met
from hqueue.net.tls_files import TlsFiles
from hqueue.settings.addresses import Address
from tests.support.certificates import Certificates
from tests.support.secured_hubs import SecuredHubs


@contextlib.contextmanager
def served(certificate: Path | None, ca: Path | None = None) -> Iterator[Address]:
    """A server that shakes hands, if it has a certificate, and hangs up."""
    listener = socket.create_server(("127.0.0.1", 0))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if certificate is not None:
        context.load_cert_chain(certificate)
    if ca is not None:
        context.load_verify_locations(ca)
        context.verify_mode = ssl.CERT_REQUIRED

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                accepted, _ = listener.accept()
                with contextlib.suppress(OSError), accepted:
                    if certificate is not None:
                        context.wrap_socket(accepted, server_side=True).close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield Address("127.0.0.1", listener.getsockname()[1])
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


HBASE_REFUSES = b"\0\0\0\x40Expected HEADER=HBas but received HEADER=GET "


@contextlib.contextmanager
def saying(answer: bytes) -> Iterator[Address]:
    """A server that says this to whatever it hears, in clear, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    opened, _ = listener.accept()
                    with opened, contextlib.suppress(OSError):
                        opened.recv(4_096)
                        opened.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield Address("127.0.0.1", listener.getsockname()[1])
        finally:
            listener.shutdown(socket.SHUT_RDWR)


def look(address: Address, ca: Path | None, kind: Met | None = None) -> Finding:
    tls = None if ca is None else TlsContexts(TlsFiles(str(ca)), switch="hbase_tls")
    peers = Peers("hbase", "the server", tls, "hbase_tls", 2, kind)
    [found] = look_at_peers(peers, [address, address])
    return found


def test_in_clear_it_is_enough_that_it_listens() -> None:
    with served(None) as address:
        assert look(address, None).level is Level.OK
    found = look(address, None)
    assert found.level is Level.WRONG
    assert found.found.startswith(f"the server {address} can't be reached")


@pytest.mark.parametrize(
    ("made", "level", "text"),
    [
        ({}, Level.OK, "is valid for"),
        ({"days": -1}, Level.WRONG, "its certificate is not accepted: certificate has expired"),
        ({"authority": "peers"}, Level.WRONG, "its certificate is not accepted: unable to get"),
        ({"names": "DNS:elsewhere"}, Level.WRONG, "its certificate does not name that host"),
    ],
)
def test_what_is_wrong_with_its_certificate_is_named(
    certificates: Certificates, made: dict[str, str], level: Level, text: str
) -> None:
    certificates.authority("peers")
    certificate = certificates.make("peer", **made)  # type: ignore[arg-type]
    with served(certificate) as address:
        found = look(address, certificates.folder / "ca.pem")
    assert found.level is level
    assert text in found.found
    assert bool(found.advice) == (level is not Level.OK)


def test_a_server_in_clear_is_wrong_where_tls_is_wanted(certificates: Certificates) -> None:
    with served(None) as address:
        found = look(address, certificates.folder / "ca.pem")
    assert found.level is Level.WRONG
    assert "hbase_tls" in found.advice
    with saying(HBASE_REFUSES) as address:
        found = look(address, certificates.folder / "ca.pem", Met.HBASE)
    assert "does not speak TLS" in found.found
    assert found.advice == "turn hbase_tls off, or correct the address"


def test_a_server_in_tls_is_wrong_where_this_client_speaks_clear(
    certificates: Certificates,
) -> None:
    with served(certificates.make("peer")) as address:
        found = look(address, None, Met.HBASE)
    assert found.level is Level.WRONG
    assert "speaks TLS, and this client calls it in clear" in found.found
    assert found.advice.startswith("set hbase_tls, and tls_ca")


def test_a_server_of_another_kind_is_wrong() -> None:
    with saying(HBASE_REFUSES) as address:
        assert look(address, None, Met.HBASE).level is Level.OK
        found = look(address, None, Met.ZOOKEEPER)
    assert found.level is Level.WRONG
    assert found.found.endswith("a server of HBase's own protocol answers there")


def test_a_file_of_this_client_is_not_looked_for_in_a_server_s_log(
    certificates: Certificates,
) -> None:
    absent = certificates.folder / "absent.pem"
    tls = TlsContexts(TlsFiles(str(certificates.folder / "ca.pem"), str(absent)))
    with served(None) as address:
        [found] = look_at_peers(Peers("hbase", "the server", tls, "hbase_tls", 5), [address])
    assert f"reason={absent} can't be read" in found.found
    assert "no server was asked" in found.advice


def test_a_hub_that_refuses_the_principal_is_wrong(certificates: Certificates) -> None:
    with contextlib.ExitStack() as stack:
        hub = SecuredHubs(stack, certificates).hub()
        given = certificates.of("caller", subject="/CN=app,root")
        subject = Subject(hqueue.Settings(**given), hubs=(hub.address,))
        found = [*check_hubs(subject)]
    assert found[-1].level is Level.WRONG
    assert "tls_principal_rules" in found[-1].found
    assert "this line names" in found[-1].advice


def test_a_hub_that_hangs_up_is_wrong_and_so_is_one_that_refuses(
    certificates: Certificates,
) -> None:
    ca = certificates.folder / "ca.pem"
    stranger = certificates.authority("strangers")
    given = certificates.of("caller")
    for authority, text in ((ca, "does not answer"), (stranger, "check tls_certificate")):
        with served(certificates.make("hub"), authority) as hub:
            subject = Subject(hqueue.Settings(**given), hubs=(hub,))
            found = [*check_hubs(subject)]
        assert found[-1].level is Level.WRONG
        assert text in found[-1].found
