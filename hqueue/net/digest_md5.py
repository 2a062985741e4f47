"""SASL's mechanism DIGEST-MD5 (RFC 2831), on a client's side: both sides prove that they know a
password, which is not sent.

```
server  realm="…",nonce="…",qop="auth",charset=utf-8,algorithm=md5-sess
client  username="…",realm="…",nonce="…",nc=00000001,cnonce="…",digest-uri="…",response=…,qop=auth
server  rspauth=…
```
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping

from hqueue.net.refusals import RefusedError
from hqueue.settings.security import AUTHENTICATION

__all__ = ["DigestMd5"]

_DIRECTIVE = re.compile(r'[\s,]*([\w-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s",]+))\s*(?=,|$)')
_COUNT = "00000001"
_QOP = "auth"
_TO_SERVER, _TO_CLIENT = "AUTHENTICATE", ""


class DigestMd5:
    """One exchange. The client's first message is empty.

    Args:
        user: the user's name.
        password: the password.
        uri: the service, as the server expects it: ``service/host``.
        realm: the realm; that of the server's challenge if None.
        nonce: the client's, which no other exchange has; a random one if None.
    """

    def __init__(
        self,
        user: str,
        password: str,
        uri: str,
        *,
        realm: str | None = None,
        nonce: str | None = None,
    ) -> None:
        self._user = user
        self._password = password
        self._uri = uri
        self._realm = realm
        self._nonce = nonce or secrets.token_urlsafe(24)
        self._proof: str | None = None
        """What a server answers that knows the password; None before the response."""
        self.protection: str | None = None
        """The layer that was chosen; None before. Then the exchange is over."""

    def answer(self, challenge: bytes) -> bytes | None:
        """What must be sent after what the server sent; None if nothing must be.

        Raises:
            RefusedError: the server offers no layer that is good enough, or doesn't know the
                password.
            ValueError: what the server sent is malformed.
        """
        said = _directives(challenge)
        if self._proof is None:
            return self._response(said)
        if not hmac.compare_digest(said.get("rspauth", "").encode(), self._proof.encode()):
            raise RefusedError(
                "the server doesn't know the password, so it may be another than it seems: check "
                "the server's address"
            )
        self.protection = AUTHENTICATION
        return None

    def _response(self, said: Mapping[str, str]) -> bytes:
        if said.get("algorithm") != "md5-sess" or not said.get("nonce"):
            raise ValueError("the server's challenge is malformed")
        offered = [each.strip() for each in said.get("qop", _QOP).split(",")]
        if _QOP not in offered:
            raise RefusedError(
                "the server offers no protection of DIGEST-MD5 that this client knows",
                offered=offered,
                known=[_QOP],
            )
        realm = said.get("realm", "") if self._realm is None else self._realm
        is_utf8 = said.get("charset", "").lower() == "utf-8"
        nonces = f"{said['nonce']}:{self._nonce}"
        secret = _md5(b":".join(map(_hashed, (self._user, realm, self._password))))
        key = _md5(secret + f":{nonces}".encode())

        def proof(way: str) -> str:
            uri = _md5(f"{way}:{self._uri}".encode()).hex()
            parts = (key.hex(), said["nonce"], _COUNT, self._nonce, _QOP, uri)
            return _md5(":".join(parts).encode()).hex()

        self._proof = proof(_TO_CLIENT)
        fields = [
            *(["charset=utf-8"] if is_utf8 else []),
            f"username={_quoted(self._user)}",
            f"realm={_quoted(realm)}",
            f"nonce={_quoted(said['nonce'])}",
            f"nc={_COUNT}",
            f"cnonce={_quoted(self._nonce)}",
            f"digest-uri={_quoted(self._uri)}",
            f"response={proof(_TO_SERVER)}",
            f"qop={_QOP}",
        ]
        try:
            return ",".join(fields).encode("utf-8" if is_utf8 else "latin-1")
        except UnicodeEncodeError as exc:
            raise RefusedError(
                "the server takes no user's name with characters beyond ISO 8859-1"
            ) from exc


def _directives(challenge: bytes) -> dict[str, str]:
    """What a server said, by name; the first of several realms."""
    is_utf8 = b"charset=utf-8" in challenge.lower()
    text = challenge.decode("utf-8" if is_utf8 else "latin-1").rstrip(", \t\r\n")
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        directive = _DIRECTIVE.match(text, at)
        if directive is None:
            raise ValueError("the server's challenge is malformed")
        name, quoted, plain = directive.groups()
        found.setdefault(name.lower(), plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted))
        at = directive.end()
    return found


def _hashed(text: str) -> bytes:
    """A text as it is hashed: in ISO 8859-1 if it can be, whatever it is sent in."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def _quoted(text: str) -> str:
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


def _md5(data: bytes) -> bytes:
    return hashlib.new("md5", data, usedforsecurity=False).digest()
