"""Who may call a port: proof by certificate, and principals that have the right."""

from __future__ import annotations

import collections
import socket
import ssl
from collections.abc import Sequence
from typing import Any

from hqueue.errors import NotAllowedError
from hqueue.net.audit import Audit
from hqueue.net.contexts import TlsContexts
from hqueue.net.peers import host_of
from hqueue.net.principals import PrincipalRules
from hqueue.net.refusals import RefusedError
from hqueue.settings.names import EVERYBODY, is_among

__all__ = ["AllowedPrincipals", "PortGuard"]


class AllowedPrincipals:
    """The principals that may call a port.

    Args:
        port: what the port is called, such as ``hub``: in metrics, in the audit, in errors.
        allowed: the principals, as names of an ACL.
        setting: which setting says so.
    """

    def __init__(self, port: str, allowed: Sequence[str] = (EVERYBODY,), setting: str = "") -> None:
        self.port = port
        self._allowed = allowed
        self._setting = setting

    def right_missing(self, principal: str) -> NotAllowedError | None:
        """The error for a principal that may not call the port; None if it may."""
        if is_among(self._allowed, principal):
            return None
        return NotAllowedError(
            f"this principal may not call the port: see {self._setting}",
            principal=principal,
            port=self.port,
        )


class PortGuard(AllowedPrincipals):
    """Has the callers of a port speak TLS, and prove who they are. Thread-safe.

    Args:
        port, allowed, setting: as `AllowedPrincipals` takes them.
        contexts: a server's.
        rules: make principals of certificates.
        optional: whether callers without TLS are served, too, as `ANONYMOUS`.
    """

    def __init__(
        self,
        port: str,
        contexts: TlsContexts,
        rules: PrincipalRules,
        allowed: Sequence[str] = (EVERYBODY,),
        setting: str = "",
        *,
        optional: bool = False,
    ) -> None:
        super().__init__(port, allowed, setting)
        self.optional = optional
        self.plaintext = 0
        """How many connections without TLS were served."""
        self.refused: collections.Counter[str] = collections.Counter()
        """How many connections were refused, by why: ``handshake``, ``principal``."""
        self._contexts = contexts
        self._rules = rules
        self._audit = Audit()

    def context(self) -> ssl.SSLContext:
        """The TLS context for the next caller. It may read files.

        Raises:
            RefusedError: the files can't be read.
        """
        return self._contexts.current()

    def wrap(self, accepted: socket.socket) -> ssl.SSLSocket:
        """A socket that speaks TLS, before its handshake.

        Raises:
            OSError: the caller has gone.
        """
        return self.context().wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)

    def principal_of(self, shaken: ssl.SSLSocket | ssl.SSLObject) -> str:
        """Who the caller has proven to be, after the handshake.

        Raises:
            RefusedError: no rule makes a principal of its certificate, or it showed none now.
        """
        if shaken.session_reused:
            raise RefusedError("the caller resumes an earlier session: it must authenticate again")
        return self._rules.principal_of(shaken.getpeercert() or {})

    def principal_if_any(self, shaken: ssl.SSLSocket | ssl.SSLObject) -> str | None:
        """As `principal_of`; None for a caller without a certificate, if the port demands none."""
        if not shaken.session_reused and not shaken.getpeercert():
            return None
        return self.principal_of(shaken)

    def refuse(self, kind: str, principal: str | None, peer: Any, reason: str) -> None:
        """Count a refusal, and write it into the audit."""
        self.refused[kind] += 1
        self._audit.refused("connect", principal, host_of(peer), reason, port=self.port)
