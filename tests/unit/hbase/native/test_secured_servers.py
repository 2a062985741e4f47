"""Requests through TLS, and connections that servers refuse: by both transports."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hqueue import Outcome, Settings, StoreUnavailableError
from hqueue.errors import AuthenticationError
from hqueue.hbase.native.exchanges import Request
from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.security import OPEN, Security
from hqueue.hbase.native.wire import LENGTH, WHOLE_CONNECTION, varint
from hqueue.net.contexts import TlsContexts
from hqueue.net.kerberos import Login as KerberosLogin
from hqueue.net.tls_files import TlsFiles
from hqueue.settings.addresses import Address
from tests.support.keytabs import keytab
from tests.support.looped import BlockingServers, LoopedServers
from tests.support.scripted_server import Asked, ScriptedServer, answer
from tests.support.tls_servers import HERE, make_certificates, server_context
from tests.unit.hbase.native.test_greeting import LATE, Login, good, security

Transport = BlockingServers | LoopedServers
Open = Callable[[Security], Transport]
MUCH = 3_000_000
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.fixture(scope="module")
def tls_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(params=["blocking", "asyncio"])
def transport(request: pytest.FixtureRequest) -> Iterator[Open]:
    with contextlib.ExitStack() as stack:

        def begin(security: Security) -> Transport:
            if request.param == "blocking":
                return stack.enter_context(
                    contextlib.closing(BlockingServers(Settings(), security))
                )
            looped = LoopedServers(Settings(), security)
            stack.callback(looped.end)
            return looped

        yield begin


def tls(tls_folder: Path, client: str | None = "client") -> Security:
    shown = None if client is None else str(tls_folder / f"{client}.pem")
    return Security(tls=TlsContexts(TlsFiles(str(tls_folder / "ca.pem"), shown)))


@contextlib.contextmanager
def serving(
    script: Callable[[Asked], Iterable[bytes]], context: ssl.SSLContext | None = None
) -> Iterator[ScriptedServer]:
    with contextlib.closing(ScriptedServer(script, context)) as server:
        yield server


def echo(asked: Asked) -> list[bytes]:
    return [answer(asked, pb.NameBytesPair(name="echo", value=asked.message), asked.cells)]


def ask(servers: Transport, server: ScriptedServer, message: bytes, cells: bytes = b"") -> bytes:
    request = Request(server.address, b"Mutate", message, [cells] if cells else (), len(cells))
    said = servers.ask(request, "q", 30_000)
    assert bytes(said.cells) == cells
    return bytes(pb.NameBytesPair.FromString(said.message).value)


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_and_answers_of_any_size_pass(
    tls_folder: Path, transport: Open, version: ssl.TLSVersion
) -> None:
    context = server_context(tls_folder, needs_client=True, version=version)
    with serving(echo, context) as server:
        servers = transport(tls(tls_folder))
        for size in (0, 1, 20_000, MUCH):
            assert ask(servers, server, b"m" * size, b"c" * size) == b"m" * size
        requests = [Request(server.address, b"Get", b"%d" % n) for n in range(500)]
        said = servers.ask_all(requests, "q", 30_000)
        values = [pb.NameBytesPair.FromString(each.message).value for each in said]  # type: ignore[union-attr]
        assert values == [b"%d" % n for n in range(500)]
        assert len(server.services) == 1
        server.break_connections()
        with contextlib.suppress(StoreUnavailableError):
            ask(servers, server, b"perhaps")
        assert ask(servers, server, b"again") == b"again"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("client", [None, "stranger"])
@pytest.mark.parametrize("size", [3, MUCH])
def test_a_put_of_a_client_whose_certificate_is_refused_is_not_applied(
    tls_folder: Path, transport: Open, version: ssl.TLSVersion, client: str | None, size: int
) -> None:
    context = server_context(tls_folder, needs_client=True, version=version)
    with serving(echo, context) as server:
        with pytest.raises(AuthenticationError, match="tls_certificate") as caught:
            ask(transport(tls(tls_folder, client)), server, b"p" * size)
        assert caught.value.outcome is Outcome.NOT_APPLIED
        assert not server.services


def test_a_server_that_does_not_speak_tls_is_refused(tls_folder: Path, transport: Open) -> None:
    with socket.create_server((HERE, 0)) as listener, ThreadPoolExecutor(1) as pool:
        said = pool.submit(lambda: listener.accept()[0].sendall(bytes(100)))
        request = Request(Address(HERE, listener.getsockname()[1]), b"Mutate", b"put")
        with pytest.raises(AuthenticationError, match="does not speak TLS"):
            transport(tls(tls_folder)).ask(request, "q", 30_000)
        said.result()


@pytest.mark.parametrize("by_kerberos", [False, True])
def test_a_server_that_hangs_up_at_a_greeting_in_clear_may_speak_tls(
    transport: Open, by_kerberos: bool
) -> None:
    """As one does that speaks TLS, and can't read the greeting."""

    def hang_up() -> None:
        opened, _ = listener.accept()
        with opened:
            opened.recv(MUCH)
            opened.shutdown(socket.SHUT_WR)
            while opened.recv(MUCH):
                pass

    with socket.create_server((HERE, 0)) as listener, ThreadPoolExecutor(1) as pool:
        said = pool.submit(hang_up)
        request = Request(Address(HERE, listener.getsockname()[1]), b"Get", b"get")
        used = security(Login(), ["authentication"]) if by_kerberos else OPEN
        with pytest.raises(StoreUnavailableError) as caught:
            transport(used).ask(request, "q", 30_000)
        said.result()
    assert "closed the connection: if it speaks TLS" in str(caught.value.facts["reason"])
    assert "set hbase_tls" in str(caught.value)


def of_connection(name: str) -> bytes:
    error = pb.ExceptionResponse(
        exception_class_name=f"org.apache.{name}", stack_trace=f"{name}: because\n at …"
    )
    header = pb.ResponseHeader(call_id=WHOLE_CONNECTION, exception=error).SerializeToString()
    body = varint(len(header)) + header
    return LENGTH.pack(len(body)) + body


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("AccessDeniedException", "hbase_authentication='kerberos'"),
        ("BadAuthException", "hbase.security.authentication"),
        ("WrongVersionException", "another version of HBase's RPC"),
    ],
)
def test_a_connection_that_is_refused_applies_nothing(
    transport: Open, name: str, text: str
) -> None:
    with serving(lambda asked: [of_connection(name)]) as server:
        servers = transport(OPEN)
        with pytest.raises(AuthenticationError, match=text) as caught:
            ask(servers, server, b"put")
        assert caught.value.outcome is Outcome.NOT_APPLIED
        assert caught.value.facts["answer"] == f"{name}: {name}: because"


def test_a_connection_that_was_accepted_and_ends_leaves_the_outcome_unknown(
    transport: Open,
) -> None:
    def script(asked: Asked) -> list[bytes]:
        return (
            echo(asked) if asked.message == b"first" else [of_connection("AccessDeniedException")]
        )

    with serving(script) as server:
        servers = transport(OPEN)
        ask(servers, server, b"first")
        with pytest.raises(StoreUnavailableError) as caught:
            ask(servers, server, b"second")
        assert caught.value.outcome is Outcome.UNKNOWN
        assert "AccessDeniedException: because" in str(caught.value.facts["reason"])


@contextlib.contextmanager
def refusing_late() -> Iterator[Address]:
    """A server that speaks SASL, and refuses the client's last token when it has a request."""

    def serve() -> None:
        opened, _ = listener.accept()
        with opened, opened.makefile("rb") as incoming:
            incoming.read(6)
            for said in (good(b"ap-rep"), good(b"S\x07\x01\0\0")):
                incoming.read(LENGTH.unpack(incoming.read(LENGTH.size))[0])
                opened.sendall(said)
            for _ in ("token", "header", "request"):
                incoming.read(LENGTH.unpack(incoming.read(LENGTH.size))[0])
            opened.sendall(LATE)

    with socket.create_server((HERE, 0)) as listener, ThreadPoolExecutor(1) as pool:
        served = pool.submit(serve)
        yield Address(HERE, listener.getsockname()[1])
        served.result()


@pytest.mark.parametrize("protection", ["authentication", "integrity", "privacy"])
def test_a_put_is_not_applied_whose_server_refuses_the_last_token(
    transport: Open, protection: str
) -> None:
    with refusing_late() as address:
        servers = transport(security(Login(), [protection]))
        with pytest.raises(AuthenticationError, match="see the server's log") as caught:
            servers.ask(Request(address, b"Mutate", b"put"), "q", 30_000)
    assert caught.value.outcome is Outcome.NOT_APPLIED
    assert caught.value.facts["answer"] == "SaslException: Problem with callback handler"


def test_a_silent_kdc_holds_a_request_up_no_longer_than_an_opening_may_take(
    transport: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "keytab").write_bytes(keytab("user@TEST"))
    with socket.create_server((HERE, 0)) as kdc, serving(echo) as server:
        config = tmp_path / "krb5.conf"
        config.write_text(
            "[libdefaults]\n default_realm = TEST\n udp_preference_limit = 1\n"
            f"[realms]\n TEST = {{\n  kdc = {HERE}:{kdc.getsockname()[1]}\n }}\n"
        )
        monkeypatch.setenv("KRB5_CONFIG", str(config))
        login = KerberosLogin("user@TEST", str(tmp_path / "keytab"))
        servers = transport(Security(None, login, None, ("authentication",), "hbase/here@TEST"))
        begun_s = time.monotonic()
        with pytest.raises(StoreUnavailableError, match="can't be reached") as caught:
            servers.ask(Request(server.address, b"Mutate", b"put"), "q", 30_000)
        assert time.monotonic() - begun_s < 2 * Settings().connect_timeout_ms / 1e3
    assert caught.value.outcome is Outcome.NOT_APPLIED


def test_an_unknown_end_of_a_connection_may_pass(transport: Open) -> None:
    with serving(lambda asked: [of_connection("FatalConnectionException")]) as server:
        with pytest.raises(StoreUnavailableError) as caught:
            ask(transport(OPEN), server, b"put")
        assert caught.value.outcome is Outcome.UNKNOWN
