"""The console's settings."""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Mapping

from hqueue import SettingsError
from hqueue.settings.addresses import PORT_MAX
from hqueue.settings.fields import check_fields
from hqueue.settings.loading import load_role_settings
from hqueue.settings.names import names_in
from hqueue_workers.node.access_settings import ALL, RULES, AccessSettings, check_administrators
from hqueue_workers.node.hosts import LOOPBACK

__all__ = ["ConsoleSettings"]

_BOUNDS = {
    "port": (0, PORT_MAX),
    "metrics_port": (0, PORT_MAX),
    "connections_max": (8, 10_000),
    "streams_max": (1, 1_000),
    "history_ms": (1_000, 3_600_000),
}
_LOOPBACK_NAMES = ("localhost", LOOPBACK, "::1")


@dataclasses.dataclass(frozen=True)
class ConsoleSettings(AccessSettings):
    """All settings of the console. Frozen, and checked when made. Times are in milliseconds.

    Each comes from the first of these sources that has it: an option of ``hqueue console``, an
    environment variable (``HQUEUE_CONSOLE_`` and the name in capitals), the table ``[console]`` of
    the settings file, a running local server's connection file, the default. The servers' addresses
    are in `hqueue.Settings`.

    Raises:
        SettingsError: a setting has a wrong value.
    """

    host: str = LOOPBACK
    """The address that serves the console; ``0.0.0.0`` for all interfaces."""

    port: int = 9_180
    """The port of the console; a free port if 0."""

    host_names: str = ""
    """The names under which browsers reach the console, with commas between. Requests for other
    names are refused. `host`, and on loopback ``localhost``, need not be listed.
    """

    allow_changes: bool = False
    """Whether the console may reset groups and subscribers, and redrive and delete dead letters.
    Without it the console only reads. Changes need ``tls``, or a console that only this machine
    reaches.
    """

    principals: str = "*"
    """With the connection's ``tls`` or `spnego_keytab`, the principals that may open the console:
    names with commas between. A name that ends with ``*`` stands for all names that begin with the
    text before it.
    """

    change_principals: str = "*"
    """With `allow_changes`, and ``tls`` or `spnego_keytab`, the principals that may make changes:
    names as for `principals`.
    """

    spnego_keytab: str = ""
    """A file with the keys of ``HTTP/HOST@REALM``, the principal for which browsers ask Kerberos at
    the console's host. With it, browsers without a certificate prove who their users are by tickets
    of Kerberos. It needs the connection's ``tls``, or a console that only this machine reaches.
    """

    spnego_principal: str = ""
    """With `spnego_keytab`, the principal whose tickets count, such as
    ``HTTP/console.example.com@EXAMPLE.COM``; by default all principals of the keytab that begin
    with ``HTTP/``.
    """

    spnego_principal_rules: str = "DEFAULT"
    """With `spnego_keytab`, the rules that make principals of Kerberos' principals. They look like
    ``tls_principal_rules``: see docs/console.md. By default ``alice`` is ``alice@REALM`` in the
    console's own realm, and users of other realms are refused.
    """

    metrics_host: str = LOOPBACK
    """The address that serves health and metrics; ``0.0.0.0`` for all interfaces."""

    metrics_port: int = 9_181
    """The port of health and metrics; a free port if 0."""

    metrics_principals: str = "*"
    """With the connection's ``tls``, the principals that may read health and metrics: names as for
    `principals`.
    """

    connections_max: int = 256
    """How many connections of browsers may be open at a time. Further ones wait."""

    streams_max: int = 32
    """How many pages may follow new messages at a time; one caller may have a quarter of these."""

    history_ms: int = 10_000
    """How often to measure rates and lags. The console keeps 180 measurements in memory."""

    def __post_init__(self) -> None:
        check_fields(self, _BOUNDS)
        if self.authorizer not in (ALL, RULES):
            raise SettingsError("authorizer must be all or rules", authorizer=self.authorizer)
        check_administrators(self.administrators)
        for name, default in (("spnego_principal", ""), ("spnego_principal_rules", "DEFAULT")):
            if getattr(self, name) != default and not self.spnego_keytab:
                raise SettingsError(
                    f"{name} needs spnego_keytab: without it the console takes no tickets",
                    setting=name,
                )
        if not self.host:
            raise SettingsError("host must name an address to listen on", host=self.host)

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches the console."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def known_hosts(self) -> frozenset[str]:
        """The host names that a request may have, in lower case, without ports."""
        own = _LOOPBACK_NAMES if self.is_local else ()
        return frozenset(name.lower() for name in (*names_in(self.host_names), self.host, *own))

    def check_tickets(self, *, tls: bool) -> None:
        """Check that nobody between a browser and the console can use the browser's ticket.

        Raises:
            SettingsError: tickets would go to a console without TLS on another machine.
        """
        if self.spnego_keytab and not tls and not self.is_local:
            raise SettingsError(
                "spnego_keytab needs tls where other machines reach the console, because anyone on "
                "the way could take over a ticket or a cookie: set tls, or let the console listen "
                "on loopback",
                spnego_keytab=self.spnego_keytab,
                host=self.host,
            )

    def check_changes(self, *, secured: bool) -> None:
        """Check that callers who may make changes prove who they are.

        Raises:
            SettingsError: changes are allowed to callers from other machines that prove nothing.
        """
        if self.allow_changes and not secured and not self.is_local:
            raise SettingsError(
                "changes need callers that prove who they are: set tls, or let the console listen "
                "on loopback",
                allow_changes=True,
                host=self.host,
            )

    @classmethod
    def load(
        cls, arguments: Mapping[str, object] | None = None, environ: Mapping[str, str] | None = None
    ) -> ConsoleSettings:
        """Gather the settings from all sources.

        Raises:
            SettingsError: a setting is unknown or has a wrong value.
        """
        return load_role_settings(cls, "console", arguments, environ)
