"""Handshakes: what a server says in SASL's and TLS's, and what strangers say to a port with TLS."""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import shutil
import ssl
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from hypothesis import strategies as st

from hqueue.hbase.native.greeting import greeting
from hqueue.hbase.native.opening import Opened
from hqueue.hbase.native.security import Security
from hqueue.hbase.native.wire import CLIENT, LENGTH
from hqueue.log.ports import Row
from hqueue.net.contexts import TlsContexts
from hqueue.net.digest_md5 import DigestMd5
from hqueue.net.gssapi import Context
from hqueue.net.guard import PortGuard
from hqueue.net.kerberos import Begun, Login
from hqueue.net.layers import Layer, Wrapping
from hqueue.net.principals import PrincipalRules
from hqueue.net.talking import RECEIVED_BYTES, Receive, Send, Talk
from hqueue.net.tls import Tls
from hqueue.net.tls_files import TlsFiles
from hqueue.push.append_notifier import row_of
from hqueue.runtime.steps import Wait, carry_out
from hqueue.settings.addresses import Address
from hqueue.settings.security import AUTHENTICATION, INTEGRITY, PROTECTIONS
from hqueue_workers.delivery.notification_server import BUFFERED_BYTES_MAX, NotificationServer
from tests.support.digest_md5_server import DigestMd5Server
from tests.support.letter_context import LetterContext
from tests.support.notifications import vouches
from tests.support.strangers import Stranger
from tests.support.tls_servers import HERE, make_certificates, server_context
from tests.unit.net.test_tls import Server

from .damage import Damage, damaged, damages
from .ports import ANSWER_S_MAX, FRAME, REAL
from .target import Target

__all__ = ["TARGETS"]

BOUND_S = 5.0
FRAMES = [b"f", b"g" * 70_000, b"h" * 300]
STEPS_MAX = 20
Plan = Mapping[int, list[Damage]]
"""What is done to the pieces with these numbers."""


class _Login:
    """Has tickets for every server."""

    generation = 1

    def begin(self, server: str, *, confidential: bool, ends_s: float) -> Wait:
        begun = Begun(cast(Context, LetterContext()), b"ap-req", 1, True)

        async def begin() -> Begun:
            return begun

        return Wait(lambda: begun, begin)

    def renew(self, generation: int) -> None:
        """Others would be no better."""


def _token(data: bytes) -> bytes:
    return bytes(4) + LENGTH.pack(len(data)) + data


def _said_by_hbase(protection: str) -> list[bytes]:
    """What a server says that lets the client in, and three frames."""
    offer = bytes((1 << PROTECTIONS.index(protection), 1, 0, 0))
    layer = None if protection == "authentication" else Wrapping(_Letter(protection), 1 << 20)
    frames = b"".join(LENGTH.pack(len(frame)) + frame for frame in FRAMES)
    sealed = frames if layer is None else layer.seal(frames)
    return [_token(b"ap-rep"), _token(b"S" + offer), sealed]


class _Letter:
    """Wraps as `LetterContext` does, for a server."""

    def __init__(self, protection: str) -> None:
        self._letter = b"E" if protection == "privacy" else b"S"

    def wrap(self, data: bytes) -> bytes:
        return self._letter + data

    def unwrap(self, token: bytearray) -> bytes:
        return bytes(token[1:])


def _cut(data: bytes, sizes: Sequence[int]) -> Iterator[bytes]:
    """The pieces of these sizes, and then the rest."""
    for size in sizes:
        if data[:size]:
            yield data[:size]
        data = data[size:]
    for at in range(0, len(data), RECEIVED_BYTES):
        yield data[at : at + RECEIVED_BYTES]


def _greet(given: tuple[str, list[Damage], list[Damage], list[int], bool]) -> None:
    """Whatever a server says, wherever it is cut, it is taken for what it is, or refused. What it
    says before its protection has begun is never taken for something that is protected.
    """
    protection, early, late, sizes, ahead = given
    *shaking, sealed = _said_by_hbase(protection)
    shaken = damaged(b"".join(shaking), early, sealed)
    sealed = damaged(sealed, late, shaken)
    coming = deque(_cut(shaken + sealed if ahead else shaken, sizes))
    security = Security(login=cast(Login, _Login()), protections=PROTECTIONS)

    def do(step: Send | Receive) -> object:
        if isinstance(step, Send):
            return None
        if not coming:
            raise ConnectionError("the server closed the connection")
        return coming.popleft()

    frames: list[bytes] = []
    try:
        talk: Talk = carry_out(
            greeting(Address("h", 1), CLIENT, security, time.monotonic() + BOUND_S, set()), do
        )
        opened = Opened(cast(Any, None), talk.layer, talk.unused())
        if not ahead:
            coming.extend(_cut(sealed, sizes))
        _take_frames(opened, frames)
        while coming:
            _take_in(opened, coming.popleft(), frames)
    except (OSError, ValueError):
        assert early or late or ahead
    assert early or late or ahead or frames == FRAMES
    is_wrapped = protection != "authentication"
    assert early or late or frames == FRAMES[: len(frames)] or not is_wrapped


def _take_in(opened: Opened, piece: bytes, frames: list[bytes]) -> None:
    while piece:
        space = opened.frames.space()
        taken = min(len(space), len(piece))
        space[:taken] = piece[:taken]
        opened.frames.add(taken)
        piece = piece[taken:]
        _take_frames(opened, frames)


def _take_frames(opened: Opened, frames: list[bytes]) -> None:
    while (frame := opened.frames.next()) is not None:
        frames.append(bytes(frame))


URI, PASSWORD = "zookeeper/zk-sasl-md5", "mark-of-a-password"


def _digest(given: tuple[str, list[Damage], bytes, list[Damage], list[Damage], list[int]]) -> None:
    """Whatever a server challenges with, only one that knows the password is believed. Whatever it
    sends then, wherever it is cut, only what it has said is taken for it.
    """
    qop, early, made_up, late, later, sizes = given
    server = DigestMd5Server({"app": PASSWORD}, URI, qop=qop)
    client = DigestMd5("app", PASSWORD, URI, protections=(AUTHENTICATION, INTEGRITY))
    right = b""
    try:
        said = made_up or damaged(server.challenge, early, server.challenge)
        response = client.answer(said)
        assert response is not None
        assert PASSWORD.encode() not in response
        right = (server.proof(response) if said == server.challenge else None) or b""
        said = damaged(right or b"rspauth=" + bytes(32).hex().encode(), late, response)
        assert client.answer(said) is None
        assert right, "it believes one that does not know the password"
    except (OSError, ValueError) as exc:
        assert PASSWORD not in str(exc)
        assert early or late or made_up or qop == "auth-conf"
    assert client.protection is None or right
    if client.protection == INTEGRITY:
        _exchange(client, server, later, sizes)


def _exchange(
    client: DigestMd5, server: DigestMd5Server, damages: list[Damage], sizes: Sequence[int]
) -> None:
    """Send frames in both directions, those of the server damaged and cut."""
    for frame in FRAMES:
        assert server.unwrap(client.wrap(frame)) == frame
    layer = Wrapping(client, 1 << 20)
    tokens = [server.wrap(frame) for frame in FRAMES]
    said = b"".join(LENGTH.pack(len(token)) + token for token in tokens)
    heard = b""
    try:
        for piece in _cut(damaged(said, damages, said), sizes):
            layer.feed(memoryview(piece))
            heard += _taken(layer)
    except (OSError, ValueError):
        assert damages
    whole = b"".join(FRAMES)
    assert whole.startswith(heard)
    assert heard == whole or damages


@functools.cache
def _certificates() -> Path:
    """For as long as the process lives."""
    folder = Path(tempfile.mkdtemp(prefix="hqueue-fuzz-"))
    atexit.register(shutil.rmtree, folder)
    return make_certificates(folder)


@functools.cache
def _context(certificate: str | None, version: str) -> ssl.SSLContext:
    """A client's."""
    folder = _certificates()
    shown = None if certificate is None else str(folder / f"{certificate}.pem")
    context = TlsContexts(TlsFiles(str(folder / "ca.pem"), shown)).current()
    context.maximum_version = ssl.TLSVersion[version]
    return context


@functools.cache
def _server_context() -> ssl.SSLContext:
    return server_context(_certificates(), needs_client=True)


SAID = bytes(range(256)) * 200


def _shake(given: tuple[str | None, str, Plan, list[int]]) -> None:
    """Whatever becomes of a server's bytes, a client hears what the server said, or an error."""
    certificate, version, plan, sizes = given
    server = Server(_server_context())
    tls = Tls(_context(certificate, version), HERE, "hbase_tls")
    heard = b""
    try:
        said, is_over = tls.shake()
        for number in range(STEPS_MAX):
            answer = server.take(said)
            if is_over and server.is_over:
                answer += server.say(SAID)
            for piece in _cut(damaged(answer, plan.get(number, ()), answer), sizes):
                tls.feed(memoryview(piece))
                if is_over:
                    heard += _taken(tls)
            if is_over:
                break
            said, is_over = tls.shake()
    except OSError:
        assert plan or certificate != "client"
    assert SAID.startswith(heard)
    assert heard == SAID or plan or certificate != "client"


def _taken(layer: Layer) -> bytes:
    space, found = memoryview(bytearray(4_096)), b""
    while filled := layer.read_into(space):
        found += bytes(space[:filled])
    return found


class _Caller:
    """A caller of a port, by TLS.

    Args:
        stranger: the connection.
        certificate: what it shows, if anything.
        version: the newest version of TLS that it speaks.
    """

    def __init__(self, stranger: Stranger, certificate: str | None, version: str) -> None:
        self._stranger = stranger
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = _context(certificate, version).wrap_bio(
            self._incoming, self._outgoing, server_hostname=HERE
        )

    def notify(self, data: bytes, plan: Plan, sizes: Sequence[int] = ()) -> None:
        """Do the handshake, and send something; this is done to what is sent."""
        is_over = False
        for number in range(STEPS_MAX):
            try:
                if is_over:
                    self._tls.write(data)
                else:
                    self._tls.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                break
            else:
                is_over = True
            said = self._outgoing.read()
            for piece in _cut(damaged(said, plan.get(number, ()), said), sizes):
                self._stranger.send(piece)
            self._incoming.write(self._stranger.receive())
            if (is_over and number) or self._stranger.ended:
                if is_over:
                    with contextlib.suppress(ssl.SSLError):
                        self._tls.write(data)
                    self._stranger.send(self._outgoing.read())
                break


@functools.cache
def _guard() -> PortGuard:
    folder = _certificates()
    files = TlsFiles(str(folder / "ca.pem"), str(folder / "server.pem"))
    return PortGuard("notifications", TlsContexts(files, serves=True), PrincipalRules())


def _call(given: tuple[str | None, str, Plan, list[int], bytes]) -> None:
    """Whatever a stranger says, nothing comes of it but what a good certificate vouches for, and no
    time is lost over it.
    """
    logging.getLogger("hqueue").setLevel(logging.CRITICAL)
    certificate, version, plan, sizes, first = given
    rows: list[Row] = []
    server = NotificationServer(
        [],
        lambda queue, partitions, came: rows.extend(came),
        vouches,
        lambda *, vouched: None,
        guard=_guard(),
    )
    stranger, other = Stranger(server.port), Stranger(server.port)
    began_s = time.monotonic()
    if first:
        stranger.send(first)
    _Caller(stranger, certificate, version).notify(FRAME, plan, sizes)
    assert all(row == row_of(REAL) for row in rows)
    assert certificate == "client" or not rows
    assert rows or plan or first or certificate != "client"
    assert server.port.callers.held_bytes <= BUFFERED_BYTES_MAX
    rows.clear()
    _Caller(other, "client", version).notify(FRAME, {})
    assert rows == [row_of(REAL)]
    assert time.monotonic() - began_s < ANSWER_S_MAX
    for each in (stranger, other):
        each.close()
    server.port.close()


challenges = st.sampled_from(
    [
        b'nonce="n"',
        b"qop=auth",
        b'qop="auth-int,auth"',
        b"algorithm=md5-sess",
        b'realm="\\""',
        b"=",
        b'"',
    ]
) | st.binary(max_size=9)
certificates = st.sampled_from(["client", "client", "stranger", "expired", None])
versions = st.sampled_from(["TLSv1_2", "TLSv1_3"])
plans = st.dictionaries(st.integers(0, 3), damages(2), max_size=2)
cuts = st.lists(st.integers(1, 300), max_size=30) | st.just([1] * 400)

TARGETS: list[Target[Any]] = [
    Target(
        "sasl",
        st.tuples(st.sampled_from(PROTECTIONS), damages(2), damages(2), cuts, st.booleans()),
        _greet,
    ),
    Target(
        "digest-md5",
        st.tuples(
            st.sampled_from(["auth", "auth-int", "auth-int", "auth-conf"]),
            st.just([]) | damages(3),
            st.just(b"") | st.just(b"") | st.lists(challenges).map(b",".join),
            st.just([]) | damages(2),
            damages(2),
            cuts,
        ),
        _digest,
    ),
    Target("tls", st.tuples(certificates, versions, plans, cuts), _shake),
    Target(
        "tls-port",
        st.tuples(
            certificates, versions, plans, cuts, st.just(b"") | st.just(b"") | st.binary(max_size=9)
        ),
        _call,
    ),
]
