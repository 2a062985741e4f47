"""Gateways by TLS, and by HTTP: all that passes, and what is refused."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import hqueue
from hqueue import Message, Outcome, Settings
from hqueue.errors import AuthenticationError
from hqueue.hbase.thrift.connection import Service
from hqueue.hbase.thrift.gateways import Gateways
from hqueue.net.refusals import RefusedError
from hqueue.rpc.http_transport import HttpTransport
from tests.support.gateway_front import front
from tests.support.memory.cluster import MemoryCluster
from tests.support.memory.gateway import GatewayPair
from tests.support.tls_servers import make_certificates, server_context
from tests.support.waiting import wait_for

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.fixture(scope="module")
def tls_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def of_tls(folder: Path, client: str | None = "client", ca: str = "ca") -> dict[str, Any]:
    shown = {} if client is None else {"tls_certificate": str(folder / f"{client}.pem")}
    return {"gateways_tls": True, "tls_ca": str(folder / f"{ca}.pem"), **shown}


@contextlib.contextmanager
def served(
    transport: str, context: ssl.SSLContext | None, **given: Any
) -> Iterator[tuple[Settings, list[Any]]]:
    """Settings of clients of gateways behind something, and that."""
    cluster = MemoryCluster()
    inner = "framed" if transport == "http" else transport
    with (
        contextlib.closing(GatewayPair(cluster, inner)) as pair,
        front(pair, context, http=transport == "http") as (address, fronts),
    ):
        yield pair.settings(gateways=(address,), transport=transport, **given), fronts


@pytest.mark.parametrize("transport", ["buffered", "framed", "http"])
@pytest.mark.parametrize("version", [None, *VERSIONS])
def test_messages_of_any_size_pass(
    tls_folder: Path, transport: str, version: ssl.TLSVersion | None
) -> None:
    context = version and server_context(tls_folder, needs_client=True, version=version)
    given = {} if version is None else of_tls(tls_folder)
    with served(transport, context, **given) as (settings, _), hqueue.connect(settings) as client:
        queue = client.create_queue("q", partitions=2)
        values = [bytes([number]) * size for number, size in enumerate((0, 1, 40_000, 2_000_000))]
        for value in values:
            queue.put(Message("t", value), partition=0)
        assert [message.value for message in queue.scan()] == values
        large = [bytes([number]) * 1_000_000 for number in range(8)]
        for value in large:
            queue.put(Message("large", value), partition=1)
        assert [message.value for message in queue.scan(topics=["large"])] == large


@pytest.mark.parametrize("transport", ["buffered", "http"])
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [3, 3_000_000])
@pytest.mark.parametrize("client", [None, "stranger"])
def test_a_request_of_a_client_whose_certificate_is_refused_is_not_applied(
    tls_folder: Path, transport: str, version: ssl.TLSVersion, size: int, client: str | None
) -> None:
    context = server_context(tls_folder, needs_client=True, version=version)
    with served(transport, context, **of_tls(tls_folder, client)) as (settings, fronts):
        with (
            contextlib.closing(Gateways(settings)) as gateways,
            pytest.raises(AuthenticationError, match="tls_certificate") as caught,
        ):
            gateways.call(Service.THRIFT1, "getRow", "q", b"q", b"r" * size, {})
        assert caught.value.outcome is Outcome.NOT_APPLIED
        assert not any(each.calls for each in fronts)


def test_what_can_not_be_trusted_or_does_not_speak_tls_is_refused(tls_folder: Path) -> None:
    context = server_context(tls_folder)
    for text, spoken, given in (
        ("compare its authority with tls_ca", context, of_tls(tls_folder, ca="other")),
        ("does not speak TLS here: check the port, and gateways_tls", None, of_tls(tls_folder)),
        ("tls_ca can't be used", context, of_tls(tls_folder, ca="nowhere")),
    ):
        with (
            served("http", spoken, **given) as (settings, _),
            hqueue.connect(settings) as client,
            pytest.raises(AuthenticationError, match=text),
        ):
            client.create_queue("q", partitions=1)


def has_ended(server: Any, times: int) -> bool:
    return bool(server.ended >= times)


def test_a_connection_that_the_gateway_ended_while_it_was_idle_is_not_used(
    tls_folder: Path,
) -> None:
    context = server_context(tls_folder)
    with (
        served("http", context, **of_tls(tls_folder)) as (settings, fronts),
        contextlib.closing(Gateways(settings)) as gateways,
    ):
        for number in range(3):
            gateways.call(Service.THRIFT2, "getClusterId", "")
            wait_for(partial(has_ended, fronts[1], number + 1), "the connection ends")


def test_an_answer_whose_end_was_not_read_yet_leaves_the_connection_usable(
    tls_folder: Path,
) -> None:
    context = server_context(tls_folder)
    with (
        served("http", context, **of_tls(tls_folder)) as (settings, fronts),
        contextlib.closing(Gateways(settings)) as gateways,
    ):
        for _ in range(20):
            gateways.call(Service.THRIFT2, "getClusterId", "")
        assert (fronts[1].calls, fronts[1].begun) == (20, 1)


class Cut:
    """A socket that says this, so many bytes at a time."""

    def __init__(self, said: bytes, cut: int) -> None:
        self._said, self._cut = said, cut
        self.written = bytearray()

    def read(self, size: int) -> bytes:
        if not self._said:
            raise ConnectionError("the server closed the connection")
        now, self._said = self._said[: self._cut], self._said[self._cut :]
        return now

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        """Nothing."""


WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: y\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n"
    b"3;a=b\r\nhel\r\n2\r\nlo\r\n0\r\nTrailer: 1\r\n\r\n"
)
EMPTY = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.parametrize("cut", [1, 2, 3, 7, 1_000])
def test_answers_are_found_wherever_they_are_cut(cut: int) -> None:
    sock = Cut(WHOLE + CHUNKED + EMPTY + CHUNKED + WHOLE, cut)
    transport = HttpTransport(sock, "gateway:9090")  # type: ignore[arg-type]
    for _ in range(4):
        transport.write(b"ask")
        transport.flush()
        assert transport.read(0) == b""
        assert transport.read(1) + transport.read(4) == b"hello"
    head, _, body = bytes(sock.written).partition(b"\r\n\r\n")
    assert head.startswith(b"POST / HTTP/1.1\r\nHost: gateway:9090\r\n")
    assert head.endswith(b"Content-Length: 3")
    assert body.startswith(b"askPOST")


@pytest.mark.parametrize(
    "said",
    [
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 1_000,
        b"x" * 100_000,
        *(WHOLE[:end] for end in range(len(WHOLE))),
        *(CHUNKED[: len(CHUNKED) - left] for left in range(26, len(CHUNKED))),
    ],
)
def test_what_is_no_good_response_is_an_error_of_the_connection(said: bytes) -> None:
    transport = HttpTransport(Cut(said, 1_000), "h:1")  # type: ignore[arg-type]
    with pytest.raises(ConnectionError):
        transport.read(5)


@pytest.mark.parametrize("status", [b"401 Unauthorized", b"403 Forbidden"])
def test_a_gateway_that_asks_for_a_proof_refuses(status: bytes) -> None:
    transport = HttpTransport(Cut(b"HTTP/1.1 %b\r\n\r\n" % status, 9), "h:1")  # type: ignore[arg-type]
    with pytest.raises(RefusedError, match=r"hbase\.thrift\.security\.qop"):
        transport.read(1)
