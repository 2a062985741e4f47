"""Finds out who a browser's user is by a ticket of Kerberos, and remembers it for a while.

The gate answers 401 and ``Negotiate`` to a browser without a certificate, which sends its request
again with a token. The answer to that has a cookie, which stands for the token in further requests.
"""

from __future__ import annotations

import base64
import hashlib
from collections import OrderedDict, deque
from typing import NamedTuple

from starlette.datastructures import Headers

from hqueue.net.refusals import RefusedError
from hqueue.net.spnego import TicketService
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock
from hqueue_workers.console.cookies import cookie_in, made_cookie, random_value

__all__ = ["CHALLENGE", "Logins", "SignedIn", "SigningIn", "token_length"]

CHALLENGE = ("WWW-Authenticate", "Negotiate")
LOGIN_COOKIE = "hqueue_login"
LOGIN_S_MAX = 3_600.0
"""A login ends after this time, or with its ticket. The browser then proves itself again, without
asking its user."""
LOGINS_MAX = 4_096
LOGINS_EACH_MAX = 16
"""How many logins a principal may have. The first one of further ones ends."""


class _Login(NamedTuple):
    principal: str
    host: str
    ends_ms: float


class Logins:
    """Remembers callers that have proven themselves, within bounds. It keeps no cookie's value.

    Args:
        clock: measures time.
        logins_max: how many there may be. The first one of further ones ends.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK, *, logins_max: int = LOGINS_MAX) -> None:
        self._clock = clock
        self._logins_max = logins_max
        self._logins: OrderedDict[bytes, _Login] = OrderedDict()
        self._each: dict[str, deque[bytes]] = {}

    def __len__(self) -> int:
        return len(self._logins)

    def begin(self, principal: str, host: str, valid_s: float) -> str:
        """Remember a principal, and return the value of its cookie.

        Args:
            principal: the principal.
            host: the address from which it calls.
            valid_s: for how long its ticket is valid.
        """
        own = self._each.get(principal)
        if own is not None and len(own) >= LOGINS_EACH_MAX:
            self._end(own[0])
        if len(self._logins) >= self._logins_max:
            self._end(next(iter(self._logins)))
        value = random_value()
        ends_ms = self._clock.monotonic_ms() + 1e3 * min(valid_s, LOGIN_S_MAX)
        key = _key(value)
        self._logins[key] = _Login(principal, host, ends_ms)
        self._each.setdefault(principal, deque()).append(key)
        return value

    def principal_of(self, value: str, host: str) -> str | None:
        """Return whose cookie this is; None if its login has ended, or began at another address."""
        login = self._logins.get(_key(value))
        if login is None or login.host != host:
            return None
        if self._clock.monotonic_ms() >= login.ends_ms:
            self.end(value)
            return None
        return login.principal

    def end(self, value: str) -> None:
        """End a login, if there is one with this cookie."""
        self._end(_key(value))

    def _end(self, key: bytes) -> None:
        login = self._logins.pop(key, None)
        if login is None:
            return
        own = self._each[login.principal]
        own.remove(key)
        if not own:
            del self._each[login.principal]


def _key(value: str) -> bytes:
    return hashlib.sha256(value.encode()).digest()


class SignedIn(NamedTuple):
    """Who a caller is."""

    principal: str | None
    """None if the caller must prove itself first."""
    headers: tuple[tuple[str, str], ...] = ()
    """What the answer must have."""


class SigningIn:
    """Finds out who callers without a certificate are. Use it in one event loop.

    Args:
        service: takes tokens.
        logins: remembers callers that have proven themselves.
    """

    def __init__(self, service: TicketService, logins: Logins | None = None) -> None:
        self._service = service
        self._logins = Logins() if logins is None else logins

    async def identify(self, headers: Headers, host: str, *, secure: bool) -> SignedIn:
        """Find out who makes a request: by its token, or else by its cookie.

        Args:
            headers: the request's.
            host: the address from which it comes.
            secure: whether it came by HTTPS.

        Raises:
            RefusedError: its token proves nothing.
            HQueueError: no thread was free for the token.
        """
        cookie = cookie_in(headers, LOGIN_COOKIE, secure=secure)
        token = _token_in(headers)
        if token is None:
            known = None if cookie is None else self._logins.principal_of(cookie, host)
            return SignedIn(known, () if known else (CHALLENGE,))
        proof = await self._service.take(token)
        if cookie is not None and self._logins.principal_of(cookie, host) == proof.principal:
            self._logins.end(cookie)  # The new one takes its place.
        value = self._logins.begin(proof.principal, host, proof.valid_s)
        added = [made_cookie(LOGIN_COOKIE, value, secure=secure)]
        if proof.answer:
            scheme, text = CHALLENGE
            added.append((scheme, f"{text} {base64.b64encode(proof.answer).decode()}"))
        return SignedIn(proof.principal, tuple(added))


def token_length(headers: Headers) -> int:
    """How many bytes of the headers are those of tokens."""
    return sum(map(len, headers.getlist("authorization")))


def _token_in(headers: Headers) -> bytes | None:
    """The token of a request; None if it has none.

    Raises:
        RefusedError: it has several, or one that is not valid.
    """
    given = headers.getlist("authorization")
    if len(given) > 1:
        raise RefusedError("a request may have one header Authorization")
    scheme, _, text = (given[0] if given else "").strip().partition(" ")
    if scheme.lower() != "negotiate":
        return None
    try:
        token = base64.b64decode(text.strip(), validate=True)
    except ValueError:
        token = b""
    if not token:
        raise RefusedError("the header Authorization has no token in base64")
    return token
