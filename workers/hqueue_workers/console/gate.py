"""Lets only those requests through that the user of a browser makes, and bounds each of them.

The console listens where other sites' pages in the same browser reach it, too. So a request must
name the console's own host, which a page of another name can't, even if its name has this address.
A request that another site causes is refused, unless the user follows a link. A change needs this
site as its origin, and a token that only its pages have.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import urllib.parse
from collections.abc import Callable, Collection, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse

from hqueue.errors import InvalidInputError, NotAllowedError
from hqueue.net.audit import Audit
from hqueue.net.guard import PortGuard
from hqueue_workers.console.protocol import CALLER, HEAD_BYTES_MAX, App, Receive, Scope, Send
from hqueue_workers.console.rights import Caller

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
COOKIE, SECURE_COOKIE = "hqueue_console", "__Host-hqueue_console"
SESSION_LENGTH = 43

HEALTH = "/healthz"
STREAMS = "/stream"
"""The end of the paths of streams, which have bounds of their own."""

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


class Gate:
    """An ASGI application before another one.

    Args:
        app: the application.
        hosts: the host names that a request may have, in lower case.
        guard: who may open the console; None if callers prove nothing.
        on_refused: called with the status of each refusal.
    """

    def __init__(
        self,
        app: App,
        hosts: Collection[str],
        guard: PortGuard | None,
        on_refused: Callable[[int], object] = lambda status: None,
    ) -> None:
        self._on_refused = on_refused
        self._app = app
        self._hosts = hosts
        self._guard = guard
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
        if refusal is not None:
            status, text = refusal
            self._on_refused(status)
            caller: Caller = scope[CALLER]
            self._audit.refused_for_now(
                "request", caller.principal, caller.host, text, port="console"
            )
            await _text(status, text)(scope, receive, answer.send)
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

    def _refusal(self, scope: Scope, headers: Headers) -> tuple[int, str] | None:
        """The status and the text of a refusal; None if the request may pass."""
        large = _too_large(scope)
        if large is not None:
            return large
        method = scope["method"]
        if method not in ("GET", "HEAD", "POST"):
            return 405, "The console answers GET, HEAD and POST."
        named = headers.getlist("host")
        if len(named) != 1 or host_in(named[0]) not in self._hosts:
            return 421, (
                "The console is not known under this name: add the name to its setting host_names."
            )
        caller: Caller = scope[CALLER]
        if self._guard is not None:
            if caller.principal is None:
                return 403, "The console needs a certificate that names a principal."
            error = self._guard.right_missing(caller.principal)
            if error is not None:
                return 403, str(error)
        return self._foreign(method, f"{scope['scheme']}://{named[0].lower()}", headers)

    def _foreign(self, method: str, own: str, headers: Headers) -> tuple[int, str] | None:
        """The refusal of what another site causes."""
        origin = headers.get("origin")
        site = headers.get("sec-fetch-site", "none")
        if method == "POST":
            if origin != own or site not in ("same-origin", "none"):
                return 403, "A change must come from a page of this console."
            return _unfit_form(headers)
        follows_link = (
            headers.get("sec-fetch-mode") == "navigate"
            and headers.get("sec-fetch-dest") == "document"
        )
        is_own = site in ("same-origin", "none") and origin in (None, own)
        if not is_own and not (follows_link and origin is None):
            return 403, "Pages of other sites may not read this console."
        return None


def _too_large(scope: Scope) -> tuple[int, str] | None:
    """The refusal of a request whose address or headers are too large."""
    if len(scope["raw_path"]) + len(scope["query_string"]) > TARGET_BYTES_MAX:
        return 414, "The address is too long."
    if sum(len(name) + len(value) for name, value in scope["headers"]) > HEAD_BYTES_MAX:
        return 431, f"A request may have {HEAD_BYTES_MAX:,} bytes of headers."
    return None


def _unfit_form(headers: Headers) -> tuple[int, str] | None:
    """The refusal of a body that is not a form of the console's size."""
    if headers.get("content-type", "").partition(";")[0].strip() != FORM:
        return 415, f"A change must be a form ({FORM})."
    size = headers.get("content-length", "")
    if not (size.isascii() and size.isdigit()):
        return 411, "A form must say its length."
    if len(size) > 9 or int(size) > BODY_BYTES_MAX:
        return 413, f"A form may have {BODY_BYTES_MAX:,} bytes."
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
    """Adds headers to an answer, and the cookie of a new session."""

    def __init__(self, send: Send, scope: Scope) -> None:
        self.begun = False
        self._send = send
        self._scope = scope
        self._cookie: str | None = None

    def begin_session(self, headers: Headers) -> None:
        """Find the browser's session, or make one."""
        secure = self._scope["scheme"] == "https"
        name = SECURE_COOKIE if secure else COOKIE
        session = _cookie_in(headers, name)
        if session is None:
            session = secrets.token_urlsafe(32)
            rest = "; Secure" if secure else ""
            self._cookie = f"{name}={session}; Path=/; HttpOnly; SameSite=Strict{rest}"
        self._scope[SESSION] = session

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Send a part of the answer."""
        if message["type"] == "http.response.start":
            self.begun = True
            given = {name.lower() for name, _ in message.get("headers", ())}
            added = {"Cache-Control": "no-store", **SECURITY_HEADERS}
            if self._cookie is not None:
                added["Set-Cookie"] = self._cookie
            message["headers"] = [
                *message.get("headers", ()),
                *(
                    (name.lower().encode(), text.encode())
                    for name, text in added.items()
                    if name.lower().encode() not in given
                ),
            ]
        await self._send(message)


def _cookie_in(headers: Headers, name: str) -> str | None:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return None
    if found is None or len(found.value) != SESSION_LENGTH or not found.value.isascii():
        return None
    return found.value
