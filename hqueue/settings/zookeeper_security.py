"""The settings of secure sessions with ZooKeeper, and whether they fit together."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

from hqueue.errors import SettingsError
from hqueue.settings.kinds import check_kind
from hqueue.settings.security import KERBEROS

__all__ = [
    "DIGEST",
    "NONE",
    "SASL",
    "AclEntry",
    "Credential",
    "check_credentials",
    "proves_by_setting",
    "zookeeper_security_faults",
]

NONE, DIGEST = "none", "digest"

SASL = "sasl"
"""The scheme of the credential for `DIGEST`: ``sasl:user:password``."""

_CREATOR = "auth"


@dataclasses.dataclass(frozen=True, slots=True)
class Credential:
    """A proof of identity for ZooKeeper, written ``scheme:credential``."""

    scheme: str
    credential: str = dataclasses.field(repr=False)

    @classmethod
    def parse(cls, text: str) -> Credential:
        """Read ``scheme:credential``. The text is a secret, and no error shows it."""
        scheme, colon, credential = check_kind(text, str, "text").strip().partition(":")
        if not (scheme and colon and credential):
            raise SettingsError("zookeeper_auth must be written as scheme:credential")
        return cls(scheme, credential)


@dataclasses.dataclass(frozen=True, slots=True)
class AclEntry:
    """An entry of a ZooKeeper node's access control list, written ``scheme:id:permissions``."""

    scheme: str
    id: str
    permissions: str

    def __post_init__(self) -> None:
        for name in ("scheme", "id", "permissions"):
            check_kind(getattr(self, name), str, name)
        wrong = set(self.permissions) - set("cdrwa")
        if not self.scheme or not self.permissions or wrong:
            raise SettingsError(
                "zookeeper_acl must be written as scheme:id:permissions, with permissions out of "
                "'cdrwa'",
                zookeeper_acl=str(self),
            )

    @classmethod
    def parse(cls, text: str) -> AclEntry:
        """Read ``scheme:id:permissions``; the id may have colons."""
        scheme, _, rest = check_kind(text, str, "text").strip().partition(":")
        identity, _, permissions = rest.rpartition(":")
        return cls(scheme, identity, permissions)

    def __str__(self) -> str:
        return f"{self.scheme}:{self.id}:{self.permissions}"


def zookeeper_security_faults(settings: Any) -> Iterator[SettingsError]:
    """Yield an error for each way in which the settings don't fit together."""
    how, file = settings.zookeeper_authentication, settings.zookeeper_auth_file
    if settings.zookeeper_auth and file is not None:
        yield SettingsError(
            "give zookeeper_auth or zookeeper_auth_file, not both", zookeeper_auth_file=file
        )
    if how != KERBEROS and settings.zookeeper_principal != type(settings).zookeeper_principal:
        yield SettingsError(
            "zookeeper_principal needs zookeeper_authentication='kerberos'; to override a "
            f"settings file's value, give the default, '{type(settings).zookeeper_principal}'",
            zookeeper_principal=settings.zookeeper_principal,
        )
    if file is None:
        try:
            check_credentials(settings.zookeeper_auth, how)
        except SettingsError as exc:
            yield exc
    proves = proves_by_setting(settings) or (
        settings.zookeeper_tls and settings.tls_certificate is not None
    )
    if not proves and any(rule.scheme == _CREATOR for rule in settings.zookeeper_acl):
        yield SettingsError(
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


def check_credentials(credentials: Iterable[Credential], authentication: str) -> None:
    """Check that credentials for ZooKeeper fit ``zookeeper_authentication``. No error shows them.

    Raises:
        SettingsError: the credentials don't fit.
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
