"""Secures a process's own ports and calls, as its settings say."""

from __future__ import annotations

from hqueue.errors import SettingsError
from hqueue.net.contexts import TlsContexts
from hqueue.net.guard import PortGuard
from hqueue.net.plaintext_servers import PlaintextServers
from hqueue.net.principals import PrincipalRules
from hqueue.net.refusals import RefusedError, settings_error
from hqueue.net.tls_files import TlsFiles
from hqueue.settings.names import EVERYBODY, names_in
from hqueue.settings.port_security import PortSecuritySettings

__all__ = ["PortSecurity", "client_contexts", "security_of"]


class PortSecurity:
    """TLS with certificates on both sides, for HQueue's own ports and their callers. Thread-safe.

    Args:
        settings: the settings of TLS and of principals.

    Raises:
        SettingsError: files can't be read, or the rules are not valid.
    """

    def __init__(self, settings: PortSecuritySettings) -> None:
        files = TlsFiles(settings.tls_ca, settings.tls_certificate, settings.tls_key)
        self._optional = settings.tls_optional
        self._verify_hostname = settings.tls_verify_hostname
        self.rules = PrincipalRules(settings.tls_principal_rules)
        """Make principals of certificates."""
        plaintext = PlaintextServers() if self._optional else None
        self.client = client_contexts(settings, "tls", plaintext, self.rules)
        """The TLS contexts for calling servers."""
        self._files = files
        self._server = TlsContexts(files, serves=True, rules=self.rules)
        self._shown = [self._server]
        """The contexts of ports, which show this process's certificate."""
        self._delivery_principals = settings.delivery_principals
        self.guards: list[PortGuard] = []
        """The guards of ports that were made."""
        try:
            self.client.current()
            self._server.current()
        except RefusedError as exc:
            raise settings_error(exc) from exc

    def check_shown(self, host: str = "") -> None:
        """Check that callers would accept this process's certificate now. A certificate that
        replaces it later must name the host, too, for the ports that have a guard by now.

        Args:
            host: the host under which others call this process; empty if only they know it. The
                certificate must name the host, or any if it is empty, unless `tls_verify_hostname`
                is False.

        Raises:
            SettingsError: callers would not accept it, or files can't be read.
        """
        try:
            for each in self._shown:
                each.check_shown(host if self._verify_hostname else None)
        except RefusedError as exc:
            raise settings_error(exc) from exc

    @property
    def expires_s(self) -> float:
        """When the ports' certificate expires, in seconds since 1970."""
        expires_s = self._server.expires_s
        assert expires_s is not None
        return expires_s

    def guard(
        self, port: str, allowed: str = EVERYBODY, setting: str = "", *, demands: bool = True
    ) -> PortGuard:
        """Guard a port.

        Args:
            port: the port's name.
            allowed: the principals that may call the port, separated by commas.
            setting: the name of the setting that lists them.
            demands: whether callers need a certificate; else the port asks for one, and must let
                those without one prove themselves in another way.
        """
        contexts = self._server
        if not demands:
            contexts = TlsContexts(self._files, serves=True, demands=False, rules=self.rules)
            self._shown.append(contexts)
        made = PortGuard(
            port, contexts, self.rules, names_in(allowed), setting, optional=self._optional
        )
        self.guards.append(made)
        return made

    def delivery_guard(self) -> PortGuard:
        """Guard a port to which workers or hubs deliver messages.

        Raises:
            SettingsError: the settings don't say who the workers and hubs are.
        """
        if not self._delivery_principals:
            raise SettingsError(
                "with tls a subscriber believes only the principals of workers and hubs: name them "
                "in delivery_principals",
                delivery_principals=self._delivery_principals,
            )
        return self.guard("subscriber", self._delivery_principals, "delivery_principals")


def client_contexts(
    settings: PortSecuritySettings,
    switch: str,
    plaintext: PlaintextServers | None = None,
    rules: PrincipalRules | None = None,
) -> TlsContexts:
    """The TLS contexts for calling servers.

    Args:
        settings: name the files.
        switch: the setting that turns TLS on, for errors.
        plaintext, rules: as `TlsContexts` takes them.
    """
    files = TlsFiles(settings.tls_ca, settings.tls_certificate, settings.tls_key)
    return TlsContexts(
        files,
        verify_hostname=settings.tls_verify_hostname,
        switch=switch,
        plaintext=plaintext,
        rules=rules,
    )


def security_of(settings: PortSecuritySettings) -> PortSecurity | None:
    """The security that the settings ask for; None for open ports.

    Raises:
        SettingsError: as `PortSecurity`.
    """
    return PortSecurity(settings) if settings.tls else None
