"""Calls the parts of GSS-API (RFC 2744) that clients of Kerberos need, and servers that take single
tokens, in MIT's library. The first use loads the library, and nothing has to be built: Debian has
it as ``libgssapi-krb5-2``.

Its calls let other threads of Python go on.
"""

from __future__ import annotations

import ctypes as c
import ctypes.util
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

from hqueue.net.refusals import RefusedError

__all__ = ["Accepted", "Context", "Credential", "GssError", "ServiceCredential"]

MUTUAL, REPLAY, SEQUENCE, CONFIDENTIALITY, INTEGRITY = 2, 4, 8, 16, 32
_CONTINUE_NEEDED = 1
_FAILED = 0xFFFF0000
_INITIATE, _ACCEPT = 1, 2
_OF_GSS, _OF_MECHANISM = 1, 2

_LIBRARY = "libgssapi_krb5.so.2"
_NAMES = (
    "gss_accept_sec_context", "gss_acquire_cred_from", "gss_delete_sec_context", "gss_display_name",
    "gss_display_status", "gss_import_name", "gss_init_sec_context", "gss_inquire_context",
    "gss_inquire_cred", "gss_release_buffer", "gss_release_cred", "gss_release_name",
    "gss_set_neg_mechs", "gss_unwrap", "gss_wrap",
)  # fmt: skip


class _Buffer(c.Structure):
    _fields_ = (("length", c.c_size_t), ("value", c.c_void_p))


class _Oid(c.Structure):
    _fields_ = (("length", c.c_uint32), ("elements", c.c_char_p))


class _OidSet(c.Structure):
    _fields_ = (("count", c.c_size_t), ("elements", c.POINTER(_Oid)))


class _Pair(c.Structure):
    _fields_ = (("key", c.c_char_p), ("value", c.c_char_p))


class _Store(c.Structure):
    _fields_ = (("count", c.c_uint32), ("elements", c.POINTER(_Pair)))


_KRB5 = _Oid(9, b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x02")
_SPNEGO = _Oid(6, b"\x2b\x06\x01\x05\x05\x02")
_PRINCIPAL = _Oid(10, b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x02\x01")
_SERVICE = _Oid(10, b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x01\x04")


class GssError(OSError):
    """The library reported an error.

    Args:
        major: the status of GSS-API.
        minor: the status of Kerberos.
        text: what both mean, in the library's words.
    """

    def __init__(self, major: int, minor: int, text: str) -> None:
        super().__init__(text)
        self.major = major
        self.minor = minor


@functools.cache
def _library() -> Any:
    """Load the library.

    Raises:
        RefusedError: it is not installed.
    """
    for name in (_LIBRARY, ctypes.util.find_library("gssapi_krb5")):
        try:
            library = c.CDLL(name or _LIBRARY)
            functions = [getattr(library, each) for each in _NAMES]
        except (OSError, AttributeError):
            continue
        for each in functions:
            each.restype = c.c_uint32
        return library
    raise RefusedError(
        "Kerberos needs MIT's library, which is not installed: install libgssapi-krb5-2 (Debian, "
        "Ubuntu) or krb5-libs (Red Hat)",
        library=_LIBRARY,
    )


def _text(status: int, kind: int) -> str:
    minor, more, out = c.c_uint32(), c.c_uint32(0), _Buffer()
    _library().gss_display_status(
        c.byref(minor), c.c_uint32(status), kind, c.byref(_KRB5), c.byref(more), c.byref(out)
    )
    return _taken(out).decode(errors="replace")


def _taken(buffer: _Buffer) -> bytes:
    """Return the bytes of a buffer that the library made, and free it."""
    data = c.string_at(buffer.value, buffer.length) if buffer.value else b""
    _library().gss_release_buffer(c.byref(c.c_uint32()), c.byref(buffer))
    return data


def _given(data: bytes | bytearray) -> _Buffer:
    """Pass bytes to the library. The caller must keep them."""
    if isinstance(data, bytearray):
        return _Buffer(len(data), c.addressof((c.c_char * len(data)).from_buffer(data)))
    return _Buffer(len(data), c.cast(c.c_char_p(data), c.c_void_p))


def _check(major: int, minor: c.c_uint32) -> int:
    if not major & _FAILED:
        return major
    said = (_text(major, _OF_GSS), _text(minor.value, _OF_MECHANISM) if minor.value else "")
    raise GssError(major, minor.value, ": ".join(filter(None, said)))


class _Name:
    """A principal's name, as it is, or a service's: no name service is asked."""

    def __init__(self, name: str, kind: _Oid = _PRINCIPAL) -> None:
        self.handle = c.c_void_p()
        minor, data = c.c_uint32(), name.encode()
        _check(
            _library().gss_import_name(
                c.byref(minor), c.byref(_given(data)), c.byref(kind), c.byref(self.handle)
            ),
            minor,
        )

    def __del__(self) -> None:
        if self.handle:
            _library().gss_release_name(c.byref(c.c_uint32()), c.byref(self.handle))


def _shown(name: c.c_void_p) -> str:
    """Return a name that the library made, and free it. What is in the name, but separates parts of
    names, has a backslash before it.
    """
    minor, out = c.c_uint32(), _Buffer()
    try:
        _check(_library().gss_display_name(c.byref(minor), name, c.byref(out), None), minor)
    finally:
        _library().gss_release_name(c.byref(c.c_uint32()), c.byref(name))
    return _taken(out).decode(errors="replace")


def _mechanisms(*each: _Oid) -> _OidSet:
    return _OidSet(len(each), (_Oid * len(each))(*each))


def _stored(store: Mapping[str, str]) -> Any:
    """Pass to the library where keys and tickets lie; None stands for its own places."""
    pairs = [_Pair(key.encode(), value.encode()) for key, value in store.items()]
    return c.byref(_Store(len(pairs), (_Pair * len(pairs))(*pairs))) if pairs else None


class Credential:
    """Proves who a client is. It does not renew itself: make another for each connection.

    Args:
        principal: the client's; that of the tickets or of the keytab if None.
        store: where its keys and tickets lie: ``client_keytab`` and ``ccache``. With a keytab the
            library gets tickets itself, and new ones when those have expired.

    Raises:
        GssError: there are no keys and no tickets for it, or they can't be had.
    """

    def __init__(self, principal: str | None, store: Mapping[str, str]) -> None:
        self.handle = c.c_void_p()
        minor = c.c_uint32()
        name = None if principal is None else _Name(principal)
        _check(
            _library().gss_acquire_cred_from(
                c.byref(minor), name and name.handle, c.c_uint32(0), c.byref(_mechanisms(_KRB5)),
                _INITIATE, _stored(store), c.byref(self.handle), None, None,
            ),
            minor,
        )  # fmt: skip

    def inquire(self) -> tuple[str, int]:
        """Return the principal, and for how many seconds its ticket is valid. With a keytab and no
        ticket yet, it asks a KDC for one.

        Raises:
            GssError: as the constructor.
        """
        minor, lifetime_s, name = c.c_uint32(), c.c_uint32(), c.c_void_p()
        _check(
            _library().gss_inquire_cred(
                c.byref(minor), self.handle, c.byref(name), c.byref(lifetime_s), None, None
            ),
            minor,
        )
        return _shown(name), lifetime_s.value

    def __del__(self) -> None:
        if self.handle:
            _library().gss_release_cred(c.byref(c.c_uint32()), c.byref(self.handle))


class Accepted(NamedTuple):
    """What a client's token proved to a server."""

    client: str
    """The client's principal, as ``alice@REALM``, with backslashes as the library writes them."""
    server: str
    """The server's principal, for which the ticket was made."""
    lifetime_s: int
    """For how long the ticket is valid, with the tolerance for clocks that differ."""
    answer: bytes
    """What proves the server to the client; empty if the client did not ask for that."""


class ServiceCredential:
    """Accepts tickets that clients got for a server. Threads may share it. It finds keys that are
    replaced in the keytab at the next token.

    Args:
        principal: the server's; None for all whose name begins with `service` and a slash.
        service: the kind of server, such as ``HTTP``.
        store: where its keys lie: ``keytab``.

    Raises:
        GssError: the keytab has no such key.
    """

    def __init__(self, principal: str | None, service: str, store: Mapping[str, str]) -> None:
        self.handle = c.c_void_p()
        minor = c.c_uint32()
        name = _Name(service, _SERVICE) if principal is None else _Name(principal)
        _check(
            _library().gss_acquire_cred_from(
                c.byref(minor), name.handle, c.c_uint32(0), c.byref(_mechanisms(_KRB5, _SPNEGO)),
                _ACCEPT, _stored(store), c.byref(self.handle), None, None,
            ),
            minor,
        )  # fmt: skip
        # Else SPNEGO would let clients choose another mechanism that this machine has, as NTLM.
        _check(
            _library().gss_set_neg_mechs(c.byref(minor), self.handle, c.byref(_mechanisms(_KRB5))),
            minor,
        )

    def accept(self, token: bytes) -> Accepted:
        """Take a client's first token, of SPNEGO or of Kerberos alone. The library's replay cache
        knows the tokens that were accepted before. No KDC is asked.

        Raises:
            GssError: the token proves nothing to this server.
            RefusedError: the proof would take further tokens, or it is not Kerberos'.
        """
        library, minor, out, handle = _library(), c.c_uint32(), _Buffer(), c.c_void_p()
        mechanism = c.POINTER(_Oid)()
        try:
            major = library.gss_accept_sec_context(
                c.byref(minor), c.byref(handle), self.handle, c.byref(_given(token)), None, None,
                c.byref(mechanism), c.byref(out), None, None, None,
            )  # fmt: skip
            answer = _taken(out)
            if _check(major, minor) & _CONTINUE_NEEDED:
                raise RefusedError("the token begins an exchange of several, and only one is taken")
            used = mechanism.contents
            if c.string_at(used.elements, used.length) != _KRB5.elements:
                raise RefusedError("the token is not one of Kerberos")
            return Accepted(*self._inquire(handle), answer)
        finally:
            if handle:
                library.gss_delete_sec_context(c.byref(c.c_uint32()), c.byref(handle), None)

    @staticmethod
    def _inquire(handle: c.c_void_p) -> tuple[str, str, int]:
        minor, lifetime_s = c.c_uint32(), c.c_uint32()
        client, server = c.c_void_p(), c.c_void_p()
        _check(
            _library().gss_inquire_context(
                c.byref(minor), handle, c.byref(client), c.byref(server), c.byref(lifetime_s),
                None, None, None, None,
            ),
            minor,
        )  # fmt: skip
        return _shown(client), _shown(server), lifetime_s.value

    def __del__(self) -> None:
        if self.handle:
            _library().gss_release_cred(c.byref(c.c_uint32()), c.byref(self.handle))


class Context:
    """Authenticates client and server to each other, and wraps their data. One caller at a time.

    Args:
        credential: the client's.
        server: the server's principal.
        confidential: whether what is wrapped will be encrypted.
    """

    def __init__(self, credential: Credential, server: str, *, confidential: bool) -> None:
        self._credential = credential
        self._server = _Name(server)
        self._flags = MUTUAL | REPLAY | SEQUENCE | INTEGRITY
        self._flags |= CONFIDENTIALITY if confidential else 0
        self._handle = c.c_void_p()
        self.complete = False
        """Whether both sides have proven who they are."""

    def step(self, token: bytes) -> bytes:
        """Take the server's token, empty at first, and return the token for the server. The first
        step may ask a KDC.

        Raises:
            GssError: the server's token is not good, or no ticket for the server can be had.
        """
        minor, out = c.c_uint32(), _Buffer()
        major = _library().gss_init_sec_context(
            c.byref(minor), self._credential.handle, c.byref(self._handle), self._server.handle,
            c.byref(_KRB5), c.c_uint32(self._flags), c.c_uint32(0), None,
            c.byref(_given(token)) if token else None, None, c.byref(out), None, None,
        )  # fmt: skip
        said = _taken(out)
        self.complete = not _check(major, minor) & _CONTINUE_NEEDED
        return said

    def wrap(self, data: bytes, *, encrypted: bool) -> bytes:
        """Wrap data into a token, signed or encrypted.

        Raises:
            GssError: the library can't.
        """
        minor, out = c.c_uint32(), _Buffer()
        _check(
            _library().gss_wrap(
                c.byref(minor), self._handle, c.c_int(encrypted), c.c_uint32(0),
                c.byref(_given(data)), None, c.byref(out),
            ),
            minor,
        )  # fmt: skip
        return _taken(out)

    def unwrap(self, token: bytes | bytearray) -> tuple[bytes, bool]:
        """Return the data in a token, and whether it was encrypted.

        Raises:
            GssError: the token was changed on its way, or is malformed.
        """
        minor, out, encrypted = c.c_uint32(), _Buffer(), c.c_int()
        _check(
            _library().gss_unwrap(
                c.byref(minor), self._handle, c.byref(_given(token)), c.byref(out),
                c.byref(encrypted), None,
            ),
            minor,
        )  # fmt: skip
        return _taken(out), bool(encrypted.value)

    def __del__(self) -> None:
        if self._handle:
            _library().gss_delete_sec_context(c.byref(c.c_uint32()), c.byref(self._handle), None)
