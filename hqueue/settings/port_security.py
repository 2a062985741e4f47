"""The settings of HQueue's own ports: whether they fit together."""

from __future__ import annotations

from typing import Any

from hqueue.errors import SettingsError

__all__ = ["check_port_security"]

_NEEDED = ("tls_ca", "tls_certificate")


def check_port_security(settings: Any) -> None:
    """Return if the settings fit together.

    Raises:
        SettingsError: they don't.
    """
    for name in _NEEDED:
        if settings.tls and getattr(settings, name) is None:
            raise SettingsError(
                f"tls needs {name}: both sides prove who they are, and what the system trusts "
                "proves nothing",
                setting="tls",
            )
    if settings.tls_optional and not settings.tls:
        raise SettingsError(
            "tls_optional needs tls=True: without it, no port speaks TLS",
            setting="tls_optional",
        )
