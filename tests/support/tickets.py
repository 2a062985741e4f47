"""Tickets that a service's own key makes, for tests that have no KDC.

The key of a service is all that a ticket for it takes, in any name: a KDC does nothing else. The
tickets lie in a cache, where MIT's library finds them, so that it asks no KDC.

    Ticket          5, realm, service, EncryptedData      RFC 4120, 5.3
    EncTicketPart   flags, session key, realm and name of the client, times
    cache           05 04, no header, the client, and for each ticket: client, service, key, times
"""

from __future__ import annotations

import base64
import ctypes as c
import datetime
import hashlib
import itertools
import os
import re
import struct
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx

from hqueue.net.gssapi import Context, Credential
from tests.support.keytabs import AES256, keytab

__all__ = [
    "SERVICE", "Negotiation", "Ticket", "WithTicket", "kerberos_in", "key_of", "write_cache",
    "write_keytab",
]  # fmt: skip

SERVICE = "HTTP/localhost@TEST"

USAGE_OF_TICKETS = 2
FORWARDABLE_INITIAL = bytes.fromhex("40400000")


class _Data(c.Structure):
    _fields_ = (("magic", c.c_int32), ("length", c.c_uint), ("data", c.c_char_p))


class _EncryptedData(c.Structure):
    _fields_ = (
        ("magic", c.c_int32), ("kind", c.c_int32), ("version", c.c_uint), ("cipher", _Data),
    )  # fmt: skip


class _Key(c.Structure):
    _fields_ = (
        ("magic", c.c_int32), ("kind", c.c_int32), ("length", c.c_uint), ("contents", c.c_char_p),
    )  # fmt: skip


_KRB5 = bytes.fromhex("06092a864886f712010202")
_SPNEGO = bytes.fromhex("06062b0601050502")

_names = itertools.count()


@dataclass(frozen=True)
class Ticket:
    """A ticket.

    Args:
        client: in whose name, as ``alice@REALM``.
        service: for which principal.
        key: the service's key; that of `key_of` if None.
        valid_s: how long from now on it is valid; a negative number for one that has expired.
        extra: so many bytes of authorization data, as a PAC is.
    """

    client: str = "alice@TEST"
    service: str = SERVICE
    key: bytes | None = None
    valid_s: int = 3_600
    extra: int = 0


class Negotiation(httpx.Auth):
    """What a browser does with tickets: it answers 401 and ``Negotiate`` with a token.

    Args:
        store: where tickets or keys lie, as `Credential` takes them.
        service: the server's principal.
        client: the client's; that of the tickets if None.
    """

    def __init__(self, store: Mapping[str, str], service: str, client: str | None = None) -> None:
        self._store = store
        self._service = service
        self._client = client
        self.context: Context | None = None
        """That of the newest token."""
        self.tokens = 0
        """How many tokens were made."""

    def token(self) -> bytes:
        """Make another token."""
        credential = Credential(self._client, self._store)
        self.context = Context(credential, self._service, confidential=False)
        self.tokens += 1
        return _wrapped(self.context.step(b""))

    def header(self) -> dict[str, str]:
        """Make a request's header with another token."""
        return {"authorization": f"Negotiate {base64.b64encode(self.token()).decode()}"}

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        answer = yield request
        if answer.status_code == 401 and answer.headers.get("www-authenticate") == "Negotiate":
            request.headers.update(self.header())
            answer = yield request
        if answer.headers.get("www-authenticate", "").startswith("Negotiate "):
            self.check(answer)

    def check(self, answer: httpx.Response) -> None:
        """Check that the answer proves the server."""
        scheme, _, text = answer.headers["www-authenticate"].partition(" ")
        token = base64.b64decode(text, validate=True)
        assert scheme == "Negotiate"
        assert self.context is not None
        self.context.step(kerberos_in(token))
        assert self.context.complete


class WithTicket(Negotiation):
    """A browser whose cache of tickets has this one.

    Args:
        folder: where the cache lies.
        ticket: the ticket.
    """

    def __init__(self, folder: Path, ticket: Ticket) -> None:
        cache = write_cache(folder / f"tickets-{next(_names)}", ticket)
        super().__init__({"ccache": cache}, ticket.service)


def key_of(service: str) -> bytes:
    """The key of a service in these tests."""
    return hashlib.sha256(service.encode()).digest()


def write_keytab(path: Path, *principals: str) -> str:
    """Write a keytab with the keys of these principals, and return its path."""
    each = [keytab(principal, key_of(principal)) for principal in principals]
    path.write_bytes(each[0] + b"".join(more[2:] for more in each[1:]))
    return str(path)


def _wrapped(token: bytes) -> bytes:
    """Wrap a token of Kerberos as a browser does: in a ``NegTokenInit`` of RFC 4178."""
    mechanisms = _tagged(0, _sequence(_KRB5))
    return _der(0x60, _SPNEGO + _tagged(0, _sequence(mechanisms, _tagged(2, _der(4, token)))))


def write_cache(path: Path, *tickets: Ticket) -> str:
    """Write tickets of one client into a cache, and return its name for the library."""
    client = _stored_name(tickets[0].client)
    path.write_bytes(b"\x05\x04\0\0" + client + b"".join(map(_stored, tickets)))
    return f"FILE:{path}"


def kerberos_in(token: bytes) -> bytes:
    """The token of Kerberos in a server's ``NegTokenResp``."""
    found = re.search(rb"\x60(?:[\0-\x7f]|\x81.|\x82..)" + re.escape(_KRB5), token, re.DOTALL)
    assert found is not None
    length = found[0][1:].partition(_KRB5)[0]
    size = length[0] if len(length) == 1 else int.from_bytes(length[1:], "big")
    return token[found.start() :][: 1 + len(length) + size]


def _stored(ticket: Ticket) -> bytes:
    session, now_s = os.urandom(32), int(time.time())
    begins_s = now_s - 60 if ticket.valid_s > 0 else now_s + ticket.valid_s - 60
    ends_s = now_s + ticket.valid_s
    part = _sequence(
        _tagged(0, b"\x03\x05\0" + FORWARDABLE_INITIAL),
        _tagged(1, _sequence(_tagged(0, _integer(AES256)), _tagged(1, _der(4, session)))),
        _tagged(2, _text(_realm(ticket.client))),
        _tagged(3, _name(ticket.client)),
        _tagged(4, _sequence(_tagged(0, _integer(1)), _tagged(1, _der(4, b"")))),
        _tagged(5, _time(begins_s)),
        _tagged(7, _time(ends_s)),
        *([_tagged(10, _extra(ticket.extra))] if ticket.extra else []),
    )
    cipher = _encrypt(ticket.key or key_of(ticket.service), _der(0x63, part))
    encrypted = _sequence(
        _tagged(0, _integer(AES256)), _tagged(1, _integer(1)), _tagged(2, _der(4, cipher))
    )
    whole = _der(
        0x61,
        _sequence(
            _tagged(0, _integer(5)),
            _tagged(1, _text(_realm(ticket.service))),
            _tagged(2, _name(ticket.service)),
            _tagged(3, encrypted),
        ),
    )
    # The library shows no ticket that has expired, so the cache says that none has.
    shown_s = now_s + abs(ticket.valid_s)
    return b"".join(
        (
            _stored_name(ticket.client),
            _stored_name(ticket.service),
            struct.pack(">H", AES256) + _counted(session),
            struct.pack(">IIII", begins_s, begins_s, shown_s, 0),
            b"\0" + FORWARDABLE_INITIAL + bytes(8),  # No addresses, no authorization data.
            _counted(whole) + _counted(b""),
        )
    )


def _stored_name(principal: str) -> bytes:
    components = _components(principal)
    texts = (_realm(principal), *components)
    return struct.pack(">II", 1, len(components)) + b"".join(_counted(t.encode()) for t in texts)


def _counted(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def _realm(principal: str) -> str:
    return principal.rpartition("@")[2]


def _components(principal: str) -> list[str]:
    return principal.rpartition("@")[0].split("/")


def _extra(size: int) -> bytes:
    """Authorization data that no service must understand."""
    filler = _sequence(_tagged(0, _integer(9_999)), _tagged(1, _der(4, bytes(size))))
    wrapped = _sequence(_tagged(0, _integer(1)), _tagged(1, _der(4, _sequence(filler))))
    return _sequence(wrapped)


def _name(principal: str) -> bytes:
    texts = b"".join(map(_text, _components(principal)))
    return _sequence(_tagged(0, _integer(1)), _tagged(1, _der(0x30, texts)))


def _der(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + content


def _sequence(*parts: bytes) -> bytes:
    return _der(0x30, b"".join(parts))


def _tagged(number: int, content: bytes) -> bytes:
    return _der(0xA0 | number, content)


def _integer(number: int) -> bytes:
    return _der(2, number.to_bytes(number.bit_length() // 8 + 1, "big"))


def _text(text: str) -> bytes:
    return _der(0x1B, text.encode())


def _time(at_s: int) -> bytes:
    at = datetime.datetime.fromtimestamp(at_s, datetime.timezone.utc)
    return _der(0x18, at.strftime("%Y%m%d%H%M%SZ").encode())


def _encrypt(key: bytes, plain: bytes) -> bytes:
    crypto = c.CDLL("libk5crypto.so.3")
    size = c.c_size_t()
    assert not crypto.krb5_c_encrypt_length(None, AES256, c.c_size_t(len(plain)), c.byref(size))
    out = c.create_string_buffer(size.value)
    given = _Data(0, len(plain), plain)
    made = _EncryptedData(0, 0, 0, _Data(0, size.value, c.cast(out, c.c_char_p)))
    used = _Key(0, AES256, len(key), key)
    assert not crypto.krb5_c_encrypt(
        None, c.byref(used), USAGE_OF_TICKETS, None, c.byref(given), c.byref(made)
    )
    return out.raw
