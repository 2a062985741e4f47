"""Reads this process's own certificate by a handshake with itself, in memory: Python's library
shows the contents of a certificate only to a peer that has accepted it.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from hqueue.net.contexts import TlsContexts, TlsFiles
from hqueue.net.refusals import RefusedError

__all__ = ["UNFIT", "Shaken", "read_certificate", "shake_hands"]

UNFIT = 26
"""OpenSSL's number for a certificate that is not for this use: ``X509_V_ERR_INVALID_PURPOSE``."""

_AT_ANY_TIME = 0x200000
"""``X509_V_FLAG_NO_CHECK_TIME``, which Python has no name for."""

_ROUNDS_MAX = 16

Shaken = tuple[Mapping[str, Any], Mapping[str, Any]]
"""What the client saw of the server's certificate, and the server of the client's, as
`ssl.SSLSocket.getpeercert` gives it; nothing where none was asked for."""


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, host: str) -> Shaken:
    """Have a client and a server shake hands in memory.

    Args:
        client, server: their contexts.
        host: the server's host, as the client calls it.

    Raises:
        ssl.SSLError: one does not accept the other.
    """
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    left = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    both = tuple(left)
    for _ in range(_ROUNDS_MAX):
        for side in list(left):
            try:
                side.do_handshake()
                left.remove(side)
            except ssl.SSLWantReadError:
                pass
        if not left:
            break
    seen_by_client, seen_by_server = (side.getpeercert() or {} for side in both)
    return seen_by_client, seen_by_server


def read_certificate(certificate: str, key: str | None) -> Mapping[str, Any]:
    """Read a certificate, as `ssl.SSLSocket.getpeercert` returns it, even if its authority is not
    trusted, or if it has expired.

    Args:
        certificate, key: the files, as in `TlsFiles`.

    Raises:
        RefusedError: they can't be read, don't belong together, or are neither for servers nor for
            clients.
    """
    files = TlsFiles(certificate, certificate, key)
    for is_servers in (True, False):
        client, server = (
            TlsContexts(files, serves=serves, verify_hostname=False).current()
            for serves in (False, True)
        )
        for each in (client, server):
            each.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | _AT_ANY_TIME
        (server if is_servers else client).verify_mode = ssl.CERT_NONE
        try:
            seen = shake_hands(client, server, "localhost")
        except ssl.SSLError as exc:
            reason = str(exc)
        else:
            return seen[0] if is_servers else seen[1]
    raise RefusedError(
        "tls_certificate is neither for servers nor for clients: have its authority make one whose "
        "extendedKeyUsage has both serverAuth and clientAuth, or that has none",
        path=certificate,
        reason=reason,
    )
