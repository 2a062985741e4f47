"""The settings of HQueue's own ports and of those who call them, and whether they fit together."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TypedDict

from hqueue.errors import SettingsError

__all__ = [
    "PORT_SECURITY", "PortSecurityOptions", "PortSecuritySettings", "check_port_security",
    "port_security_faults",
]  # fmt: skip

_NEEDED = ("tls_ca", "tls_certificate")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PortSecuritySettings:
    """The settings of TLS that a connection and a client of hubs have alike."""

    tls: bool = False
    """Whether HQueue's own ports speak TLS, and those who call them: workers', hubs', subscribers',
    the Thrift API, metrics and health. Both sides show certificates. It needs ``tls_ca`` and
    ``tls_certificate``.
    """

    tls_optional: bool = False
    """With ``tls``, whether this process also serves callers without TLS, as the principal
    ``anonymous``, and calls servers that don't speak TLS without it. For moving a cluster to TLS
    while it runs: see docs/moving-to-tls.md.
    """

    tls_ca: str | None = None
    """A file with the certificates of the authorities that are trusted, in PEM; by default the
    system's. The files of TLS are read again when they change.
    """

    tls_certificate: str | None = None
    """A file with the certificate of this process, in PEM, and those that signed it. HBase asks
    for one by default.
    """

    tls_key: str | None = None
    """A file with the private key of ``tls_certificate``, in PEM and without a password; by default
    the key is in the certificate's file.
    """

    tls_verify_hostname: bool = True
    """Whether a server's certificate must name the host in the server's address."""

    tls_principal_rules: str = "DEFAULT"
    """The rules by which this process makes principals of others' certificates, as Kafka's
    ``ssl.principal.mapping.rules``: see docs/security.md. By default a principal is the subject's
    common name.
    """

    delivery_principals: str | None = None
    """With ``tls``, the principals of the workers and hubs that may deliver messages to subscribers
    in this process: names with commas between. A name that ends with ``*`` stands for all names
    that begin with the text before it.
    """


PORT_SECURITY = tuple(field.name for field in dataclasses.fields(PortSecuritySettings))
"""Their names."""


class PortSecurityOptions(TypedDict, total=False):
    """The settings of TLS, by their names in `PortSecuritySettings`. None counts as not given."""

    tls: bool | None
    tls_optional: bool | None
    tls_ca: str | None
    tls_certificate: str | None
    tls_key: str | None
    tls_verify_hostname: bool | None
    tls_principal_rules: str | None
    delivery_principals: str | None


def check_port_security(settings: PortSecuritySettings) -> None:
    """Check that the settings fit together.

    Raises:
        SettingsError: they don't.
    """
    for fault in port_security_faults(settings):
        raise fault


def port_security_faults(settings: PortSecuritySettings) -> Iterator[SettingsError]:
    """Yield an error for each way in which the settings don't fit together."""
    for name in _NEEDED:
        if settings.tls and getattr(settings, name) is None:
            yield SettingsError(
                f"tls needs {name}: both sides prove who they are, and the system's own "
                "authorities don't count",
                setting="tls",
            )
    if settings.tls_optional and not settings.tls:
        yield SettingsError(
            "tls_optional needs tls=True: without it, no port speaks TLS",
            setting="tls_optional",
        )
