"""Names the login of this process, by its settings: who it proves to ZooKeeper that it is."""

from __future__ import annotations

import time

from hqueue.metadata.access_rules import Login
from hqueue.net.kerberos import Login as KerberosLogin
from hqueue.net.own_certificate import read_certificate
from hqueue.net.principals import PrincipalRules, distinguished_name
from hqueue.net.refusals import RefusedError
from hqueue.settings.connection import Settings
from hqueue.settings.security import KERBEROS
from hqueue.zookeeper.proving import credentials_of

__all__ = ["own_login"]


def own_login(settings: Settings) -> Login | None:
    """Return the login of this process: that at ZooKeeper; if it proves nothing there, that of its
    certificate, or that at HBase. None if it proves nothing anywhere.

    Raises:
        OSError: the files or tickets that name it can't be used.
    """
    if settings.zookeeper_authentication == KERBEROS:
        return _by_kerberos(settings)
    for each in credentials_of(settings):
        user, colon, _ = each.credential.partition(":")
        if colon:
            return Login(user, "ZooKeeper user")
    if settings.tls_certificate is not None:
        certificate = read_certificate(settings.tls_certificate, settings.tls_key)
        try:
            name = PrincipalRules(settings.tls_principal_rules).principal_of(certificate)
        except RefusedError:
            name = distinguished_name(certificate.get("subject", ()))
        return Login(name, "certificate")
    return _by_kerberos(settings) if settings.hbase_authentication == KERBEROS else None


def _by_kerberos(settings: Settings) -> Login:
    name = settings.kerberos_principal
    if name is None:
        found = KerberosLogin(
            None,
            settings.kerberos_keytab,
            settings.kerberos_ticket_cache,
            settings.kerberos_config,
        )
        name = found.identity(time.monotonic() + settings.connect_timeout_ms / 1e3).principal
    return Login(name, "Kerberos principal")
