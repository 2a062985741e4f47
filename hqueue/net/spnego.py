"""Takes the tokens with which callers of HTTP prove who they are by Kerberos: SPNEGO, RFC 4559."""

from __future__ import annotations

import os
from functools import partial
from typing import NamedTuple

from hqueue.errors import SettingsError
from hqueue.net.gssapi import GssError, ServiceCredential
from hqueue.net.kerberos import use_configuration
from hqueue.net.keytab import check_keytab, principals_in
from hqueue.net.principals import TicketRules
from hqueue.net.refusals import RefusedError, settings_error
from hqueue.runtime.logs import Log
from hqueue.runtime.loop import by_threads
from hqueue.runtime.thread_pool import ThreadPool

__all__ = ["TOKEN_BYTES_MAX", "Proof", "TicketService"]

logger = Log(__name__)

TOKEN_BYTES_MAX = 48 * 1024
"""A token may have so many bytes: Windows makes none that are larger, 48,000 (``MaxTokenSize``)."""
TAKING_MAX = 4
"""How many threads take tokens at a time. A token costs some tenths of a millisecond, and a look at
the replay cache, which is a file."""
WAIT_MS = 10_000.0
"""How long a token waits for a thread."""

_SERVICE = "HTTP"
_REPLAY_CACHES = "/var/tmp"
_NTLM = b"NTLMSSP\0"
_FACT_LENGTH_MAX = 300
_SHOWN_MAX = 10


class Proof(NamedTuple):
    """Who a caller has proven to be."""

    principal: str
    """The principal that rules made of the ticket's owner."""
    valid_s: int
    """For how many seconds its ticket is valid, with Kerberos' tolerance for clocks."""
    answer: bytes
    """The token that proves the server to the caller; empty if the caller did not ask for it."""


class TicketService:
    """Takes the tokens of callers. Use it in one event loop, which it never blocks.

    A token stands for itself: the service keeps nothing between two calls. A token that needs
    further ones is refused, as is one that was taken before (MIT's replay cache). No KDC is asked.
    Keys that are replaced in the keytab hold from the next token on.

    Args:
        keytab: the file with the keys of the service's principals.
        principal: ``HTTP/host@REALM``, or without its realm; None for all in the keytab that begin
            with ``HTTP/``, which must be of one realm.
        rules: as `TicketRules` takes them; their realm is that of the principal.
        config: Kerberos' configuration; that of the environment if None.

    Raises:
        SettingsError: the keytab has no such keys or can't be read, or the rules are not valid.
    """

    def __init__(
        self, keytab: str, principal: str | None, rules: str, config: str | None = None
    ) -> None:
        try:
            use_configuration(config)
            check_keytab(keytab, "spnego_keytab")
            served = _served(keytab, principal)
            self._realm = served[0].rpartition("@")[2]
            self._rules = TicketRules(rules, self._realm, "spnego_principal_rules")
            one = served[0] if len(served) == 1 else None
            self._credential = ServiceCredential(one, _SERVICE, {"keytab": f"FILE:{keytab}"})
        except RefusedError as exc:
            raise settings_error(exc) from exc
        except GssError as exc:
            raise SettingsError(
                "Kerberos can't use spnego_keytab: check kerberos_config, or the configuration of "
                "the environment, or get a new keytab from the KDC",
                spnego_keytab=keytab,
                reason=str(exc)[:_FACT_LENGTH_MAX],
            ) from exc
        _look_at_replay_cache()
        self._threads = ThreadPool(TAKING_MAX, "hqueue-spnego")

    async def take(self, token: bytes) -> Proof:
        """Take a caller's token.

        Raises:
            RefusedError: it proves nothing; the fact ``reason`` says more, for the server's log.
            HQueueError: no thread was free for it in time, or the system starts none.
        """
        if len(token) > TOKEN_BYTES_MAX:
            raise RefusedError(f"the token has more than {TOKEN_BYTES_MAX:,} bytes")
        if _NTLM in token:
            raise RefusedError(
                "the token is one of NTLM, and only tickets of Kerberos are taken: get a ticket "
                "(kinit), and open the address under the name that the service's principal has"
            )
        return await by_threads(self._threads, WAIT_MS, partial(self._take, token))

    def _take(self, token: bytes) -> Proof:
        try:
            client, server, valid_s, answer = self._credential.accept(token)
        except GssError as exc:
            raise RefusedError(
                "the ticket was not accepted: get another one (kinit), compare this machine's "
                "clock with the server's, and let the server's operator read the audit",
                reason=str(exc)[:_FACT_LENGTH_MAX],
            ) from exc
        name, _, realm = server.rpartition("@")
        if not name.startswith(f"{_SERVICE}/") or realm != self._realm:
            raise RefusedError("the ticket is for another service", reason=server)
        if len(client) > _FACT_LENGTH_MAX:
            raise RefusedError("the name of the ticket's owner is too long")
        return Proof(self._rules.principal_of(client), valid_s, answer)


def _look_at_replay_cache() -> None:
    """Log that the library can't write its replay cache: it then accepts no token at all."""
    folder = os.environ.get("KRB5RCACHEDIR", _REPLAY_CACHES)
    if "KRB5RCACHENAME" not in os.environ and not os.access(folder, os.W_OK | os.X_OK):
        logger.warning(
            "Kerberos may accept no ticket, because it can't write its replay cache in %s: let "
            "this user write there, or name another folder in the variable KRB5RCACHEDIR",
            folder,
        )


def _served(keytab: str, principal: str | None) -> list[str]:
    """Return the principals of a keytab that are served, at least one.

    Raises:
        SettingsError: there is none, or they are of several realms.
    """
    try:
        found = principals_in(keytab)
    except (OSError, ValueError) as exc:
        raise SettingsError(
            "spnego_keytab can't be read: get a new keytab from the KDC",
            spnego_keytab=keytab,
            reason=str(exc),
        ) from exc
    wanted = principal or f"{_SERVICE}/*"
    served = [
        each
        for each in found
        if each.startswith(f"{_SERVICE}/")
        and (principal is None or principal in (each, each.rpartition("@")[0]))
    ]
    if not served:
        raise SettingsError(
            "spnego_keytab has no key of the principal for which browsers ask, HTTP/ and the "
            "host's name: have it added (kadmin: ktadd -k FILE HTTP/HOST), or correct "
            "spnego_principal",
            spnego_keytab=keytab,
            wanted=wanted,
            found=", ".join(found[:_SHOWN_MAX]),
        )
    if len({each.rpartition("@")[2] for each in served}) > 1:
        raise SettingsError(
            "spnego_keytab has principals of several realms, and a name must stand for one user: "
            "choose one with spnego_principal",
            spnego_keytab=keytab,
            found=", ".join(served[:_SHOWN_MAX]),
        )
    return served
