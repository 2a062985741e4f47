"""What kazoo's handshake stands on: a socket in TLS, and tickets that a server does not accept."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hqueue import Settings
from hqueue.net.contexts import TlsContexts
from hqueue.net.kerberos import Begun
from hqueue.net.layers import Layer
from hqueue.net.refusals import RefusedError
from hqueue.net.talking import Talk, talk_in_thread
from hqueue.net.tls_files import TlsFiles
from hqueue.runtime.steps import Wait, carry_out
from hqueue.zookeeper.exchange import LENGTH, Exchange, sized
from hqueue.zookeeper.handshake import Handler
from hqueue.zookeeper.proving import SessionSecurity
from tests.support.tls_servers import make_certificates, server_context

QUICK_S = 0.5


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_certificates(tmp_path)


@pytest.fixture
def port(folder: Path) -> Iterator[int]:
    """Where a server in TLS sends two answers in one record."""
    listener = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def serve() -> None:
        with contextlib.suppress(OSError):
            opened, _ = listener.accept()
            with server_context(folder).wrap_socket(opened, server_side=True) as client:
                client.sendall(b"oneTWO")
                over.wait(10)

    thread = threading.Thread(target=serve)
    thread.start()
    yield int(listener.getsockname()[1])
    over.set()
    with contextlib.suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def test_the_rest_of_a_record_is_read_at_once(folder: Path, port: int) -> None:
    handler = Handler(TlsContexts(TlsFiles(ca=str(folder / "ca.pem"))))
    opened = handler.create_connection(("127.0.0.1", port), hostname="localhost", timeout=5.0)
    quiet, other = socket.socketpair()
    with opened, quiet, other:
        for part in (b"one", b"TWO"):
            assert handler.select([opened, quiet], [], [], QUICK_S * 10)[0] == [opened]
            assert opened.recv(3) == part
        assert handler.select([opened, quiet], [], [], 0.01)[0] == []
        other.send(b"!")
        assert handler.select([opened, quiet], [], [], QUICK_S * 10)[0] == [quiet]


@pytest.mark.parametrize("hostname", ["elsewhere.example"])
def test_a_server_that_is_not_trusted_leaves_no_socket_behind(
    folder: Path, port: int, hostname: str
) -> None:
    handler = Handler(TlsContexts(TlsFiles(ca=str(folder / "ca.pem"))))
    with pytest.raises(ssl.SSLCertVerificationError):
        handler.create_connection(("127.0.0.1", port), hostname=hostname, timeout=5.0)


class Context:
    """A context of Kerberos that is never complete."""

    complete = False

    def step(self, token: bytes) -> bytes:
        raise AssertionError("the server accepted nothing")


class Login:
    """Has tickets of a cache first, and then new ones."""

    def __init__(self) -> None:
        self.generation = 1

    def begin(self, server: str, *, confidential: bool, ends_s: float) -> Wait:
        assert server == "zookeeper/host"
        context: Any = Context()
        begun = Begun(context, b"ap-req", self.generation, self.generation > 1)
        return Wait(lambda: begun, lambda: None)  # type: ignore[arg-type, return-value]

    def renew(self, generation: int) -> None:
        self.generation = generation + 1


class Refusing(Layer):
    """A server that refuses each token."""

    def __init__(self) -> None:
        self._answer = b""

    def seal(self, data: bytes | memoryview) -> bytes:
        (xid,) = LENGTH.unpack(bytes(data[4:8]))
        body = LENGTH.pack(xid) + bytes(8) + LENGTH.pack(-115)
        self._answer = sized(body)
        return b""

    def feed(self, received: memoryview) -> None: ...

    def read_into(self, space: memoryview) -> int:
        taken = len(self._answer)
        space[:taken], self._answer = self._answer, b""
        return taken


def test_a_ticket_of_before_is_renewed_once_and_a_new_one_that_is_refused_is_the_end() -> None:
    security = SessionSecurity(Settings(zookeeper_authentication="kerberos"))
    security._login = Login()  # type: ignore[assignment]
    errors: list[OSError] = []
    for _ in range(2):
        talk = Talk()
        talk.add(Refusing())
        proof = carry_out(security.begin("HOST", 0.0), lambda step: step)
        one, other = socket.socketpair()
        with one, other, pytest.raises(OSError) as caught:  # noqa: PT011
            talk_in_thread(proof.give(Exchange(talk)), one, 1e12)
        errors.append(caught.value)
    assert type(errors[0]) is ConnectionError
    assert type(errors[1]) is RefusedError
    assert "did not accept this client's ticket" in str(errors[1])
