"""The console's cookies."""

from __future__ import annotations

import secrets
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers

__all__ = ["cookie_in", "made_cookie", "random_value"]

VALUE_LENGTH = 43


def random_value() -> str:
    """A value that nobody can guess."""
    return secrets.token_urlsafe(32)


def made_cookie(name: str, value: str, *, secure: bool) -> tuple[str, str]:
    """The header that gives a browser a cookie until it ends, for this console alone.

    Args:
        name: the cookie's name.
        value: its value.
        secure: whether the console speaks HTTPS.
    """
    prefix, rest = ("__Host-", "; Secure") if secure else ("", "")
    return "Set-Cookie", f"{prefix}{name}={value}; Path=/; HttpOnly; SameSite=Strict{rest}"


def cookie_in(headers: Headers, name: str, *, secure: bool) -> str | None:
    """The value of a cookie; None if the browser sent none that could be the console's."""
    prefix = "__Host-" if secure else ""
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(f"{prefix}{name}")
    except CookieError:
        return None
    if found is None or len(found.value) != VALUE_LENGTH or not found.value.isascii():
        return None
    return found.value
