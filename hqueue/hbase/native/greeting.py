"""Greets a server before the first request: preamble, SASL's handshake, connection header; in TLS,
or in clear. Work without I/O.

What the client sends of the handshake is a length (4 bytes, big-endian, 0 allowed) and a token of
SASL's: of GSSAPI for Kerberos, of DIGEST-MD5 for a delegation token, whose first one is empty. What
the server sends is a status (4 bytes): 0 for a length and a token; 1 for an error, the name of its
class and its text, each with a length, after which it closes. A server that asks for no proof
answers status 0 and the length -88, and goes on in clear.

With Kerberos the client's last token has no answer if it is good. If it is not, the server's error
comes in the place of the first answer to a request. No frame is as short as 1 byte, so the status
of the error is no length.

A server that may have one of several principals is asked first: it answers ``Securi`` with a frame
that has its principal, and the preamble follows. Older servers refuse the question.
"""

from __future__ import annotations

import base64
import ssl
import struct
from collections.abc import Callable, Sequence
from functools import partial

from google.protobuf.message import DecodeError

from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.security import Security
from hqueue.hbase.native.wire import (
    FRAME_BYTES_MAX,
    LENGTH,
    SAID_BYTES_MAX,
    WHO_IS_THERE,
    RemoteError,
    connection_header,
    preamble,
    read_answer,
)
from hqueue.hbase.native.wire import KERBEROS as BY_KERBEROS
from hqueue.hbase.native.wire import TOKEN as BY_TOKEN
from hqueue.net.digest_md5 import DigestMd5
from hqueue.net.framing import Beginning
from hqueue.net.kerberos import Begun, Login
from hqueue.net.layers import Wrapping
from hqueue.net.refusals import RefusedError
from hqueue.net.sasl import Gssapi
from hqueue.net.talking import Talk, Talking
from hqueue.net.tls import Tls
from hqueue.net.tokens import DelegationToken
from hqueue.runtime.interrupts import is_interruption
from hqueue.runtime.loop import blocking
from hqueue.settings.addresses import Address
from hqueue.settings.security import PRIVACY

__all__ = ["SPEAKS_TLS", "greeting"]

SPEAKS_TLS = "if it speaks TLS (hbase.server.netty.tls.enabled), set hbase_tls"
"""The advice where a server closed the connection before it said anything in clear."""

_STATUS = struct.Struct(">ii")
_SIZE = struct.Struct(">i")
_FALLS_BACK = -88
LATE_BYTES_MAX = 16 * 1024
"""Each of both words of an error that comes in the place of an answer."""

_DIGEST_URI, _DIGEST_REALM = "null/default", "default"
"""HBase's servers accept no others."""


def greeting(
    server: Address,
    service: str,
    security: Security,
    ends_s: float,
    unaware: set[Address],
) -> Talking[Talk]:
    """Open a connection to a server's service.

    Args:
        server: the server's own address.
        service: the service's name.
        security: how it is secured.
        ends_s: when it is given up, by `time.monotonic`.
        unaware: the servers that don't say who they are; more may be found to belong there.

    Returns:
        The talk, with the layer that requests go through.

    Raises:
        RefusedError: client and server don't accept each other.
        OSError: there was no usable answer.
        ValueError: what came is malformed.
    """
    talk = Talk()
    if security.tls is not None:
        context: ssl.SSLContext = yield blocking(security.tls.current)
        yield from talk.start_tls(Tls(context, server.host, security.tls.switch))
    try:
        yield from _greet(talk, server, service, security=security, ends_s=ends_s, unaware=unaware)
    except ConnectionError as exc:
        if security.tls is not None or talk.has_heard or is_interruption(exc):
            raise
        raise ConnectionError(f"{exc}: {SPEAKS_TLS}") from exc
    return talk


def _greet(
    talk: Talk,
    server: Address,
    service: str,
    *,
    security: Security,
    ends_s: float,
    unaware: set[Address],
) -> Talking[None]:
    """Say who calls, and which service, once TLS is spoken if it has to be."""
    is_proven = False
    if security.login is not None:
        principals = security.principals(server, service)
        principal = principals[0]
        if len(principals) > 1 and server not in unaware:
            principal = yield from _ask_principal(talk, principals, partial(unaware.add, server))
        is_proven = yield from _prove(talk, security, security.login, principal, ends_s)
    elif security.tokens is not None:
        is_proven = yield from _prove_by_token(talk, security)
    else:
        talk.say(preamble())
    talk.say(connection_header(service, named=not is_proven))
    try:
        yield from talk.flush()
    except ConnectionError as exc:
        if talk.beginning is not None and not is_interruption(exc):
            talk.beginning(talk.unused())
        raise


def _ask_principal(
    talk: Talk, principals: Sequence[str], cannot_say: Callable[[], None]
) -> Talking[str]:
    """Ask the server which of these principals it has; the first one counts if it names another. It
    proves its principal afterwards.

    Raises:
        ConnectionError: the server does not know the question, and closes the connection.
    """
    talk.say(WHO_IS_THERE)
    (size,) = LENGTH.unpack((yield from talk.hear(LENGTH.size)))
    if not 0 < size <= SAID_BYTES_MAX:
        raise ValueError("the server does not say who it is")
    frame: bytes = yield from talk.hear(size)
    _, said = read_answer(bytearray(frame))
    if isinstance(said, RemoteError):
        if said.kind == "SecurityNotEnabledException":
            return principals[0]  # It says so again when the client proves itself.
        cannot_say()
        raise ConnectionError(f"the server does not say who it is: {said.kind}")
    try:
        name = pb.SecurityPreamableResponse.FromString(said.message).server_principal
    except DecodeError as exc:
        raise ValueError("the server does not say who it is") from exc
    for each in principals:
        if name == each or name.startswith(f"{each}@"):  # Of the default realm.
            return each
    # A server of HBase 2.6 may name the system's user, who it was before it had its tickets.
    return principals[0]


def _prove(
    talk: Talk, security: Security, login: Login, principal: str, ends_s: float
) -> Talking[bool]:
    """Prove who this client is by Kerberos, or without a ticket by a token; False if the server
    asks for no proof, and that will do.
    """
    confidential = PRIVACY in security.protections
    try:
        begun: Begun = yield login.begin(principal, confidential=confidential, ends_s=ends_s)
    except RefusedError:
        if security.tokens is None or not (yield blocking(security.tokens.all)):
            raise
        return (yield from _prove_by_token(talk, security))
    mechanism = Gssapi(begun.context, security.protections)
    beginning = partial(_look_at_beginning, principal)
    try:
        return (
            yield from _exchange(
                talk, security, BY_KERBEROS, mechanism, first=begun.token, beginning=beginning
            )
        )
    except _NotAcceptedError as exc:
        login.renew(begun.generation)
        if begun.is_fresh:
            raise exc.refusal(principal) from exc
        raise


def _prove_by_token(talk: Talk, security: Security) -> Talking[bool]:
    """Like `_prove`, by a delegation token."""
    token: DelegationToken = yield from security.token()
    identifier, password = (
        base64.b64encode(each).decode() for each in (token.identifier, token.password)
    )
    mechanism = DigestMd5(
        identifier,
        password,
        _DIGEST_URI,
        realm=_DIGEST_REALM,
        protections=[each for each in security.protections if each != PRIVACY],
    )
    try:
        return (yield from _exchange(talk, security, BY_TOKEN, mechanism, first=b""))
    except _NotAcceptedError as exc:
        raise RefusedError(
            f"the server did not accept this client's delegation token: {_token_advice(exc)}",
            answer=exc.answer,
            token=repr(token),
        ) from exc


def _token_advice(error: _NotAcceptedError) -> str:
    if not error.answer.startswith("SecretManager$InvalidToken"):
        return (
            "it is another cluster's, or it was changed: compare its service with the cluster's ID "
            "(the node hbaseid in ZooKeeper), and get one from this cluster"
        )
    if "expired" in error.answer:
        return "it has expired: get another one before this one's end"
    return "HBase can't read it, or doesn't know its key any more: get another one"


def _exchange(
    talk: Talk,
    security: Security,
    code: int,
    mechanism: Gssapi | DigestMd5,
    *,
    first: bytes,
    beginning: Beginning | None = None,
) -> Talking[bool]:
    """Say by what this client proves itself, and do so; False if the server asks for no proof, and
    that will do.

    Raises:
        _NotAcceptedError: the server does not accept the client.
    """
    talk.say(preamble(code))
    token: bytes | None = first
    while token is not None:
        talk.say(LENGTH.pack(len(token)) + token)
        if mechanism.protection is not None:
            break  # The server says nothing more if that is good.
        challenge = yield from _challenge(talk)
        if challenge is None:
            if security.falls_back:
                return False
            raise RefusedError(
                "the server asks for no proof of identity, so it may be an impostor: "
                "check hbase.security.authentication of the server; "
                "hbase_fallback_to_simple=True lets the client go on without security"
            )
        token = mechanism.answer(challenge)
    if mechanism.wraps:
        yield from talk.flush()
        talk.add(Wrapping(mechanism, FRAME_BYTES_MAX, beginning))
    else:
        talk.beginning = beginning
    return True


def _look_at_beginning(principal: str, heard: bytes) -> bool:
    """Check that a server's first words are not an error: a `Beginning`.

    Raises:
        RefusedError: it did not accept the client's last token.
        ValueError: what it says is malformed.
    """
    if len(heard) < LENGTH.size or heard[: LENGTH.size] != LENGTH.pack(1):
        return len(heard) >= LENGTH.size
    words, left = [], heard[LENGTH.size :]
    for _ in range(2):
        if len(left) < _SIZE.size:
            return False
        (size,) = _SIZE.unpack_from(left)
        if not 0 <= size <= LATE_BYTES_MAX:
            raise ValueError("the server's error is malformed")
        left = left[_SIZE.size :]
        if len(left) < size:
            return False
        words.append(left[:size].decode(errors="replace"))
        left = left[size:]
    raise _NotAcceptedError(*words).refusal(principal)


def _challenge(talk: Talk) -> Talking[bytes | None]:
    """Read what the server says next; None if it asks for no proof.

    Raises:
        _NotAcceptedError: it does not accept the client.
        ValueError: it speaks no SASL.
    """
    status, size = _STATUS.unpack((yield from talk.hear(_STATUS.size)))
    if status == 0 and size == _FALLS_BACK:
        return None
    if status not in (0, 1) or not 0 <= size <= SAID_BYTES_MAX:
        raise ValueError("the server's part of the handshake is malformed")
    said: bytes = yield from talk.hear(size)
    if status == 0:
        return said
    (size,) = _SIZE.unpack((yield from talk.hear(_SIZE.size)))
    if not 0 <= size <= SAID_BYTES_MAX:
        raise ValueError("the server's part of the handshake is malformed")
    text: bytes = yield from talk.hear(size)
    raise _NotAcceptedError(said.decode(errors="replace"), text.decode(errors="replace"))


class _NotAcceptedError(ConnectionError):
    """The server does not accept the client. With another ticket or token it may."""

    def __init__(self, name: str, text: str) -> None:
        self.answer = f"{name.rpartition('.')[2]}: {text}"
        super().__init__(f"the server did not accept this client: {self.answer}")

    def refusal(self, principal: str) -> RefusedError:
        """Make the error for a client that can get no other tickets."""
        return RefusedError(
            "the server did not accept this client's ticket: compare hbase_principal with the "
            "principal and the keytab that the server runs with, and see the server's log, which "
            "says more",
            answer=self.answer,
            server_principal=principal,
        )
