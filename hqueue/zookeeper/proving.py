"""Secures a session with ZooKeeper before its first request: by TLS, SASL with Kerberos or
DIGEST-MD5, and credentials.

```
client                                    server
length │ xid, 102 │ token              →  until both know each other
                                       ←  length │ xid, zxid, error │ token
length │ xid -4, 100 │ credential      →  for each further one
                                       ←  length │ xid -4, zxid, error
```

A server that knows no SASL answers without a token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol

from kazoo.exceptions import AuthFailedError, SessionClosedRequireSaslError
from kazoo.security import ACL, Id, Permissions

from hqueue.errors import SettingsError
from hqueue.net.contexts import TlsContexts
from hqueue.net.digest_md5 import DigestMd5
from hqueue.net.kerberos import Begun, Login
from hqueue.net.refusals import RefusedError
from hqueue.net.sasl import Gssapi
from hqueue.net.talking import Talking
from hqueue.net.tls_files import TlsFiles
from hqueue.runtime.loop import blocking
from hqueue.settings.connection import Settings
from hqueue.settings.security import AUTHENTICATION, KERBEROS
from hqueue.settings.zookeeper_security import (
    DIGEST,
    SASL,
    AclEntry,
    Credential,
    check_credentials,
    proves_by_setting,
)
from hqueue.zookeeper.exchange import LENGTH, Exchange, sized, unsized

__all__ = ["Proof", "SessionSecurity", "acl_of", "credentials_of", "node_acl"]

_SASL_KIND = 102
_AUTH_XID, _AUTH_KIND = -4, 100
_DIGEST_URI = "zookeeper/zk-sasl-md5"
"""What ZooKeeper's servers expect there, whatever their names are."""

_FILE_BYTES_MAX = 64 * 1024

_PERMISSIONS = {
    "r": Permissions.READ,
    "w": Permissions.WRITE,
    "c": Permissions.CREATE,
    "d": Permissions.DELETE,
    "a": Permissions.ADMIN,
}


class Mechanism(Protocol):
    """A mechanism of SASL: `Gssapi`, or `DigestMd5`."""

    protection: str | None

    def answer(self, challenge: bytes) -> bytes | None: ...


class SessionSecurity:
    """Says how sessions are secured. Thread-safe, and usable in a forked child.

    Args:
        settings: say how.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.tls: TlsContexts | None = None
        """The TLS contexts; None for connections in clear."""
        self._login: Login | None = None
        if settings.zookeeper_tls:
            files = TlsFiles(settings.tls_ca, settings.tls_certificate, settings.tls_key)
            self.tls = TlsContexts(files, verify_hostname=settings.tls_verify_hostname)
        if settings.zookeeper_authentication == KERBEROS:
            self._login = Login(
                settings.kerberos_principal,
                settings.kerberos_keytab,
                settings.kerberos_ticket_cache,
                settings.kerberos_config,
                server_advice="compare zookeeper_principal with the principal in the section "
                "Server of ZooKeeper's JAAS file, and the host with that in zookeeper",
            )

    def begin(self, host: str, ends_s: float) -> Talking[Proof]:
        """Prepare the proof for a server, before it is called.

        Args:
            host: the server's, as `zookeeper` names it.
            ends_s: when it is given up, by `time.monotonic`.

        Raises:
            RefusedError: there are no good keys, tickets or credentials.
            KdcUnavailableError: the KDC gave no answer in time, can't be reached, or is in trouble.
        """
        credentials: Sequence[Credential] = self._settings.zookeeper_auth
        if self._settings.zookeeper_auth_file is not None:
            credentials = yield blocking(partial(credentials_of, self._settings))
        further = [each for each in credentials if each.scheme != SASL]
        if self._login is not None:
            principal = self._settings.zookeeper_principal.replace("_HOST", host.lower())
            begun: Begun = yield self._login.begin(principal, confidential=False, ends_s=ends_s)
            ticket_refused = partial(_ticket_refused, self._login, begun, principal)
            mechanism = Gssapi(begun.context, (AUTHENTICATION,))
            return Proof(further, mechanism, begun.token, ticket_refused)
        if self._settings.zookeeper_authentication == DIGEST:
            (secret,) = (each.credential for each in credentials if each.scheme == SASL)
            user, _, password = secret.partition(":")
            return Proof(
                further, DigestMd5(user, password, _DIGEST_URI), b"", partial(_user_refused, user)
            )
        return Proof(further)


def credentials_of(settings: Settings) -> Sequence[Credential]:
    """Return the credentials that settings give, or those in the file that they name.

    Raises:
        RefusedError: the file can't be used. The error shows nothing of it.
    """
    path = settings.zookeeper_auth_file
    if path is None:
        return settings.zookeeper_auth
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read(_FILE_BYTES_MAX).splitlines()
        credentials = [Credential.parse(line) for line in lines if line.strip()]
        check_credentials(credentials, settings.zookeeper_authentication)
    except (OSError, ValueError, SettingsError) as exc:
        reason = exc.text if isinstance(exc, SettingsError) else type(exc).__name__
        raise RefusedError(
            "zookeeper_auth_file can't be used: check that the file exists, can be read by this "
            "user, and has a credential scheme:credential in each line",
            path=path,
            reason=reason,
        ) from None
    return credentials


class Proof:
    """Proves to one server who the session is.

    Args:
        credentials: those for schemes other than SASL.
        mechanism: SASL's; None for none.
        token: what it says first.
        not_accepted: the error where the server does not accept it, by the server's answer.
    """

    def __init__(
        self,
        credentials: Sequence[Credential],
        mechanism: Mechanism | None = None,
        token: bytes = b"",
        not_accepted: Callable[[str], OSError] = ConnectionError,
    ) -> None:
        self._credentials = credentials
        self._mechanism = mechanism
        self._token = token
        self._not_accepted = not_accepted

    def give(self, exchange: Exchange) -> Talking[None]:
        """Prove it.

        Raises:
            RefusedError: client and server don't accept each other.
            OSError, struct.error, ValueError: no answer comes, or it is malformed.
            KazooException: the server is in trouble.
        """
        if self._mechanism is not None:
            yield from self._converse(exchange, self._mechanism, self._token)
        for each in self._credentials:
            scheme, credential = each.scheme.encode(), each.credential.encode()
            exchange.request(
                _AUTH_XID, _AUTH_KIND, LENGTH.pack(0) + sized(scheme) + sized(credential)
            )
            try:
                yield from exchange.reply(_AUTH_XID)
            except AuthFailedError as exc:
                raise RefusedError(
                    "ZooKeeper did not accept a credential: check zookeeper_auth, and that the "
                    "server knows its scheme",
                    scheme=each.scheme,
                ) from exc

    def _converse(self, exchange: Exchange, mechanism: Mechanism, token: bytes) -> Talking[None]:
        """Exchange tokens until both sides know each other."""
        said: bytes | None = token
        xid = 0
        while said is not None:
            xid += 1
            exchange.request(xid, _SASL_KIND, sized(said))
            try:
                challenge = unsized((yield from exchange.reply(xid)))
            except (AuthFailedError, SessionClosedRequireSaslError) as exc:
                raise self._not_accepted(type(exc).__name__) from exc
            if mechanism.protection is not None:
                return
            if not challenge:
                raise RefusedError(
                    "ZooKeeper did not answer to SASL, so it may be an impostor: check "
                    "that its servers have an authProvider for SASL, and a section Server in their "
                    "JAAS file"
                )
            said = mechanism.answer(challenge)


def _ticket_refused(login: Login, begun: Begun, principal: str, answer: str) -> OSError:
    """Make the error for a server that does not accept a ticket; it may accept another one."""
    login.renew(begun.generation)
    if not begun.is_fresh:
        return ConnectionError(f"ZooKeeper did not accept the earlier ticket: {answer}")
    return RefusedError(
        "ZooKeeper did not accept this client's ticket: compare zookeeper_principal with the "
        "principal and the keytab in the section Server of ZooKeeper's JAAS file, and see its log, "
        "which says more",
        answer=answer,
        server_principal=principal,
    )


def _user_refused(user: str, answer: str) -> OSError:
    return RefusedError(
        "ZooKeeper did not accept the user and the password: compare the credential "
        "sasl:user:password in zookeeper_auth or zookeeper_auth_file with the section Server of "
        "ZooKeeper's JAAS file",
        answer=answer,
        user=user,
    )


def node_acl(settings: Settings) -> Sequence[AclEntry]:
    """Return the ACL of new nodes, as settings say."""
    if settings.zookeeper_acl:
        return settings.zookeeper_acl
    if proves_by_setting(settings):
        return (AclEntry("auth", "", "cdrwa"),)
    return (AclEntry("world", "anyone", "cdrwa"),)


def acl_of(entries: Iterable[AclEntry]) -> list[ACL]:
    """Convert an ACL into kazoo's."""
    return [
        ACL(sum(_PERMISSIONS[each] for each in set(entry.permissions)), Id(entry.scheme, entry.id))
        for entry in entries
    ]
