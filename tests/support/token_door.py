"""A server's side of proving oneself by a delegation token: DIGEST-MD5, as HBase does it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import struct
from collections.abc import Callable
from typing import Any

from hqueue.hbase.native.wire import preamble
from hqueue.net.tokens import DelegationToken

__all__ = ["TOKEN", "TokenDoor", "identifier", "sasl_refusal"]

Send = Callable[[bytes], Any]

TOKEN_CODE = 82
NONCE = "a-nonce"
MISMATCHED = (
    "javax.security.sasl.SaslException",
    "DIGEST-MD5: digest response format violation. Mismatched response.",
)
FALLS_BACK = struct.pack(">ii", 0, -88)


def identifier(
    principal: str = "app@EXAMPLE.COM", issued_ms: int = 1_000_000, expires_ms: int = 2_000_000
) -> bytes:
    """An identifier as HBase makes it."""
    name = principal.encode()
    message = b"\x08\0\x12" + bytes((len(name),)) + name + b"\x18\x05"
    message += b"\x20" + _varint(issued_ms) + b"\x28" + _varint(expires_ms) + b"\x30\x09"
    return struct.pack(">I", len(message)) + message


def _varint(number: int) -> bytes:
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*written, number))


TOKEN = DelegationToken(identifier(), bytes(range(20)), "0f3e-id")


def sasl_refusal(name: str, text: str) -> bytes:
    """What a server says that does not accept a client."""
    words = [word.encode() for word in (name, text)]
    return struct.pack(">i", 1) + b"".join(struct.pack(">i", len(w)) + w for w in words)


class TokenDoor:
    """Lets clients in that have one of some tokens.

    Args:
        tokens: those that are good.
        qop: the protections that are offered, as the protocol names them.
        asks: whether it asks for a proof at all.
        knows: whether it knows the passwords.
        refusal: the class and the text with which it refuses all; None if it looks at the password.
    """

    def __init__(
        self,
        *tokens: DelegationToken,
        qop: str = "auth,auth-int,auth-conf",
        asks: bool = True,
        knows: bool = True,
        refusal: tuple[str, str] | None = None,
    ) -> None:
        self._passwords = {_code(token.identifier): _code(token.password) for token in tokens}
        self._qop = qop
        self._asks = asks
        self._knows = knows
        self._refusal = refusal
        self.entered: list[tuple[str, str]] = []
        """For each client that was let in, the identifier and the protection."""

    def enter(self, incoming: Any, send: Send) -> tuple[Any, Send]:
        """Shake hands with a client, and return what the rest goes through.

        Raises:
            ConnectionError: the client was refused.
        """
        begins = incoming.read(6)
        if not begins:
            raise ConnectionError("the client has gone")
        assert begins == preamble(TOKEN_CODE)
        assert _frame(incoming) == b""
        if not self._asks:
            send(FALLS_BACK)
            return incoming, send
        challenge = (
            f'realm="default",nonce="{NONCE}",qop="{self._qop}",charset=utf-8,'
            f'cipher="3des,rc4,des,rc4-56,rc4-40",algorithm=md5-sess'
        )
        send(_good(challenge.encode()))
        said = {
            name: quoted or plain
            for name, quoted, plain in re.findall(
                r'([\w-]+)=(?:"([^"]*)"|([^,]*))', _frame(incoming).decode()
            )
        }
        assert (said["digest-uri"], said["realm"]) == ("null/default", "default")
        password = self._passwords.get(said["username"])
        key, expected, proof = _proofs(said, password or "")
        if self._refusal or password is None or said["response"] != expected:
            send(sasl_refusal(*(self._refusal or MISMATCHED)))
            raise ConnectionError("the client was refused")
        send(_good(b"rspauth=" + (proof if self._knows else proof[::-1]).encode()))
        self.entered.append((said["username"], said["qop"]))
        if said["qop"] == "auth":
            return incoming, send
        wrapper = _Wrapper(key, incoming, send)
        return wrapper, wrapper.send


def _proofs(said: dict[str, str], password: str) -> tuple[bytes, str, str]:
    """The key, and what the client and the server must answer."""
    secret = _md5(f"{said['username']}:{said['realm']}:{password}".encode())
    key = _md5(secret + f":{said['nonce']}:{said['cnonce']}".encode())

    def of(method: str) -> str:
        tail = ":" + 32 * "0" if said["qop"] != "auth" else ""
        a2 = _md5(f"{method}:{said['digest-uri']}{tail}".encode()).hex()
        parts = (key.hex(), said["nonce"], said["nc"], said["cnonce"], said["qop"], a2)
        return _md5(":".join(parts).encode()).hex()

    return key, of("AUTHENTICATE"), of("")


class _Wrapper:
    """Integrity: what is sent and comes after the handshake."""

    def __init__(self, key: bytes, incoming: Any, send: Send) -> None:
        magic = b"Digest session key to %b signing key magic constant"
        self._theirs, self._ours = (
            _md5(key + magic % way) for way in (b"client-to-server", b"server-to-client")
        )
        self._incoming, self._send = incoming, send
        self._clear = b""
        self._received = self._sent = 0

    def read(self, count: int) -> bytes:
        while len(self._clear) < count:
            token = _frame(self._incoming)
            data, mac, kind, number = token[:-16], token[-16:-6], token[-6:-4], token[-4:]
            assert (kind, number) == (b"\0\1", struct.pack(">I", self._received))
            assert mac == hmac.digest(self._theirs, number + data, "md5")[:10]
            self._received += 1
            self._clear += data
        taken, self._clear = self._clear[:count], self._clear[count:]
        return taken

    def send(self, data: bytes) -> None:
        number = struct.pack(">I", self._sent)
        mac = hmac.digest(self._ours, number + data, "md5")[:10]
        self._sent += 1
        token = data + mac + b"\0\1" + number
        self._send(struct.pack(">I", len(token)) + token)


def _code(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _md5(data: bytes) -> bytes:
    return hashlib.new("md5", data, usedforsecurity=False).digest()


def _good(token: bytes) -> bytes:
    return struct.pack(">ii", 0, len(token)) + token


def _frame(incoming: Any) -> bytes:
    size: bytes = incoming.read(4)
    if len(size) < 4:
        raise ConnectionError("the client has gone")
    data: bytes = incoming.read(*struct.unpack(">I", size))
    return data
