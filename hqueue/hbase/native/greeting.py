"""What is said before the first request: preamble, SASL's handshake, connection header; in TLS, or
in clear. Work without I/O.

What the client sends of the handshake is a length (4 bytes, big-endian, 0 allowed) and a token.
What the server sends is a status (4 bytes): 0 for a length and a token; 1 for an error, the name of
its class and its text, each with a length, after which it closes. A server that asks for no proof
answers status 0 and the length -88, and goes on in clear.

The client's last token has no answer if it is good. If it is not, the server's error comes in the
place of the first answer to a request. No frame is as short as 1 byte, so the status of the error
is no length.

Who may have one of several principals is asked first: ``Securi`` has a frame for an answer, with
the principal, and the preamble follows. Older servers refuse it.
"""

from __future__ import annotations

import ssl
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from google.protobuf.message import DecodeError

from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.wire import (
    CLIENT,
    FRAME_BYTES_MAX,
    LENGTH,
    MASTER,
    WHO_IS_THERE,
    RemoteError,
    connection_header,
    preamble,
    read_answer,
)
from hqueue.hbase.native.wire import KERBEROS as BY_KERBEROS
from hqueue.net.contexts import TlsContexts
from hqueue.net.kerberos import Begun, Login
from hqueue.net.layers import Wrapping
from hqueue.net.refusals import RefusedError
from hqueue.net.sasl import Gssapi
from hqueue.net.security import client_contexts
from hqueue.net.talking import Talk, Talking
from hqueue.net.tls import Tls
from hqueue.runtime.interrupts import is_interruption
from hqueue.runtime.loop import blocking
from hqueue.settings.addresses import Address
from hqueue.settings.connection import Settings
from hqueue.settings.security import KERBEROS, PRIVACY

__all__ = ["OPEN", "Security", "greeting"]

_STATUS = struct.Struct(">ii")
_SIZE = struct.Struct(">i")
_FALLS_BACK = -88
TOKEN_BYTES_MAX = 1024 * 1024
LATE_BYTES_MAX = 16 * 1024
"""Each of both words of an error that comes in the place of an answer."""


class Security(NamedTuple):
    """How connections to HBase are secured."""

    tls: TlsContexts | None = None
    login: Login | None = None
    """Who this client is; None where it does not prove it."""
    protections: Sequence[str] = ()
    """The layers that are good enough, the best one first."""
    regionserver: str = ""
    """The region servers' principal, with ``_HOST``."""
    master: str = ""
    """The masters'."""
    falls_back: bool = False
    """Whether a server will do that asks for no proof."""

    @classmethod
    def of(cls, settings: Settings) -> Security:
        """As the settings say."""
        tls = login = None
        if settings.hbase_tls:
            tls = client_contexts(settings, "hbase_tls")
        if settings.hbase_authentication == KERBEROS:
            login = Login(
                settings.kerberos_principal,
                settings.kerberos_keytab,
                settings.kerberos_ticket_cache,
                settings.kerberos_config,
            )
        return cls(
            tls,
            login,
            settings.hbase_protection,
            settings.hbase_principal,
            settings.hbase_master_principal or settings.hbase_principal,
            settings.hbase_fallback_to_simple,
        )

    def principals(self, server: Address, service: str) -> list[str]:
        """The principals that a server with a service may have: masters and region servers alike
        say where the cluster's servers are.
        """
        roles = {CLIENT: [self.regionserver], MASTER: [self.master]}
        named = roles.get(service, [self.master, self.regionserver])
        return [*dict.fromkeys(each.replace("_HOST", server.host.lower()) for each in named)]


OPEN = Security()
"""Nobody proves anything, and nothing is hidden."""


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
    is_proven = False
    if security.login is None:
        talk.say(preamble())
    else:
        principals = security.principals(server, service)
        principal = principals[0]
        if len(principals) > 1 and server not in unaware:
            principal = yield from _ask_principal(talk, principals, partial(unaware.add, server))
        is_proven = yield from _prove(talk, security, security.login, principal, ends_s)
    talk.say(connection_header(service, named=not is_proven))
    try:
        yield from talk.flush()
    except ConnectionError as exc:
        if talk.beginning is not None and not is_interruption(exc):
            talk.beginning(talk.unused())
        raise
    return talk


def _ask_principal(
    talk: Talk, principals: Sequence[str], cannot_say: Callable[[], None]
) -> Talking[str]:
    """Which one of these principals the server has, as it says: the first one if it says another
    thing. It proves afterwards that it has it.

    Raises:
        ConnectionError: it closes the connection, for it does not know the question.
    """
    talk.say(WHO_IS_THERE)
    (size,) = LENGTH.unpack((yield from talk.hear(LENGTH.size)))
    if not 0 < size <= TOKEN_BYTES_MAX:
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
    """Prove who this client is; False if the server asks for no proof, and that will do."""
    confidential = PRIVACY in security.protections
    begun: Begun = yield login.begin(principal, confidential=confidential, ends_s=ends_s)
    mechanism = Gssapi(begun.context, security.protections)
    talk.say(preamble(BY_KERBEROS))
    token = begun.token
    while True:
        talk.say(LENGTH.pack(len(token)) + token)
        if mechanism.protection is not None:
            break  # The server says nothing more if that is good.
        try:
            challenge = yield from _challenge(talk)
        except _NotAcceptedError as exc:
            login.renew(begun.generation)
            if begun.is_fresh:
                raise exc.refusal(principal) from exc
            raise
        if challenge is None:
            if security.falls_back:
                return False
            raise RefusedError(
                "the server asks for no proof of identity, so it may be another than it seems: "
                "check hbase.security.authentication of the server; "
                "hbase_fallback_to_simple=True lets the client go on without security"
            )
        token = mechanism.answer(challenge)
    beginning = partial(_look_at_beginning, principal)
    if mechanism.wraps:
        yield from talk.flush()
        talk.add(Wrapping(mechanism, FRAME_BYTES_MAX, beginning))
    else:
        talk.beginning = beginning
    return True


def _look_at_beginning(principal: str, heard: bytes) -> bool:
    """Whether a server's first words are no error: a `Beginning`.

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
    """What the server says next; None if it asks for no proof.

    Raises:
        _NotAcceptedError: it does not accept the client.
        ValueError: it speaks no SASL.
    """
    status, size = _STATUS.unpack((yield from talk.hear(_STATUS.size)))
    if status == 0 and size == _FALLS_BACK:
        return None
    if status not in (0, 1) or not 0 <= size <= TOKEN_BYTES_MAX:
        raise ValueError("the server's part of the handshake is malformed")
    said: bytes = yield from talk.hear(size)
    if status == 0:
        return said
    (size,) = _SIZE.unpack((yield from talk.hear(_SIZE.size)))
    if not 0 <= size <= TOKEN_BYTES_MAX:
        raise ValueError("the server's part of the handshake is malformed")
    text: bytes = yield from talk.hear(size)
    raise _NotAcceptedError(said.decode(errors="replace"), text.decode(errors="replace"))


class _NotAcceptedError(ConnectionError):
    """The server does not accept the client. With other tickets it may."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name.rpartition(".")[2]
        self.said = text
        super().__init__(f"the server did not accept this client: {self.name}: {text}")

    def refusal(self, principal: str) -> RefusedError:
        """The error where no other tickets can be had."""
        return RefusedError(
            "the server did not accept this client's ticket: compare hbase_principal with the "
            "principal and the keytab that the server runs with, and see the server's log, which "
            "says more",
            answer=f"{self.name}: {self.said}",
            server_principal=principal,
        )
