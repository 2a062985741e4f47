"""Says how connections to HBase are secured, and by what this client proves itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hqueue.hbase.native.wire import ADMIN, CLIENT, MASTER
from hqueue.net.contexts import TlsContexts
from hqueue.net.kerberos import Login
from hqueue.net.refusals import RefusedError
from hqueue.net.security import client_contexts
from hqueue.net.tokens import DelegationToken, HeldTokens
from hqueue.runtime.loop import blocking
from hqueue.runtime.steps import Work
from hqueue.settings.addresses import Address
from hqueue.settings.connection import Settings
from hqueue.settings.security import KERBEROS, SIMPLE

__all__ = ["OPEN", "Security"]

_TOKEN_FILE = "HADOOP_TOKEN_FILE_LOCATION"


class Security(NamedTuple):
    """Says how connections to HBase are secured."""

    tls: TlsContexts | None = None
    login: Login | None = None
    """Who this client is by Kerberos; None where it does not use that."""
    tokens: HeldTokens | None = None
    """The tokens by which it proves itself, alone, or without a ticket for `login`; or None."""
    protections: Sequence[str] = ()
    """The layers that are good enough, the best one first."""
    regionserver: str = ""
    """The region servers' principal, with ``_HOST``."""
    master: str = ""
    """The masters'."""
    falls_back: bool = False
    """Whether the client accepts a server that asks for no proof."""
    cluster_id: Callable[[], Work[Any, str]] | None = None
    """Asks for the cluster's ID, before this client has proved itself; None if there are never
    tokens of several clusters."""

    @classmethod
    def of(
        cls, settings: Settings, cluster_id: Callable[[], Work[Any, str]] | None = None
    ) -> Security:
        """Make it of the settings."""
        tls = login = tokens = None
        if settings.hbase_tls:
            tls = client_contexts(settings, "hbase_tls")
        if settings.hbase_authentication == KERBEROS:
            login = Login(
                settings.kerberos_principal,
                settings.kerberos_keytab,
                settings.kerberos_ticket_cache,
                settings.kerberos_config,
            )
        is_by_keytab = login is not None and settings.kerberos_keytab is not None
        if settings.hbase_authentication != SIMPLE and not is_by_keytab:
            tokens = HeldTokens(settings.hbase_token_file or os.environ.get(_TOKEN_FILE))
        return cls(
            tls,
            login,
            tokens,
            settings.hbase_protection,
            settings.hbase_principal,
            settings.hbase_master_principal or settings.hbase_principal,
            settings.hbase_fallback_to_simple,
            cluster_id,
        )

    def principals(self, server: Address, service: str) -> list[str]:
        """Return the principals that a server of a service may have: masters and region servers
        alike say where the cluster's servers are.
        """
        regionserver = [self.regionserver]
        roles = {CLIENT: regionserver, ADMIN: regionserver, MASTER: [self.master]}
        named = roles.get(service, [self.master, self.regionserver])
        return [*dict.fromkeys(each.replace("_HOST", server.host.lower()) for each in named)]

    def token(self) -> Work[Any, DelegationToken]:
        """Choose the token by which this client proves itself.

        Raises:
            RefusedError: there is none, its file can't be used, or it can't be chosen.
        """
        assert self.tokens is not None
        found: list[DelegationToken] = yield blocking(self.tokens.all)
        if len(found) > 1:
            assert self.cluster_id is not None
            cluster_id = yield from self.cluster_id()
            found = [token for token in found if token.service == cluster_id]
        if not found:
            raise RefusedError(
                "there is no delegation token of this cluster: give hbase_token_file, set "
                "HADOOP_TOKEN_FILE_LOCATION, or call Client.use_token"
            )
        return found[0]


OPEN = Security()
"""Nobody proves anything, and nothing is hidden."""
