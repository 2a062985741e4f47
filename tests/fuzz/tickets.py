"""Tokens of browsers, which MIT's library takes apart, and the names of those who own tickets."""

from __future__ import annotations

import asyncio
import atexit
import functools
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import strategies as st

from hqueue.errors import SettingsError
from hqueue.net.principals import TicketRules
from hqueue.net.refusals import RefusedError
from hqueue.net.spnego import TicketService
from hqueue.settings.names import is_name
from tests.support.tickets import SERVICE, Ticket, WithTicket, write_keytab

from .damage import Damage, damaged, damages
from .target import Target

__all__ = ["TARGETS"]

REALM = "TEST"


@functools.cache
def _service() -> tuple[TicketService, WithTicket, dict[str, str]]:
    """A service, a browser with a ticket for it, and the environment of both."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    environ = {"KRB5_CONFIG": os.devnull, "KRB5RCACHEDIR": str(folder)}
    with mock.patch.dict(os.environ, environ):
        service = TicketService(write_keytab(folder / "keytab", SERVICE), None, "DEFAULT")
    return service, WithTicket(folder, Ticket(f"alice@{REALM}", extra=300)), environ


def _take(given: tuple[bytes | None, list[Damage]]) -> None:
    """Nobody but the ticket's owner comes in."""
    service, browser, environ = _service()
    text, done = given
    with mock.patch.dict(os.environ, environ):
        token = browser.token()
        made = damaged(token, done) if text is None else text
        try:
            principal = asyncio.run(service.take(made)).principal
        except RefusedError:
            assert made != token
        else:
            assert principal == "alice"


def _name(given: tuple[str, str]) -> None:
    """What rules make of a name is a name, and the default takes only names of the own realm."""
    client, text = given
    for rules in ("DEFAULT", text):
        try:
            made = TicketRules(rules, REALM, "spnego_principal_rules").principal_of(client)
        except (SettingsError, RefusedError):
            continue
        assert is_name(made)
        assert made != "anonymous"
        assert "\\" not in client
        assert rules != "DEFAULT" or client == f"{made}@{REALM}"


_PIECES = [
    "alice",
    "@",
    "/",
    "\\",
    "\\@",
    REALM,
    "OTHER",
    "anonymous",
    "*",
    ",",
    "\n",
    "\0",
    "é",
    " ",
]
_RULES = [
    "RULE:",
    "SAN:",
    "DEFAULT",
    "/",
    "\\/",
    "^",
    "$",
    "(.*)",
    "([^@]+)",
    "$1",
    "$2",
    "L",
    ",",
    "@",
]


def _texts(pieces: list[str], most: int) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(pieces), max_size=most).map("".join)


TARGETS: list[Target[Any]] = [
    Target(
        "tickets",
        st.tuples(st.none() | st.binary(max_size=400), damages(3)),
        _take,
    ),
    Target(
        "ticket-owners",
        st.tuples(_texts(_PIECES, 6), _texts(_RULES, 10) | st.just("RULE:^(.*)@TEST$/$1/")),
        _name,
    ),
]
