"""A server's side of DIGEST-MD5."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping

__all__ = ["DigestMd5Server"]


class DigestMd5Server:
    """One exchange.

    Args:
        users: their passwords.
        uri: the service.
    """

    def __init__(self, users: Mapping[str, str], uri: str) -> None:
        self._users = users
        self._uri = uri
        self._nonce = secrets.token_hex(8)
        self.user = ""
        """The user, once the client has answered."""

    @property
    def challenge(self) -> bytes:
        return (
            f'realm="hosts",nonce="{self._nonce}",qop="auth",charset=utf-8,algorithm=md5-sess'
        ).encode()

    def proof(self, response: bytes) -> bytes | None:
        """What a client is answered; None if it doesn't know the password."""
        found = re.findall(r'([\w-]+)=(?:"([^"]*)"|([^,]*))', response.decode())
        said = {name: quoted or plain for name, quoted, plain in found}
        self.user = said.get("username", "")
        password = self._users.get(self.user)
        if password is None or said.get("nonce") != self._nonce:
            return None
        secret = _md5(f"{self.user}:{said['realm']}:{password}".encode())
        key = _md5(secret + f":{self._nonce}:{said['cnonce']}".encode()).hex()

        def response_of(way: str) -> str:
            uri = _md5(f"{way}:{self._uri}".encode()).hex()
            text = f"{key}:{self._nonce}:{said['nc']}:{said['cnonce']}:{said['qop']}:{uri}"
            return _md5(text.encode()).hex()

        if said.get("response") != response_of("AUTHENTICATE"):
            return None
        return f"rspauth={response_of('')}".encode()


def _md5(data: bytes) -> bytes:
    return hashlib.new("md5", data, usedforsecurity=False).digest()
