"""Proves who a client is by Kerberos: gets its tickets, and makes the first token for a server.

A KDC that takes connections and is silent holds the library up for half a minute. So threads of the
library's own ask it, and callers wait for them no longer than their bounds.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import os
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

from hqueue.net.gssapi import Context, Credential, GssError
from hqueue.net.kdc import KdcUnavailableError, log_answered, log_unavailable
from hqueue.net.keytab import check_keytab
from hqueue.net.refusals import RefusedError
from hqueue.runtime.loop import by_threads
from hqueue.runtime.steps import Wait
from hqueue.runtime.thread_pool import ThreadPool

__all__ = ["Begun", "Identity", "Login", "use_configuration"]

Result = TypeVar("Result")

ASKING_MAX = 4
"""How many threads ask a KDC at a time."""

KDC_SHARE = 0.9
"""A KDC may take this share of the time that a connection has left: so its opener learns that the
KDC is silent before it gives up itself."""

SILENT = "it did not answer in time"

_KRB5, _GSS = 0x96C73A00, 0x025EA100
"""The tables of the library's errors: they say what is wrong. What is in neither, as an error of
the system, may pass."""

_MAY_PASS = {_KRB5 + number for number in (29, 52, 60, 156, 220)}
"""A KDC that has no service, whose answer has no room, that has trouble, that can't be reached, or
whose name can't be resolved."""

_ADVICE = {
    (6,): "the KDC doesn't know this client's principal: check kerberos_principal",
    (37, 148): "this machine's clock differs from the KDC's by too much: set it",
    (24, 31): "the keytab's key is not the principal's any more: get a new keytab",
    (1, 23, 32): "the ticket or the principal has expired: run kinit, or give kerberos_keytab, "
    "with which tickets are renewed",
}
"""What to check, by errors of Kerberos."""

_NO_REALM = (135, 136, 154, 224)
"""The library's configuration can't be read, is malformed, or names no KDC or no realm."""

_UNKNOWN_SERVER = 7
_OF_HBASE = (
    "compare hbase_principal with the server's hbase.regionserver.kerberos.principal, and the host "
    "with that of the server's address"
)

_caches = itertools.count(1)


def use_configuration(path: str | None) -> None:
    """Have the library read a configuration; that of the environment if None. A process has one.

    Raises:
        RefusedError: the process uses another one, or it can't be read.
    """
    if path is None:
        return
    used = os.environ.get("KRB5_CONFIG", path)
    if used != path:
        raise RefusedError(
            "kerberos_config differs from the configuration that this process uses: give all "
            "clients of a process the same file, and KRB5_CONFIG, too, if it is set",
            kerberos_config=path,
            used=used,
        )
    if not os.access(used, os.R_OK):
        raise RefusedError(
            "kerberos_config can't be read: check that the file exists, and that this user may "
            "read it",
            setting="kerberos_config",
            path=used,
        )
    os.environ["KRB5_CONFIG"] = used


class Begun(NamedTuple):
    """A security context with its first step made."""

    context: Context
    token: bytes
    """What the server must be sent first."""
    generation: int
    """The tickets that it was made of."""
    is_fresh: bool
    """Whether the KDC was asked for all of them just now, so that no better ones can be had."""


class Identity(NamedTuple):
    """Names the principal that a client's tickets prove."""

    principal: str
    left_s: int
    """For how long the ticket is valid."""


class Login:
    """A client's way to prove who it is. Thread-safe, and usable in a forked child.

    With a keytab it gets tickets itself, and new ones when those have expired; they lie in memory.
    Without one the tickets are those of a cache that others fill, as ``kinit`` does.

    Args:
        principal: the client's; that of the keytab or the tickets if None.
        keytab: the file of its keys; None for none.
        ticket_cache: where the tickets lie, if there is no keytab; that of the environment if None.
        config: the library's configuration; that of the environment if None.
        server_advice: what to look at where the KDC doesn't know a server.
    """

    def __init__(
        self,
        principal: str | None = None,
        keytab: str | None = None,
        ticket_cache: str | None = None,
        config: str | None = None,
        *,
        server_advice: str = _OF_HBASE,
    ) -> None:
        self._server_advice = server_advice
        self._config = config
        self._principal = principal
        self._keytab = keytab
        self._ticket_cache = ticket_cache
        self._threads = ThreadPool(ASKING_MAX, "hqueue-kerberos")
        self.generation = next(_caches)
        """Which tickets are used."""
        self._used: set[tuple[int, str]] = set()
        """Of which generation there are tickets for which servers."""
        self._without_ticket: set[str] = set()
        """The servers for which the KDC gave no answer the last time."""

    def begin(self, server: str, *, confidential: bool, ends_s: float) -> Wait:
        """Ask for a context with a server: the answer is a `Begun`.

        Args:
            server: the server's principal.
            confidential: whether what is wrapped will be encrypted.
            ends_s: when it is given up, by `time.monotonic`.

        Raises:
            RefusedError: there are no good keys or tickets, or the KDC refuses them.
            KdcUnavailableError: the KDC did not answer in time, can't be reached, or is in trouble.
                It is logged once, until the KDC answers again.
        """
        call = partial(self._begin, server, confidential)
        bound_s = max(0.001, (ends_s - time.monotonic()) * KDC_SHARE)
        return Wait(
            partial(self._begin_in_time, server, call, bound_s),
            partial(self._begin_in_loop, server, call, bound_s),
        )

    def renew(self, generation: int) -> None:
        """Get other tickets from now on: a server did not accept these. Those of a cache that
        others fill stay as they are.
        """
        if self._keytab and generation == self.generation:
            self.generation = next(_caches)

    def identity(self, ends_s: float) -> Identity:
        """Return who the client is. With a keytab and no ticket yet, it asks the KDC for one.

        Args:
            ends_s: when it is given up, by `time.monotonic`.

        Raises:
            As `begin`. Nothing is logged.
        """
        return self._in_time(self._identity, max(0.0, ends_s - time.monotonic()))

    def _identity(self) -> Identity:
        use_configuration(self._config)
        try:
            credential = Credential(self._principal, self._store(self.generation))
            return Identity(*credential.inquire())
        except GssError as exc:
            raise self._translated(exc) from exc

    def _in_time(self, call: Callable[[], Result], bound_s: float) -> Result:
        asked = self._threads.submit(call)
        try:
            return asked.result(bound_s)
        except concurrent.futures.TimeoutError as exc:
            if asked.done():
                raise
            raise KdcUnavailableError(SILENT, self._principal) from exc
        finally:
            asked.cancel()

    def _begin_in_time(self, server: str, call: Callable[[], Begun], bound_s: float) -> Begun:
        try:
            return self._in_time(call, bound_s)
        except KdcUnavailableError as exc:
            self._on_unavailable(server, exc)
            raise

    async def _begin_in_loop(self, server: str, call: Callable[[], Begun], bound_s: float) -> Begun:
        asked = asyncio.ensure_future(by_threads(self._threads, 2e3 * bound_s, call))
        try:
            await asyncio.wait([asked], timeout=bound_s)
            if not asked.done():
                raise KdcUnavailableError(SILENT, self._principal)
            return await asked
        except KdcUnavailableError as exc:
            self._on_unavailable(server, exc)
            raise
        finally:
            asked.cancel()

    def _on_unavailable(self, server: str, error: KdcUnavailableError) -> None:
        self._without_ticket.add(server)
        log_unavailable(error)

    def _begin(self, server: str, confidential: bool) -> Begun:
        generation = self.generation
        use_configuration(self._config)
        is_fresh = (generation, server) not in self._used
        try:
            credential = Credential(self._principal, self._store(generation))
            context = Context(credential, server, confidential=confidential)
            token = context.step(b"")
        except GssError as exc:
            raise self._translated(exc, server) from exc
        if server in self._without_ticket or (is_fresh and self._keytab):
            self._without_ticket.discard(server)
            log_answered(self._principal)
        self._used.add((generation, server))
        return Begun(context, token, generation, is_fresh or not self._keytab)

    def _store(self, generation: int) -> dict[str, str]:
        if not self._keytab:
            return {"ccache": self._ticket_cache} if self._ticket_cache else {}
        check_keytab(self._keytab, "kerberos_keytab")
        # A child process has tickets of its own, by the number of its process.
        cache = f"MEMORY:hqueue-{os.getpid()}-{generation}"
        return {"client_keytab": f"FILE:{self._keytab}", "ccache": cache}

    def _translated(self, error: GssError, server: str | None = None) -> OSError:
        """Translate an error of the library: into a refusal, or into one that may pass."""
        is_known = error.minor & ~0xFF in (_KRB5, _GSS)
        if error.minor in _MAY_PASS or not is_known:
            return KdcUnavailableError(str(error), self._principal)
        return RefusedError(
            f"Kerberos refused: {self._advice(error.minor)}",
            reason=str(error),
            **({"setting": "kerberos_config"} if error.minor - _KRB5 in _NO_REALM else {}),
            **({"server_principal": server} if server else {}),
            **({"principal": self._principal} if self._principal else {}),
            **({"keytab": self._keytab} if self._keytab else {}),
        )

    def _advice(self, minor: int) -> str:
        if minor - _KRB5 == _UNKNOWN_SERVER:
            return f"the KDC doesn't know the server's principal: {self._server_advice}"
        for numbers, advice in _ADVICE.items():
            if minor - _KRB5 in numbers:
                return advice
        if minor - _KRB5 in _NO_REALM:
            return "the realm's KDC is not found: check kerberos_config, or else /etc/krb5.conf"
        if self._keytab:
            return "the keytab has no key that serves: check kerberos_keytab and kerberos_principal"
        return (
            "there is no ticket: run kinit, or give kerberos_keytab; the client looks for tickets "
            "in kerberos_ticket_cache, or where KRB5CCNAME says"
        )
