"""What is said before the first request: preamble, SASL's handshake, connection header; in TLS, or
in clear. Work without I/O.

What the client sends of the handshake is a length (4 bytes, big-endian, 0 allowed) and a token.
What the server sends is a status (4 bytes): 0 for a length and a token; 1 for an error, the name of
its class and its text, each with a length, after which it closes. A server that asks for no proof
answers status 0 and the length -88, and goes on in clear.
"""

from __future__ import annotations

import ssl
import struct
from collections.abc import Sequence
from typing import NamedTuple

from hqueue.hbase.native.wire import (
    CLIENT,
    FRAME_BYTES_MAX,
    LENGTH,
    connection_header,
    preamble,
)
from hqueue.hbase.native.wire import KERBEROS as BY_KERBEROS
from hqueue.net.contexts import TlsContexts, TlsFiles
from hqueue.net.kerberos import Begun, Login
from hqueue.net.layers import Wrapping
from hqueue.net.refusals import RefusedError
from hqueue.net.sasl import Gssapi
from hqueue.net.talking import Talk, Talking
from hqueue.net.tls import Tls
from hqueue.runtime.loop import blocking
from hqueue.settings.addresses import Address
from hqueue.settings.connection import Settings
from hqueue.settings.security import KERBEROS, PRIVACY

__all__ = ["OPEN", "Security", "greeting"]

_STATUS = struct.Struct(">ii")
_SIZE = struct.Struct(">i")
_FALLS_BACK = -88
TOKEN_BYTES_MAX = 1024 * 1024


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
            files = (settings.tls_ca, settings.tls_certificate, settings.tls_key)
            tls = TlsContexts(TlsFiles(*files), verify_hostname=settings.tls_verify_hostname)
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

    def principal(self, server: Address, service: str) -> str:
        """The principal of a server with a service."""
        principal = self.regionserver if service == CLIENT else self.master
        return principal.replace("_HOST", server.host.lower())


OPEN = Security()
"""Nobody proves anything, and nothing is hidden."""


def greeting(server: Address, service: str, security: Security, ends_s: float) -> Talking[Talk]:
    """Open a connection to a server's service.

    Args:
        server: the server's own address.
        service: the service's name.
        security: how it is secured.
        ends_s: when it is given up, by `time.monotonic`.

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
        yield from talk.start_tls(Tls(context, server.host, "hbase_tls"))
    is_proven = False
    if security.login is None:
        talk.say(preamble())
    else:
        principal = security.principal(server, service)
        is_proven = yield from _prove(talk, security, security.login, principal, ends_s)
    talk.say(connection_header(service, named=not is_proven))
    yield from talk.flush()
    return talk


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
    if mechanism.wraps:
        yield from talk.flush()
        talk.add(Wrapping(mechanism, FRAME_BYTES_MAX))
    return True


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
