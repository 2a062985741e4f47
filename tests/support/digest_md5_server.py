"""A server's side of DIGEST-MD5."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import struct
from collections.abc import Mapping

__all__ = ["DigestMd5Server"]


class DigestMd5Server:
    """One exchange.

    Args:
        users: their passwords.
        uri: the service.
        qop: the protections that it offers; it wraps as ``auth-int`` does.
    """

    def __init__(self, users: Mapping[str, str], uri: str, *, qop: str = "auth") -> None:
        self._users = users
        self._uri = uri
        self._qop = qop
        self._key = b""
        self._wrapped = self._unwrapped = 0
        self._nonce = secrets.token_hex(8)
        self.user = ""
        """The user, once the client has answered."""

    @property
    def challenge(self) -> bytes:
        return (
            f'realm="hosts",nonce="{self._nonce}",qop="{self._qop}",charset=utf-8,'
            "algorithm=md5-sess"
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
        self._key = _md5(secret + f":{self._nonce}:{said['cnonce']}".encode())
        body = "" if said["qop"] == "auth" else ":" + "0" * 32

        def response_of(way: str) -> str:
            uri = _md5(f"{way}:{self._uri}{body}".encode()).hex()
            text = (
                f"{self._key.hex()}:{self._nonce}:{said['nc']}:{said['cnonce']}:{said['qop']}:{uri}"
            )
            return _md5(text.encode()).hex()

        if said.get("response") != response_of("AUTHENTICATE"):
            return None
        return f"rspauth={response_of('')}".encode()

    def wrap(self, data: bytes) -> bytes:
        """A token with data, which nobody can change."""
        token = data + self._mac("server-to-client", self._wrapped, data)
        self._wrapped += 1
        return token

    def unwrap(self, token: bytes) -> bytes:
        """The data in a client's token, which must be the next one."""
        data = token[:-16]
        assert token[-16:] == self._mac("client-to-server", self._unwrapped, data)
        self._unwrapped += 1
        return data

    def _mac(self, way: str, number: int, data: bytes) -> bytes:
        """What follows the data: 10 bytes of a MAC, the version, and the token's number."""
        key = _md5(self._key + f"Digest session key to {way} signing key magic constant".encode())
        counted = struct.pack(">I", number)
        return hmac.new(key, counted + data, "md5").digest()[:10] + b"\0\1" + counted


def _md5(data: bytes) -> bytes:
    return hashlib.new("md5", data, usedforsecurity=False).digest()
