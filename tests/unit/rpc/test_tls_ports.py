"""A port that demands certificates: who gets in, who does not, and that no caller waits for
strangers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import hqueue
from hqueue import NotAllowedError, SettingsError
from hqueue.net.contexts import TlsContexts
from hqueue.net.guard import PortGuard
from hqueue.net.open_ports import say_open
from hqueue.net.plaintext_servers import PlaintextServers
from hqueue.net.principals import ANONYMOUS, PrincipalRules
from hqueue.net.refusals import RefusedError
from hqueue.net.security import PortSecurity
from hqueue.net.tls_files import TlsFiles
from hqueue.rpc.async_connection import AsyncConnection
from hqueue.rpc.connection import Connection
from hqueue.rpc.messages import RefusedCallError
from hqueue.rpc.server import ThriftServer, calling_principal
from hqueue.rpc.services import load
from hqueue.settings.addresses import Address
from tests.support.certificates import Certificates
from tests.support.looped import LoopThread
from tests.support.thrift_calls import field, head
from tests.support.waiting import wait_for

IDL = load("hub")
SERVICE = IDL.HQueueHubService
BOUND_S = 10.0
MUCH = 3_000_000
SEED = b"\x16\x03\x01"
LARGE = 200_000
CALL = b"\x80\x01\x00\x01\x00\x00\x00\x0aapiAddress\x00\x00\x00\x01\x00"
PROMISED_HELLO = SEED + (26).to_bytes(2, "big") + b"\1\1\xf0\0\3\3" + bytes(20)
"""The first bytes of a hello that will be long."""


class Hub:
    """Answers `apiAddress` with its caller, and `unsubscribe` with nothing, however large it is."""

    def __init__(self) -> None:
        self.calls = 0
        self.got: list[Any] = []

    def apiAddress(self) -> str:  # noqa: N802  (the IDL's)
        self.calls += 1
        return str(calling_principal()) + "x" * (MUCH if calling_principal() == "much" else 0)

    def unsubscribe(self, *given: Any) -> None:
        self.got.append(given)


class Served:
    """A server that demands certificates.

    Args:
        certificates: makes them.
        in_loop: whether an event loop answers, and not threads.
        options: of the server.
    """

    def __init__(self, certificates: Certificates, *, in_loop: bool, **options: Any) -> None:
        self.certificates = certificates
        self.hub = Hub()
        rules, allowed = PrincipalRules(), options.pop("allowed", ("*",))
        files = options.pop("files", None) or self.files("server")
        contexts = TlsContexts(files, serves=True)
        optional = options.pop("optional", False)
        self.guard = PortGuard("hub", contexts, rules, allowed, "api_principals", optional=optional)
        listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address("127.0.0.1", listener.getsockname()[1])
        chosen = {"threads": 4, "connections_max": 64, "idle_ms_max": 10_000, **options}
        self.server = ThriftServer(
            SERVICE,
            self.hub,
            listener,
            in_loop=in_loop,
            call_bytes_max=2 * MUCH,
            guard=self.guard,
            **chosen,
        )
        self._thread = LoopThread() if in_loop else None
        if self._thread is None:
            self.server.start()
        else:
            self._thread.run(_started(self.server))

    def files(self, name: str, **made: Any) -> TlsFiles:
        """A certificate's files."""
        found = self.certificates.of(name, **made)
        return TlsFiles(found["tls_ca"], found["tls_certificate"])

    def call(self, name: str = "loader", **made: Any) -> str:
        """Ask who calls, by a connection of its own."""
        return _asked(self.address, TlsContexts(self.files(name, **made)))

    def connect(self) -> socket.socket:
        """A stranger's connection."""
        return socket.create_connection(self.address, BOUND_S)

    def close(self) -> None:
        if self._thread is None:
            self.server.close(1_000)
        else:
            self._thread.run(_closed(self.server))
            self._thread.close()


async def _started(server: ThriftServer) -> None:
    server.start()


async def _closed(server: ThriftServer) -> None:
    server.close(0)


def _asked(address: Address, tls: TlsContexts | None) -> str:
    opened = Connection(SERVICE, address.host, address.port, BOUND_S, tls=tls)
    with contextlib.closing(opened) as connection:
        connection.socket.settimeout(BOUND_S)
        return bytes(connection.client.apiAddress()).decode()


def _asked_in_loop(address: Address, tls: TlsContexts) -> str:
    async def ask() -> str:
        connection = AsyncConnection(address, 2 * MUCH, tls=tls, connect_timeout_s=BOUND_S)
        with contextlib.closing(connection):
            answer = await connection.call_method(SERVICE, "apiAddress", timeout_s=BOUND_S)
            return bytes(answer).decode()

    return asyncio.run(ask())


class Plain:
    """A server without TLS."""

    def __init__(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address("127.0.0.1", listener.getsockname()[1])
        self.server = ThriftServer(
            SERVICE,
            Hub(),
            listener,
            threads=2,
            connections_max=64,
            idle_ms_max=10_000,
            call_bytes_max=2 * MUCH,
        )
        self.server.start()

    def close(self) -> None:
        self.server.close(1_000)


Serve = Callable[..., Served]
Ask = Callable[[Address, TlsContexts], str]
both_clients = pytest.mark.parametrize("ask", [_asked, _asked_in_loop])


@pytest.fixture(params=[False, True], ids=["threads", "loop"])
def serve(request: pytest.FixtureRequest, certificates: Certificates) -> Iterator[Serve]:
    with contextlib.ExitStack() as stack:

        def start(**options: Any) -> Served:
            served = Served(certificates, in_loop=request.param, **options)
            stack.callback(served.close)
            return served

        yield start


@both_clients
def test_a_caller_is_who_its_certificate_says(serve: Serve, ask: Ask) -> None:
    served = serve()
    for name in ("loader", "reader"):
        assert ask(served.address, TlsContexts(served.files(name))) == name
    assert not served.guard.refused


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize(
    ("made", "reason"),
    [
        ({"name": "forged", "authority": "others"}, "UNKNOWN_CA"),
        ({"name": "expired", "days": -1}, "EXPIRED"),
        ({"name": None}, "HANDSHAKE_FAILURE|CERTIFICATE_REQUIRED"),
    ],
)
@both_clients
def test_without_a_good_certificate_nothing_is_done_and_the_client_learns_why(
    serve: Serve, ask: Ask, made: dict[str, Any], reason: str, version: ssl.TLSVersion
) -> None:
    served, made = serve(), dict(made)
    served.certificates.authority("others")
    name = made.pop("name")
    files = served.files(name, **made) if name else TlsFiles(served.files("server").ca)
    tls = TlsContexts(files)
    tls.current().maximum_version = version
    with pytest.raises(RefusedError) as caught:
        ask(served.address, tls)
    assert any(each in str(caught.value.facts["reason"]) for each in reason.split("|"))
    assert served.hub.calls == 0
    wait_for(lambda: served.guard.refused == {"handshake": 1}, "it is counted")
    assert served.call() == "loader"


@both_clients
def test_a_client_does_not_believe_a_server_of_another_name_or_authority(
    serve: Serve, ask: Ask
) -> None:
    served = serve()
    other = served.certificates.authority("strange")
    with pytest.raises(RefusedError, match=r"certificate was not accepted.*tls_ca"):
        ask(served.address, TlsContexts(TlsFiles(str(other), served.files("loader").certificate)))
    named_else = serve(files=served.files("elsewhere", names="DNS:elsewhere"))
    with pytest.raises(RefusedError, match="names with the host"):
        ask(named_else.address, TlsContexts(served.files("loader")))
    unverified = TlsContexts(served.files("loader"), verify_hostname=False)
    assert ask(named_else.address, unverified) == "loader"
    assert served.hub.calls == 0


@both_clients
def test_a_principal_without_the_right_is_told_so_and_does_nothing(
    serve: Serve, ask: Ask, caplog: pytest.LogCaptureFixture
) -> None:
    served = serve(allowed=("loader-*", "ops"))
    with caplog.at_level(logging.INFO, "hqueue.audit"):
        with pytest.raises(RefusedCallError.__base__) as caught:
            ask(served.address, TlsContexts(served.files("reader")))
        assert "may not call the port: see api_principals" in str(caught.value)
        assert ask(served.address, TlsContexts(served.files("loader-7"))) == "loader-7"
    assert served.hub.calls == 1
    assert served.guard.refused == {"principal": 1}
    (line,) = (each.getMessage() for each in caplog.records if each.name == "hqueue.audit")
    assert line.startswith('who="reader" from="127.0.0.1" action="connect" port="hub" allowed="no"')


@pytest.mark.parametrize("size", [1, MUCH])
def test_a_client_in_clear_learns_that_tls_is_spoken(serve: Serve, size: int) -> None:
    """However long its call is."""
    served = serve()

    async def ask_in_loop() -> None:
        with contextlib.closing(AsyncConnection(served.address, MUCH)) as connection:
            given = (b"q" * size, b"s", b"t", True)
            await connection.call_method(SERVICE, "unsubscribe", *given, timeout_s=BOUND_S)

    def ask() -> None:
        with contextlib.closing(Connection(SERVICE, *served.address, BOUND_S)) as connection:
            connection.socket.settimeout(BOUND_S)
            connection.bulk_client.unsubscribe(b"q" * size, b"s", b"t", True)

    for either in (ask, lambda: asyncio.run(ask_in_loop())):
        with pytest.raises(RefusedError, match="the server speaks TLS here, and this client"):
            either()
    assert not served.hub.got
    wait_for(lambda: served.guard.refused == {"handshake": 2}, "they are counted")


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x80\x01\x00\x01\x00\x00\x00\x0aapiAddress\x00\x00\x00\x01\x00",
        bytes(range(256)) * 64,
        SEED + b"\x00\xff" + bytes(255),
    ],
)
def test_what_is_no_handshake_ends_the_connection_and_is_counted(serve: Serve, said: bytes) -> None:
    served = serve()
    with served.connect() as stranger:
        stranger.sendall(said)
        stranger.settimeout(BOUND_S)
        while stranger.recv(1024):
            pass
    wait_for(lambda: served.guard.refused == {"handshake": 1}, "it is counted")
    assert served.hub.calls == 0
    assert served.call() == "loader"


def test_one_that_looks_whether_anything_listens_is_not_counted(serve: Serve) -> None:
    served = serve()
    served.connect().close()
    assert served.call() == "loader"
    assert not served.guard.refused


def test_half_a_handshake_ends_in_time_while_others_are_served(serve: Serve) -> None:
    served = serve(idle_ms_max=300)
    strangers = [served.connect() for _ in range(20)]
    hello = _hello()
    for number, stranger in enumerate(strangers):
        stranger.sendall(hello[: (number % 5) * len(hello) // 5])
    began_s = time.monotonic()
    assert served.call() == "loader"
    assert time.monotonic() - began_s < 2, "no caller waits for a stranger"
    for stranger in strangers:
        with stranger:
            stranger.settimeout(BOUND_S)
            with contextlib.suppress(ConnectionError):
                assert stranger.recv(1) == b""
    wait_for(lambda: served.guard.refused["handshake"] == len(strangers), "they are counted")


def test_hellos_that_promise_much_count_as_much(serve: Serve) -> None:
    served = serve(held_bytes_max=1 << 20)
    with contextlib.ExitStack() as stack:
        strangers = [stack.enter_context(served.connect()) for _ in range(30)]
        for stranger in strangers:
            stranger.setblocking(False)
            stranger.sendall(PROMISED_HELLO)
        wait_for(lambda: len(list(filter(_is_open, strangers))) < 10, "the oldest ones go")
        assert served.call() == "loader"
        assert served.server.usage.held_bytes <= 1 << 20
        assert any(map(_is_open, strangers))


def _is_open(sock: socket.socket) -> bool:
    try:
        return bool(sock.recv(1))
    except BlockingIOError:
        return True
    except OSError:
        return False


def test_strangers_get_no_place_that_callers_have(serve: Serve) -> None:
    served = serve(connections_max=8)
    tls = TlsContexts(served.files("loader"))
    caller = Connection(SERVICE, *served.address, BOUND_S, tls=tls)
    with contextlib.closing(caller), contextlib.ExitStack() as strangers:
        for _ in range(3):
            for _ in range(20):
                strangers.enter_context(served.connect())
            caller.socket.settimeout(BOUND_S)
            assert caller.client.apiAddress() == b"loader"


@both_clients
def test_large_answers_and_calls_pass_as_they_are(serve: Serve, ask: Ask) -> None:
    served = serve()
    assert ask(served.address, TlsContexts(served.files("much"))) == "much" + "x" * MUCH
    opened = Connection(SERVICE, *served.address, BOUND_S, tls=TlsContexts(served.files("loader")))
    with contextlib.closing(opened) as connection:
        for client in (connection.client, connection.bulk_client):
            connection.socket.settimeout(BOUND_S)
            client.unsubscribe(b"q" * MUCH, b"s", b"t", True)
    assert [len(got[0]) for got in served.hub.got] == [MUCH] * 2


@pytest.mark.parametrize("attack", ["without a right", "with a right", "strangers"])
def test_nobody_ends_the_begun_call_of_another_by_beginning_many(serve: Serve, attack: str) -> None:
    """The port has room for ten of these calls. The first ones to begin are not the first to go."""
    served = serve(allowed=("loader", "greedy"), held_bytes_max=10 * LARGE)
    name = {"without a right": "reader", "with a right": "greedy", "strangers": None}[attack]
    context = TlsContexts(served.files(name) if name else TlsFiles(None)).current()
    call = _unsubscribe(3 * LARGE)
    with contextlib.ExitStack() as stack:
        honest = stack.enter_context(_connected(served, "loader"))
        honest.sendall(call[:-1])
        wait_for(lambda: served.server.usage.held_bytes > 2 * LARGE, "the honest call has begun")
        attackers = []
        for _ in range(30):
            attacker = stack.enter_context(served.connect())
            if name is None:
                attacker.sendall(PROMISED_HELLO)
            else:
                attacker = stack.enter_context(
                    context.wrap_socket(attacker, server_hostname="127.0.0.1")
                )
                attacker.sendall(_unsubscribe(LARGE)[:-1])
            attacker.setblocking(False)
            attackers.append(attacker)
        wait_for(lambda: len(list(filter(_is_open, attackers))) < 15, "the oldest of these go")
        assert served.server.usage.held_bytes <= 10 * LARGE
        honest.sendall(call[-1:])
        assert honest.recv(1024), "it is answered"
    assert [len(got[0]) for got in served.hub.got] == [3 * LARGE]


def _connected(served: Served, name: str) -> ssl.SSLSocket:
    context = TlsContexts(served.files(name)).current()
    return context.wrap_socket(served.connect(), server_hostname="127.0.0.1")


def _unsubscribe(size: int) -> bytes:
    """A call with a name of this many bytes."""
    texts = (b"q" * size, b"s", b"t")
    fields = [field(11, number, struct.pack(">i", len(text)) + text)
              for number, text in enumerate(texts, 1)]  # fmt: skip
    return head(b"unsubscribe") + b"".join(fields) + field(2, 4, b"\1") + b"\0"


def test_an_answer_that_is_read_slowly_arrives_whole_and_holds_up_nobody(serve: Serve) -> None:
    served = serve()
    context = TlsContexts(served.files("much")).current()
    with served.connect() as plain:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as slow:
            slow.sendall(CALL)
            time.sleep(0.2)  # Until it stands still, mostly: either is right.
            assert served.call() == "loader"
            got = b""
            while len(got) < MUCH:
                got += slow.recv(65_536)
    assert got.count(b"x") >= MUCH


def test_a_call_that_comes_byte_by_byte_is_answered(serve: Serve) -> None:
    served = serve()
    context = TlsContexts(served.files("loader")).current()
    with (
        served.connect() as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as caller,
    ):
        for byte in CALL * 3:
            caller.sendall(bytes((byte,)))
        got = b""
        while got.count(b"loader") < 3:
            got += caller.recv(1024)


def test_a_changed_authority_shuts_out_those_it_did_not_sign(
    serve: Serve, certificates: Certificates
) -> None:
    changing = certificates.folder / "changing.pem"
    changing.write_text((certificates.folder / "ca.pem").read_text())
    shown = certificates.of("server")["tls_certificate"]
    served = serve(files=TlsFiles(str(changing), shown))
    assert served.call() == "loader"
    changing.write_text(certificates.authority("successor").read_text())
    with pytest.raises(RefusedError, match="did not accept this client"):
        served.call()
    successor = served.files("of-successor", authority="successor")
    assert _asked(served.address, TlsContexts(successor)) == "of-successor"


@both_clients
def test_a_server_that_goes_on_with_no_handshake_is_given_up_in_time(
    certificates: Certificates, ask: Ask
) -> None:
    found = certificates.of("loader")
    tls = TlsContexts(TlsFiles(found["tls_ca"], found["tls_certificate"]))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = Address("127.0.0.1", silent.getsockname()[1])
        began_s = time.monotonic()
        with pytest.raises(OSError, match=r"timed out|too long"):
            (_open if ask is _asked else _open_in_loop)(address, tls)
        assert time.monotonic() - began_s < BOUND_S / 2


def _open(address: Address, tls: TlsContexts) -> None:
    Connection(SERVICE, *address, 0.2, tls=tls)


def _open_in_loop(address: Address, tls: TlsContexts) -> None:
    async def open_it() -> None:
        await AsyncConnection(address, 100, tls=tls).open(0.2)

    asyncio.run(open_it())


@both_clients
def test_a_server_without_tls_is_told_from_one_that_refuses(
    certificates: Certificates, ask: Ask
) -> None:
    found = certificates.of("loader")
    tls = TlsContexts(TlsFiles(found["tls_ca"], found["tls_certificate"]))
    with socket.create_server(("127.0.0.1", 0)) as plain:

        def answer() -> None:
            opened, _ = plain.accept()
            with opened:
                opened.recv(1024)
                opened.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(RefusedError, match="does not speak TLS here: check the port, and tls"):
            ask(Address("127.0.0.1", plain.getsockname()[1]), tls)
        thread.join()


def test_a_handshake_that_is_cancelled_leaves_no_socket(certificates: Certificates) -> None:
    found = certificates.of("loader")
    tls = TlsContexts(TlsFiles(found["tls_ca"], found["tls_certificate"]))

    async def cancel(address: Address) -> None:
        opening = asyncio.ensure_future(AsyncConnection(address, 100, tls=tls).open(BOUND_S))
        await asyncio.sleep(0.05)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening

    with socket.create_server(("127.0.0.1", 0)) as silent:
        asyncio.run(cancel(Address("127.0.0.1", silent.getsockname()[1])))
        accepted, _ = silent.accept()
        with accepted:
            accepted.settimeout(BOUND_S)
            while accepted.recv(4096):  # It ends: its other side was closed.
                pass


@both_clients
def test_where_tls_is_optional_a_caller_proves_who_it_is_or_is_anonymous(
    serve: Serve, ask: Ask
) -> None:
    served = serve(optional=True)
    assert ask(served.address, TlsContexts(served.files("loader"))) == "loader"
    assert served.guard.plaintext == 0
    assert _asked(served.address, None) == ANONYMOUS
    assert served.guard.plaintext == 1
    assert not served.guard.refused


def test_where_tls_is_optional_a_list_of_principals_may_leave_out_those_without(
    serve: Serve,
) -> None:
    served = serve(optional=True, allowed=("loader",))
    with pytest.raises(RefusedCallError.__base__, match="may not call the port"):
        _asked(served.address, None)
    assert served.call() == "loader"
    assert served.hub.calls == 1


def test_where_tls_is_optional_a_caller_says_in_time_whether_it_speaks_it(serve: Serve) -> None:
    served = serve(optional=True, idle_ms_max=300)
    with served.connect() as silent, served.connect() as slow:
        slow.sendall(CALL[:1])
        for caller in (silent, slow):
            caller.settimeout(BOUND_S)
            with contextlib.suppress(ConnectionError):
                assert caller.recv(1) == b""
    wait_for(lambda: served.guard.refused == {"handshake": 1}, "the silent one is counted")
    served.connect().close()
    wait_for(lambda: _is_served(served), "others are served")


def test_where_tls_is_optional_calls_in_clear_come_in_pieces_and_large(serve: Serve) -> None:
    served = serve(optional=True)
    with served.connect() as caller:
        for byte in CALL * 2:
            caller.sendall(bytes((byte,)))
        got = b""
        while got.count(ANONYMOUS.encode()) < 2:
            got += caller.recv(1024)
        caller.sendall(_unsubscribe(MUCH))
        assert caller.recv(1024)
    assert [len(each[0]) for each in served.hub.got] == [MUCH]


@pytest.mark.parametrize("said", [SEED, SEED + b"\x00\xff" + bytes(255), bytes(range(256)) * 64])
def test_where_tls_is_optional_what_is_neither_ends_the_connection(
    serve: Serve, said: bytes
) -> None:
    served = serve(optional=True, idle_ms_max=300)
    with served.connect() as stranger:
        stranger.sendall(said)
        stranger.settimeout(BOUND_S)
        with contextlib.suppress(ConnectionError):
            while stranger.recv(1024):
                pass
    assert served.hub.calls == 0
    wait_for(lambda: _is_served(served), "others are served")


def _is_served(served: Served) -> bool:
    """Whether a call is answered: a busy machine may take too long for a handshake."""
    try:
        return served.call() == "loader"
    except OSError:
        return False


@both_clients
def test_a_client_for_which_tls_is_optional_calls_servers_of_both_kinds(
    certificates: Certificates, serve: Serve, ask: Ask, caplog: pytest.LogCaptureFixture
) -> None:
    """It remembers which one is which, and the server without TLS logs who tried."""
    caplog.set_level(logging.INFO)
    found = certificates.of("loader")
    files = TlsFiles(found["tls_ca"], found["tls_certificate"])
    client = TlsContexts(files, plaintext=PlaintextServers())
    assert client.plaintext is not None
    served, plain = serve(), Plain()
    with contextlib.closing(plain):
        for _ in range(2):
            assert ask(served.address, client) == "loader"
            assert ask(plain.address, client) == "None"
        assert plain.server.usage.held_bytes == 0
        (line,) = [each for each in caplog.records if "speaks TLS" in each.getMessage()]
        assert line.levelno == logging.INFO
        assert "this port does not: with tls_optional it calls again" in line.getMessage()
        assert not [each for each in caplog.records if each.levelno > logging.INFO]
        assert client.plaintext.has(*plain.address)
        assert not client.plaintext.has(*served.address)
        with pytest.raises(OSError, match=r"closed|reset|EOF|TLS"):
            ask(plain.address, TlsContexts(files))


@both_clients
def test_a_client_for_which_tls_is_optional_calls_no_server_in_clear_that_is_another(
    certificates: Certificates, serve: Serve, ask: Ask
) -> None:
    served = serve()
    other = served.certificates.authority("strange")
    for files in (
        TlsFiles(str(other), served.files("loader").certificate),
        served.files("forged", authority="strange"),
        served.files("expired", days=-1),
    ):
        client = TlsContexts(files, plaintext=PlaintextServers())
        with pytest.raises(RefusedError, match="accept"):
            ask(served.address, client)
    assert served.hub.calls == 0


def test_messages_are_taken_of_nobody_while_it_isnt_said_who_delivers_them(
    certificates: Certificates,
) -> None:
    security = PortSecurity(hqueue.Settings(**certificates.of("billing")))
    with pytest.raises(SettingsError, match="name them in delivery_principals"):
        security.delivery_guard()
    named = hqueue.Settings(**certificates.of("billing"), delivery_principals="hub, worker-*")
    guard = PortSecurity(named).delivery_guard()
    assert guard.right_missing("hub") is guard.right_missing("worker-1") is None
    assert isinstance(guard.right_missing("loader"), NotAllowedError)


def _hello() -> bytes:
    """What a client says first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    said = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), said).do_handshake()
    return said.read()


def test_an_open_port_is_named_once_in_a_process_and_a_local_one_never(
    caplog: pytest.LogCaptureFixture,
) -> None:
    said: list[str] = []
    with caplog.at_level(logging.WARNING):
        for host in ("127.0.0.1", "::1", "0.0.0.0", "0.0.0.0"):
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            with socket.create_server((host, 0), family=family) as listener:
                say_open("the hub's port", [listener], said)
    (line,) = [each.getMessage() for each in caplog.records]
    assert line.startswith("open: the hub's port listens at 0.0.0.0 port ")
    assert "turn tls on, or let it listen on loopback" in line


def test_the_selector_reports_what_is_left_of_records(certificates: Certificates) -> None:
    """What many calls that came together hold is answered, though nothing more comes."""
    served = Served(certificates, in_loop=True)
    context = TlsContexts(served.files("loader")).current()
    with (
        contextlib.closing(served),
        served.connect() as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as caller,
    ):
        caller.sendall(CALL * 5_000)
        got = 0
        while got < 5_000:
            assert select.select([caller], [], [], BOUND_S)[0] or caller.pending()
            got += caller.recv(65_536).count(b"loader")
