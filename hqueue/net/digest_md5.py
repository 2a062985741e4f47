"""Implements SASL's mechanism DIGEST-MD5 (RFC 2831) for clients: both sides prove that they know a
password, which is not sent.

```
server  realm="…",nonce="…",qop="auth",charset=utf-8,algorithm=md5-sess
client  username="…",realm="…",nonce="…",nc=00000001,cnonce="…",digest-uri="…",response=…,qop=auth
server  rspauth=…
```

With the protection ``integrity`` (``auth-int``) what follows goes in tokens: the data, 10 bytes of
a HMAC over the token's number and the data, ``00 01``, and the number (4 bytes, big-endian).
``privacy`` would need ciphers that nobody should use any more.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping, Sequence

from hqueue.net.refusals import RefusedError
from hqueue.settings.security import AUTHENTICATION, INTEGRITY

__all__ = ["DigestMd5"]

_DIRECTIVE = re.compile(r'[\s,]*([\w-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s",]+))\s*(?=,|$)')
_COUNT = "00000001"
_QOPS = {AUTHENTICATION: "auth", INTEGRITY: "auth-int"}
_NO_ENTITY = ":" + "0" * 32
_MAC_BYTES, _TYPE = 10, b"\0\1"
_TO_SERVER, _TO_CLIENT = "AUTHENTICATE", ""


class DigestMd5:
    """Conducts one exchange. The client's first message is empty.

    Args:
        user: the user's name.
        password: the password.
        uri: the service, as the server expects it: ``service/host``.
        protections: the layers that are good enough, the best one first.
        realm: the realm; that of the server's challenge if None.
        nonce: the client's, which no other exchange has; a random one if None.
    """

    def __init__(
        self,
        user: str,
        password: str,
        uri: str,
        *,
        protections: Sequence[str] = (AUTHENTICATION,),
        realm: str | None = None,
        nonce: str | None = None,
    ) -> None:
        self._user = user
        self._password = password
        self._uri = uri
        self._protections = protections
        self._realm = realm
        self._nonce = nonce or secrets.token_urlsafe(24)
        self._proof: str | None = None
        """What a server answers that knows the password; None before the response."""
        self._chosen = AUTHENTICATION
        self._keys: Sequence[bytes] = ()
        """Of this side, and of the server."""
        self._sent = self._received = 0
        self.protection: str | None = None
        """The layer that was chosen; None before. Then the exchange is over."""

    def answer(self, challenge: bytes) -> bytes | None:
        """Answer a challenge; None if the exchange needs no answer.

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
                "the server doesn't know the password, so it may be an impostor: check "
                "the server's address"
            )
        self.protection = self._chosen
        return None

    def _response(self, said: Mapping[str, str]) -> bytes:
        if said.get("algorithm") != "md5-sess" or not said.get("nonce"):
            raise ValueError("the server's challenge is malformed")
        offered = [each.strip() for each in said.get("qop", "auth").split(",")]
        chosen = next((each for each in self._protections if _QOPS[each] in offered), None)
        if chosen is None:
            raise RefusedError(
                "the server offers no protection of DIGEST-MD5 that this client knows and allows: "
                "let the server offer authentication or integrity (hbase.rpc.protection), and "
                "encrypt with TLS",
                offered=offered,
                allowed=[_QOPS[each] for each in self._protections],
            )
        self._chosen, qop = chosen, _QOPS[chosen]
        realm = said.get("realm", "") if self._realm is None else self._realm
        is_utf8 = said.get("charset", "").lower() == "utf-8"
        nonces = f"{said['nonce']}:{self._nonce}"
        secret = _md5(b":".join(map(_hashed, (self._user, realm, self._password))))
        key = _md5(secret + f":{nonces}".encode())
        self._keys = [
            _md5(key + f"Digest session key to {way} signing key magic constant".encode())
            for way in ("client-to-server", "server-to-client")
        ]

        def proof(way: str) -> str:
            entity = _NO_ENTITY if chosen == INTEGRITY else ""
            uri = _md5(f"{way}:{self._uri}{entity}".encode()).hex()
            parts = (key.hex(), said["nonce"], _COUNT, self._nonce, qop, uri)
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
            f"qop={qop}",
        ]
        try:
            return ",".join(fields).encode("utf-8" if is_utf8 else "latin-1")
        except UnicodeEncodeError as exc:
            raise RefusedError("the server accepts only users' names in ISO 8859-1") from exc

    @property
    def wraps(self) -> bool:
        """Whether data after the exchange goes in tokens."""
        return self.protection != AUTHENTICATION

    def wrap(self, data: bytes) -> bytes:
        """Wrap data into a token."""
        number = self._sent.to_bytes(4, "big")
        self._sent = (self._sent + 1) % 2**32
        return b"".join((data, _mac(self._keys[0], number, data), _TYPE, number))

    def unwrap(self, token: bytearray) -> bytes:
        """Return the data in a token.

        Raises:
            OSError: it was changed on its way, or is not the next one.
        """
        number = self._received.to_bytes(4, "big")
        end = len(token) - _MAC_BYTES - len(_TYPE) - len(number)
        data = bytes(token[: max(0, end)])
        expected = _mac(self._keys[1], number, data) + _TYPE + number
        if end < 0 or not hmac.compare_digest(bytes(token[end:]), expected):
            raise ConnectionError("the server sent a frame that was changed on its way")
        self._received = (self._received + 1) % 2**32
        return data


def _directives(challenge: bytes) -> dict[str, str]:
    """Parse a server's directives by name. Of several realms the first counts."""
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
    """Encode a text for hashing: in ISO 8859-1 if possible, whatever it is sent in."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def _quoted(text: str) -> str:
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


def _mac(key: bytes, number: bytes, data: bytes) -> bytes:
    return hmac.digest(key, number + data, "md5")[:_MAC_BYTES]


def _md5(data: bytes) -> bytes:
    return hashlib.new("md5", data, usedforsecurity=False).digest()
