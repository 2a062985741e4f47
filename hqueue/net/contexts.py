"""Makes TLS contexts of files, and makes them again when the files change."""

from __future__ import annotations

import os
import ssl
import threading
from collections.abc import Iterable
from typing import NamedTuple

from hqueue.net.refusals import RefusedError
from hqueue.runtime.fork import register
from hqueue.runtime.logs import Log

__all__ = ["TlsContexts", "TlsFiles"]

logger = Log(__name__)


class TlsFiles(NamedTuple):
    """Files in PEM; None for none."""

    ca: str | None = None
    """The certificates of the authorities that are trusted; without it, the system's."""
    certificate: str | None = None
    """What this side shows, and what signed it."""
    key: str | None = None
    """Its private key, not encrypted; without it, the key is in the file of the certificate."""


class TlsContexts:
    """Provides the context for a connection, made of the newest files. Thread-safe.

    It reads the files again when one of them has changed. If it can't, it logs that, and keeps the
    earlier context.

    A server's context keeps the sessions of open connections of TLS 1.2, and 10 KiB for each of
    20,000 that ended orderly; Python has no switch for that. A client could resume them for two
    hours, and the server would not check its certificate. So a context that keeps one serves no
    further connection.

    Args:
        files: the files. A server needs all of them.
        serves: whether it is for a server, which demands a certificate of each client.
        verify_hostname: whether a server's certificate must name the host that was called.
        switch: the setting that turns TLS on, for errors.
    """

    def __init__(
        self,
        files: TlsFiles,
        *,
        serves: bool = False,
        verify_hostname: bool = True,
        switch: str = "tls",
    ) -> None:
        self.switch = switch
        self._files = files
        self._serves = serves
        self._verify_hostname = verify_hostname
        self._context: ssl.SSLContext | None = None
        self._seen: object = None
        self.after_fork_in_child()
        register(self)

    def after_fork_in_child(self) -> None:
        self._lock = threading.RLock()

    def current(self) -> ssl.SSLContext:
        """Return the context. It may read files, and so block for some milliseconds.

        Raises:
            RefusedError: the files can't be read, or are not what they must be.
        """
        seen = _versions(filter(None, self._files))
        with self._lock:
            is_new = seen != self._seen
            if self._context is not None and not is_new and not _keeps_sessions(self._context):
                return self._context
            try:
                self._context, self._seen = self._load(), seen
            except RefusedError as exc:
                if self._context is None:
                    raise
                self._seen = seen
                if is_new:
                    logger.warning(
                        "changed TLS files can't be used; still using the earlier ones: %s "
                        "[path=%s, reason=%s]",
                        exc,
                        exc.facts["path"],
                        exc.facts["reason"],
                    )
            return self._context

    def _load(self) -> ssl.SSLContext:
        if self._serves:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.verify_mode = ssl.CERT_REQUIRED
            # A client proves itself in each connection, by what holds then.
            context.options |= ssl.OP_NO_TICKET
            context.num_tickets = 0
        else:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = self._verify_hostname
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        ca, certificate, key = self._files
        if certificate:  # First: who reads this one alone names it as its own authority.
            try:
                context.load_cert_chain(certificate, key, _refuse_to_ask)
            except (OSError, ValueError) as exc:
                reason = _lacking(certificate, key) or str(exc)
                raise _unreadable("tls_certificate", certificate, reason) from exc
        if ca:
            try:
                context.load_verify_locations(ca)
            except (OSError, ValueError) as exc:
                raise _unreadable("tls_ca", ca, str(exc)) from exc
        else:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        return context


def _keeps_sessions(context: ssl.SSLContext) -> bool:
    """Return whether a client could resume a session. A client's own context keeps none."""
    return context.session_stats()["number"] > 0


def _versions(paths: Iterable[str]) -> list[object]:
    """Return values that differ when a file has changed."""
    seen: list[object] = []
    for path in paths:
        try:
            found = os.stat(path)
            seen.append((found.st_mtime_ns, found.st_size, found.st_ino))
        except OSError as exc:
            seen.append(exc.errno)
    return seen


def _refuse_to_ask() -> str:
    """OpenSSL would ask for a password at the terminal."""
    raise ValueError("the private key is encrypted: store it without a password")


def _lacking(certificate: str, key: str | None) -> str | None:
    """What is missing in the files of a certificate, which OpenSSL does not name."""
    key = key or certificate
    for path, what, mark in (
        (certificate, "a certificate", b"-----BEGIN CERTIFICATE-----"),
        (key, "a private key", b"PRIVATE KEY-----"),
    ):
        try:
            with open(path, "rb") as opened:
                if mark not in opened.read():
                    return f"{path} does not contain {what} in PEM"
        except OSError as exc:
            return f"{path} can't be read: {exc.strerror}"
    return None


def _unreadable(setting: str, path: str, reason: str) -> RefusedError:
    return RefusedError(
        f"{setting} can't be used: check that the files exist, can be read by this user, and are "
        "certificates and a private key in PEM that belong together",
        setting=setting,
        path=path,
        reason=reason,
    )
