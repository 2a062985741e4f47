"""Lets only those requests through that the user of a browser makes, and bounds each of them.

The console listens where other sites' pages in the same browser reach it, too. So a request must
name the console's own host, which a page of another name can't, even if its name has this address.
A request that another site causes is refused, unless the user follows a link. A change needs this
site as its origin, and a token that only its pages have. Where users have tickets of Kerberos, the
gate finds out who they are.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import urllib.parse
from collections.abc import Callable, Collection, MutableMapping
from typing import Any, NamedTuple

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse

from hqueue.errors import HQueueError, InvalidInputError, NotAllowedError
from hqueue.net.audit import Audit
from hqueue.net.guard import AllowedPrincipals
from hqueue.net.refusals import RefusedError
from hqueue_workers.console.cookies import cookie_in, made_cookie, random_value
from hqueue_workers.console.protocol import (
    CALLER,
    HEAD_BYTES_MAX,
    TOKEN_LENGTH_MAX,
    App,
    Receive,
    Scope,
    Send,
)
from hqueue_workers.console.rights import Caller
from hqueue_workers.console.signing_in import CHALLENGE, SigningIn, token_length

__all__ = ["SESSION", "FormTokens", "Gate", "read_form"]

TARGET_BYTES_MAX = 8 * 1024
BODY_BYTES_MAX = 16 * 1024
FIELDS_MAX = 64
BODY_S_MAX = 10.0
REQUESTS_MAX = 32
"""How many requests may be answered at a time, beside streams."""
REQUEST_S_MAX = 60.0
"""A request is abandoned after this time. Pages have shorter bounds for what they read."""

SESSION = "hqueue.session"
"""The key of a request's scope that has the browser's session."""
COOKIE = "hqueue_console"

HEALTH = "/healthz"
STREAMS = "/stream"
"""The end of the paths of streams, which have bounds of their own."""

UNKNOWN = (
    "The console must know who you are, by a certificate or by a ticket of Kerberos. Get a ticket "
    "(kinit), and let your browser use it here: add this address to network.negotiate-auth."
    "trusted-uris in Firefox, or to the policy AuthServerAllowlist in Chromium."
)

SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class FormTokens:
    """Makes the tokens of forms: only a page of this console has the token of its session."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def token(self, session: str) -> str:
        """The token of a session."""
        return hmac.new(self._key, session.encode(), hashlib.sha256).hexdigest()

    def check(self, session: str | None, token: str | None) -> None:
        """Check a form's token.

        Raises:
            NotAllowedError: it is not that of the session.
        """
        expected = "" if session is None else self.token(session)
        given = (token or "").encode("utf-8", "replace")
        if not expected or not hmac.compare_digest(expected.encode(), given):
            raise NotAllowedError(
                "the form is not of this session: load the page again, and let the browser keep "
                "the console's cookie"
            )


class _Refusal(NamedTuple):
    """Why a request may not pass."""

    status: int
    text: str
    """What the caller reads."""
    reason: str = ""
    """What only the audit says."""
    is_challenge: bool = False
    """Whether the caller only hears that it must prove itself: so the first request of each browser
    is answered, and nobody needs to read of it.
    """


class Gate:
    """An ASGI application before another one.

    Args:
        app: the application.
        hosts: the host names that a request may have, in lower case.
        allowed: who may open the console; None if callers prove nothing.
        on_refused: called with the status of each refusal.
        signing_in: finds out who callers without a certificate are; None if it can't.
    """

    def __init__(
        self,
        app: App,
        hosts: Collection[str],
        allowed: AllowedPrincipals | None,
        on_refused: Callable[[int], object] = lambda status: None,
        signing_in: SigningIn | None = None,
    ) -> None:
        self._on_refused = on_refused
        self._app = app
        self._hosts = hosts
        self._allowed = allowed
        self._signing_in = signing_in
        self._audit = Audit()
        self._under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        answer = _Answer(send, scope)
        if scope["path"] == HEALTH and scope["method"] in ("GET", "HEAD"):
            await _text(200, "ok")(scope, receive, answer.send)
            return
        refusal = self._refusal(scope, headers)
        if refusal is None:
            refusal = await self._unproven(scope, headers, answer)
        if refusal is not None:
            if not refusal.is_challenge:
                self._on_refused(refusal.status)
                caller: Caller = scope[CALLER]
                reason = f"{refusal.text} {refusal.reason}".strip()
                self._audit.refused_for_now(
                    "request", caller.principal, caller.host, reason, port="console"
                )
            await _text(refusal.status, refusal.text)(scope, receive, answer.send)
            return
        answer.begin_session(headers)
        if scope["path"].endswith(STREAMS):
            await self._app(scope, receive, answer.send)
            return
        if self._under_way >= REQUESTS_MAX:
            self._on_refused(503)
            await _text(503, "The console is busy: try again in a moment.")(
                scope, receive, answer.send
            )
            return
        self._under_way += 1
        try:
            await asyncio.wait_for(self._app(scope, receive, answer.send), REQUEST_S_MAX)
        except asyncio.TimeoutError:
            if not answer.begun:
                text = "The servers did not answer in time: see the page Health."
                await _text(503, text)(scope, receive, answer.send)
        finally:
            self._under_way -= 1

    def _refusal(self, scope: Scope, headers: Headers) -> _Refusal | None:
        """The refusal of a request for what it is; None if it may pass, if its caller may."""
        large = self._too_large(scope, headers)
        if large is not None:
            return large
        method = scope["method"]
        if method not in ("GET", "HEAD", "POST"):
            return _Refusal(405, "The console answers GET, HEAD and POST.")
        named = headers.getlist("host")
        if len(named) != 1 or host_in(named[0]) not in self._hosts:
            return _Refusal(
                421,
                "The console is not known under this name: add the name to its setting host_names.",
            )
        return self._foreign(method, f"{scope['scheme']}://{named[0].lower()}", headers)

    async def _unproven(self, scope: Scope, headers: Headers, answer: _Answer) -> _Refusal | None:
        """The refusal of a caller that may not open the console; None if it may, and the request's
        scope names it.
        """
        if self._allowed is None:
            return None
        caller: Caller = scope[CALLER]
        principal = caller.principal
        if principal is None and self._signing_in is not None:
            secure = scope["scheme"] == "https"
            try:
                signed = await self._signing_in.identify(headers, caller.host, secure=secure)
            except RefusedError as exc:
                answer.add(*CHALLENGE)
                facts = "; ".join(f"{name}: {fact}" for name, fact in exc.facts.items())
                return _Refusal(401, f"You are not known: {exc.text}.", facts)
            except HQueueError:
                return _Refusal(503, "The console is busy: try again in a moment.")
            for name, text in signed.headers:
                answer.add(name, text)
            principal = signed.principal
            if principal is None:
                return _Refusal(401, UNKNOWN, is_challenge=True)
            scope[CALLER] = caller._replace(principal=principal)
        if principal is None:
            return _Refusal(403, "The console needs a certificate that names a principal.")
        error = self._allowed.right_missing(principal)
        return None if error is None else _Refusal(403, str(error))

    def _foreign(self, method: str, own: str, headers: Headers) -> _Refusal | None:
        """The refusal of what another site causes."""
        origin = headers.get("origin")
        site = headers.get("sec-fetch-site", "none")
        if method == "POST":
            if origin != own or site not in ("same-origin", "none"):
                return _Refusal(403, "A change must come from a page of this console.")
            return _unfit_form(headers)
        follows_link = (
            headers.get("sec-fetch-mode") == "navigate"
            and headers.get("sec-fetch-dest") == "document"
        )
        is_own = site in ("same-origin", "none") and origin in (None, own)
        if not is_own and not (follows_link and origin is None):
            return _Refusal(403, "Pages of other sites may not read this console.")
        return None

    def _too_large(self, scope: Scope, headers: Headers) -> _Refusal | None:
        """The refusal of a request whose address or headers are too large."""
        if len(scope["raw_path"]) + len(scope["query_string"]) > TARGET_BYTES_MAX:
            return _Refusal(414, "The address is too long.")
        size = sum(len(name) + len(value) for name, value in scope["headers"])
        if self._signing_in is not None:
            token = token_length(headers)
            if token > TOKEN_LENGTH_MAX:
                return _Refusal(431, "The header Authorization is too long.")
            size -= token
        if size > HEAD_BYTES_MAX:
            return _Refusal(431, f"A request may have {HEAD_BYTES_MAX:,} bytes of headers.")
        return None


def _unfit_form(headers: Headers) -> _Refusal | None:
    """The refusal of a body that is not a form of the console's size."""
    if headers.get("content-type", "").partition(";")[0].strip() != FORM:
        return _Refusal(415, f"A change must be a form ({FORM}).")
    size = headers.get("content-length", "")
    if not (size.isascii() and size.isdigit()):
        return _Refusal(411, "A form must say its length.")
    if len(size) > 9 or int(size) > BODY_BYTES_MAX:
        return _Refusal(413, f"A form may have {BODY_BYTES_MAX:,} bytes.")
    return None


FORM = "application/x-www-form-urlencoded"


async def read_form(receive: Receive) -> dict[str, str]:
    """Read the fields of a form.

    Raises:
        InvalidInputError: the form is too large, too slow or not valid.
    """
    try:
        body = await asyncio.wait_for(_body(receive), BODY_S_MAX)
        fields = urllib.parse.parse_qsl(
            body.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(body),
            errors="strict",
            max_num_fields=FIELDS_MAX,
        )
    except asyncio.TimeoutError:
        raise InvalidInputError("the form did not arrive in time: send it again") from None
    except ValueError as exc:
        raise InvalidInputError("the form is not valid", reason=str(exc)[:80]) from exc
    return dict(fields)


async def _body(receive: Receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise InvalidInputError(
                "the browser closed the connection before the whole form had arrived"
            )
        body += bytes(message.get("body", b""))
        if len(body) > BODY_BYTES_MAX:
            raise InvalidInputError("the form is too large", bytes_max=BODY_BYTES_MAX)
        if not message.get("more_body", False):
            return body


def host_in(header: str) -> str:
    """The host's name in a ``Host`` header, in lower case, without the port and brackets; empty if
    the header is not valid.
    """
    name, colon, port = header.strip().lower().rpartition(":")
    if not colon or header.endswith("]"):
        name, port = header.strip().lower(), "0"
    if not (port.isascii() and port.isdigit()):
        return ""
    if name.startswith("[") and name.endswith("]"):
        return name[1:-1]
    return "" if ":" in name else name.removesuffix(".")


def _text(status: int, text: str) -> PlainTextResponse:
    return PlainTextResponse(f"{text}\n", status)


class _Answer:
    """Adds headers to an answer, and cookies."""

    def __init__(self, send: Send, scope: Scope) -> None:
        self.begun = False
        self._send = send
        self._scope = scope
        self._added: list[tuple[str, str]] = []

    def add(self, name: str, text: str) -> None:
        """Add a header, beside others of this name."""
        self._added.append((name, text))

    def begin_session(self, headers: Headers) -> None:
        """Find the browser's session, or make one."""
        secure = self._scope["scheme"] == "https"
        session = cookie_in(headers, COOKIE, secure=secure)
        if session is None:
            session = random_value()
            self.add(*made_cookie(COOKIE, session, secure=secure))
        self._scope[SESSION] = session

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Send a part of the answer."""
        if message["type"] == "http.response.start":
            self.begun = True
            given = {name.lower() for name, _ in message.get("headers", ())}
            added = {"Cache-Control": "no-store", **SECURITY_HEADERS}
            message["headers"] = [
                *message.get("headers", ()),
                *(
                    (name.lower().encode(), text.encode())
                    for name, text in added.items()
                    if name.lower().encode() not in given
                ),
                *((name.lower().encode(), text.encode()) for name, text in self._added),
            ]
        await self._send(message)
