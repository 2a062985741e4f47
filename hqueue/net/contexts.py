"""Makes TLS contexts of files, and makes them again when the files change."""

from __future__ import annotations

import math
import os
import ssl
import threading
from collections.abc import Iterable
from typing import cast

from hqueue.net.own_certificate import OwnCertificate, examine
from hqueue.net.plaintext_servers import PlaintextServers
from hqueue.net.principals import PrincipalRules
from hqueue.net.refusals import RefusedError
from hqueue.net.tls_files import TlsFiles, make_context
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock
from hqueue.runtime.fork import register
from hqueue.runtime.logs import Log

__all__ = ["TlsContexts"]

logger = Log(__name__)


class TlsContexts:
    """Provides the context for a connection, made of the newest files. Thread-safe.

    It reads the files again when one of them has changed. If it can't, or if this side's own
    certificate was replaced by one that others would not accept, it logs that, and keeps the
    earlier context. If the authorities were replaced by some that did not sign this side's
    certificate, it uses them, since the earlier ones may be revoked, and logs that. A server's
    context also logs once that its certificate has expired.

    A server's context keeps the TLS 1.2 sessions of open connections, and of 20,000 that ended in
    order, 10 KiB each; Python has no switch for that. A client could resume such a session for two
    hours, and the server would not check the client's certificate. So a context that keeps a
    session serves no further connection.

    Args:
        files: the files. A server needs all of them.
        serves: whether it is for a server, which asks each client for a certificate.
        demands: whether a server refuses clients without one.
        verify_hostname: whether a server's certificate must name the host that was called.
        switch: the setting that turns TLS on, for errors.
        plaintext: the servers that a client may call without TLS; None if there are no such
            servers.
        rules: make principals at HQueue's own ports, if the certificate is for these: then a
            certificate that replaces it must be fit for servers and clients, and make a principal.
        clock: measures time.
    """

    def __init__(
        self,
        files: TlsFiles,
        *,
        serves: bool = False,
        demands: bool = True,
        verify_hostname: bool = True,
        switch: str = "tls",
        plaintext: PlaintextServers | None = None,
        rules: PrincipalRules | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.switch = switch
        self.plaintext = plaintext
        self._rules = rules
        self._clock = clock
        self._files = files
        self._serves = serves
        self._demands = demands
        self._verify_hostname = verify_hostname
        self._context: ssl.SSLContext | None = None
        self._seen: object = None
        self._again_s = math.inf
        """When a certificate becomes valid that was refused because it was not valid yet."""
        self._own: OwnCertificate | None = None
        """This side's certificate."""
        self._own_versions: object = None
        """The versions of this certificate's files."""
        self._ca_version: object = None
        self._host: str | None = None
        """The host that the certificate must name, as `examine` takes it."""
        self._said_end_s: float | None = None
        """The end of the certificate whose expiry was logged."""
        self.after_fork_in_child()
        register(self)

    def after_fork_in_child(self) -> None:
        self._lock = threading.RLock()

    def current(self) -> ssl.SSLContext:
        """Return the context. It may read files, and so block for some milliseconds.

        Raises:
            RefusedError: the files can't be read, or are not valid.
        """
        seen = _versions(filter(None, self._files))
        with self._lock:
            is_new = seen != self._seen
            is_due = self._clock.wall_ms() / 1e3 >= self._again_s
            is_good = not (is_new or is_due)
            if self._context is not None and is_good and not _keeps_sessions(self._context):
                self._say_if_expired()
                return self._context
            try:
                self._context, self._seen = self._load(), seen
                self._again_s = math.inf
            except RefusedError as exc:
                if self._context is None:
                    raise
                self._seen = seen
                self._again_s = cast(float, exc.facts.get("begins_s", math.inf))
                if is_new:
                    logger.error(
                        "changed TLS files can't be used; still using the earlier ones: %s "
                        "[path=%s, reason=%s]",
                        exc,
                        exc.facts["path"],
                        exc.facts["reason"],
                    )
            self._say_if_expired()
            return self._context

    def check_shown(self, host: str | None) -> None:
        """Check that others would accept this side's certificate now, on this host. A certificate
        that replaces it later must name the host, too. The call may read files.

        Args:
            host: as `examine` takes it.

        Raises:
            RefusedError: others would not accept it; or as `current`.
        """
        with self._lock:
            self.current()
            self._host = host
            own = self._examined()
            certificate = self._files.certificate
            assert certificate is not None
            own.check(certificate, self._clock.wall_ms() / 1e3)
            self._own = own

    @property
    def expires_s(self) -> float | None:
        """When the certificate expires that this side uses, in seconds since 1970; None if there is
        no certificate. May read files.

        Raises:
            RefusedError: as `current`.
        """
        self.current()
        return None if self._own is None else self._own.end_s

    def _load(self) -> ssl.SSLContext:
        """Make a context of the files.

        Raises:
            RefusedError: the files can't be used, or they replace a certificate by one that others
                would not accept.
        """
        context = make_context(
            self._files,
            serves=self._serves,
            demands=self._demands,
            verify_hostname=self._verify_hostname,
        )
        ca, certificate, key = self._files
        if certificate is None:
            return context
        versions, ca_version = _versions(filter(None, (certificate, key))), _versions([ca or ""])
        earlier = self._own
        if versions != self._own_versions:
            own = self._examined()
            if earlier is not None:
                now_s = self._clock.wall_ms() / 1e3
                own.check(certificate, now_s, earlier_faults=earlier.faults)
            self._own, self._own_versions = own, versions
        elif ca_version != self._ca_version and earlier is not None:
            self._own = self._examined()
            faults = self._own.faults - earlier.faults
            if faults:
                logger.error(
                    "the changed tls_ca is in use, but others with the same tls_ca would not "
                    "accept this process's own tls_certificate: add the authority that signed it "
                    "to tls_ca again, or have it signed by one that is in tls_ca [path=%s, "
                    "reason=%s]",
                    ca,
                    "; ".join(sorted(faults)),
                )
        self._ca_version = ca_version
        return context

    def _examined(self) -> OwnCertificate:
        return examine(self._files, serves=self._serves, rules=self._rules, host=self._host)

    def _say_if_expired(self) -> None:
        own = self._own
        if not self._serves or own is None or own.end_s == self._said_end_s:
            return
        if self._clock.wall_ms() / 1e3 >= own.end_s:
            self._said_end_s = own.end_s
            logger.error(
                "the tls_certificate in use has expired, and callers refuse it: replace the file "
                "[path=%s]",
                self._files.certificate,
            )


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
