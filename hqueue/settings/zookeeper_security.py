"""Checks that the settings of secure sessions with ZooKeeper fit together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hqueue.errors import SettingsError
from hqueue.settings.security import KERBEROS

__all__ = [
    "DIGEST",
    "NONE",
    "SASL",
    "check_credentials",
    "check_zookeeper_security",
    "proves_by_setting",
]

NONE, DIGEST = "none", "digest"

SASL = "sasl"
"""The scheme of the credential for `DIGEST`: ``sasl:user:password``."""

_CREATOR = "auth"


def check_zookeeper_security(settings: Any) -> None:
    """Return if the settings fit together.

    Raises:
        SettingsError: they don't.
    """
    how, file = settings.zookeeper_authentication, settings.zookeeper_auth_file
    if settings.zookeeper_auth and file is not None:
        raise SettingsError(
            "give zookeeper_auth or zookeeper_auth_file, not both", zookeeper_auth_file=file
        )
    if how != KERBEROS and settings.zookeeper_principal != type(settings).zookeeper_principal:
        raise SettingsError(
            "zookeeper_principal needs zookeeper_authentication='kerberos'",
            zookeeper_principal=settings.zookeeper_principal,
        )
    if file is None:
        check_credentials(settings.zookeeper_auth, how)
    proves = proves_by_setting(settings) or (
        settings.zookeeper_tls and settings.tls_certificate is not None
    )
    if not proves and any(rule.scheme == _CREATOR for rule in settings.zookeeper_acl):
        raise SettingsError(
            "'auth' in zookeeper_acl stands for the session's principal, but the session proves "
            "none: set zookeeper_authentication, or give zookeeper_auth",
            zookeeper_acl=[str(rule) for rule in settings.zookeeper_acl],
        )


def proves_by_setting(settings: Any) -> bool:
    """Return whether sessions prove who they are, by SASL or by credentials."""
    return (
        settings.zookeeper_authentication != NONE
        or bool(settings.zookeeper_auth)
        or settings.zookeeper_auth_file is not None
    )


def check_credentials(credentials: Iterable[Any], authentication: str) -> None:
    """Return if credentials for ZooKeeper fit ``zookeeper_authentication``. No error shows them.

    Raises:
        SettingsError: they don't.
    """
    texts = [each.credential for each in credentials if each.scheme == SASL]
    if authentication == DIGEST and not (len(texts) == 1 and texts[0].partition(":")[1]):
        raise SettingsError(
            "zookeeper_authentication='digest' needs one credential sasl:user:password in "
            "zookeeper_auth or zookeeper_auth_file"
        )
    if authentication != DIGEST and texts:
        raise SettingsError(
            "a credential sasl:user:password needs zookeeper_authentication='digest'",
            zookeeper_authentication=authentication,
        )
