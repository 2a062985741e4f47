"""Checks that the settings of a secure connection fit together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from hqueue.errors import SettingsError

__all__ = [
    "AUTHENTICATION",
    "INTEGRITY",
    "KERBEROS",
    "PRIVACY",
    "PROTECTIONS",
    "SIMPLE",
    "TOKEN",
    "read_protections",
    "security_faults",
]  # fmt: skip

SIMPLE, KERBEROS, TOKEN = "simple", "kerberos", "token"

AUTHENTICATION, INTEGRITY, PRIVACY = PROTECTIONS = ("authentication", "integrity", "privacy")

_OF_KERBEROS = (
    "kerberos_principal", "kerberos_keytab", "kerberos_config", "kerberos_ticket_cache",
)  # fmt: skip
_OF_TLS = ("tls_ca", "tls_certificate", "tls_key")


def read_protections(value: object) -> tuple[str, ...]:
    """Parse ``hbase_protection``: a list, or a text with commas.

    Raises:
        SettingsError: an item is not a protection, or there is none.
    """
    if isinstance(value, str):
        value = value.split(",")
    items = [str(each).strip() for each in value] if isinstance(value, Iterable) else []
    if not items or len({*items}) < len(items) or not {*items} <= {*PROTECTIONS}:
        raise SettingsError(
            "hbase_protection must be one or several of 'authentication', 'integrity' and "
            "'privacy', separated by commas, the preferred one first",
            hbase_protection=value,
        )
    return tuple(items)


def security_faults(settings: Any, *, is_native: bool) -> Iterator[SettingsError]:
    """Yield an error for each way in which the settings don't fit together."""
    proves = settings.hbase_authentication != SIMPLE
    by_kerberos = settings.hbase_authentication == KERBEROS
    for name in _OF_KERBEROS:
        if getattr(settings, name) is not None and not (
            by_kerberos or settings.zookeeper_authentication == KERBEROS
        ):
            yield SettingsError(
                f"{name} needs hbase_authentication='kerberos' or "
                "zookeeper_authentication='kerberos'",
                **{name: getattr(settings, name)},
            )
    if settings.hbase_master_principal is not None and not by_kerberos:
        yield SettingsError(
            "hbase_master_principal needs hbase_authentication='kerberos'",
            hbase_master_principal=settings.hbase_master_principal,
        )
    if settings.hbase_token_file is not None and not proves:
        yield SettingsError(
            "hbase_token_file needs hbase_authentication='token', or 'kerberos' for a client that "
            "may have no ticket",
            hbase_token_file=settings.hbase_token_file,
        )
    by_keytab = by_kerberos and settings.kerberos_keytab is not None
    if settings.hbase_token_file is not None and by_keytab:
        yield SettingsError(
            "give kerberos_keytab or hbase_token_file, not both: a client with a keytab needs no "
            "token",
            hbase_token_file=settings.hbase_token_file,
        )
    uses_tls = settings.hbase_tls or settings.gateways_tls or settings.zookeeper_tls or settings.tls
    for name in _OF_TLS:
        if getattr(settings, name) is not None and not uses_tls:
            yield SettingsError(
                f"{name} needs hbase_tls=True, gateways_tls=True, zookeeper_tls=True, or tls=True "
                "for HQueue's own ports",
                **{name: getattr(settings, name)},
            )
    if settings.tls_key is not None and settings.tls_certificate is None:
        yield SettingsError(
            "tls_key needs tls_certificate, the certificate that belongs to the key",
            tls_key=settings.tls_key,
        )
    if settings.kerberos_keytab is not None and settings.kerberos_ticket_cache is not None:
        yield SettingsError(
            "give kerberos_keytab or kerberos_ticket_cache, not both: with a keytab the client "
            "keeps its tickets in memory",
            kerberos_ticket_cache=settings.kerberos_ticket_cache,
        )
    if settings.hbase_fallback_to_simple and not proves:
        yield SettingsError(
            "hbase_fallback_to_simple needs hbase_authentication='kerberos' or 'token'",
            hbase_fallback_to_simple=True,
        )
    if (proves or settings.hbase_tls) and not is_native:
        yield SettingsError(
            "hbase_authentication and hbase_tls secure only the native way to HBase: leave out "
            "gateways, or set hbase='native'; for TLS to gateways set gateways_tls",
            hbase=settings.hbase,
        )
    if settings.gateways_tls and is_native:
        yield SettingsError(
            "gateways_tls secures the way to gateways: give gateways, or use hbase_tls",
            gateways_tls=True,
        )
