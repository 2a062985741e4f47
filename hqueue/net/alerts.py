"""Translates errors of TLS into refusals, which say who did not accept whom and what to look at."""

from __future__ import annotations

import ssl

from hqueue.net.refusals import NotTlsError, RefusedError

__all__ = ["HANDSHAKE", "TLS_IS_SPOKEN", "is_not_tls", "refusal_in", "refusal_without_tls"]

HANDSHAKE = b"\x16"
"""The first byte of a client that speaks TLS. No call that a port serves begins so: Thrift's would
announce a name or a frame of 352 MiB, and HTTP begins with a letter."""

TLS_IS_SPOKEN = b"\x15\x03\x01\0\x02\x02\x46"
"""The alert ``protocol_version``, in clear: a server's answer to a client that speaks no TLS.
OpenSSL itself ends the connection without a word."""

_ABOUT_OUR_CERTIFICATE = {
    f"{prefix}_ALERT_{alert}"
    for prefix in ("SSLV3", "TLSV1", "TLSV13")
    for alert in (
        "ACCESS_DENIED", "BAD_CERTIFICATE", "CERTIFICATE_EXPIRED", "CERTIFICATE_REQUIRED",
        "CERTIFICATE_REVOKED", "CERTIFICATE_UNKNOWN", "UNKNOWN_CA", "UNSUPPORTED_CERTIFICATE",
    )
}  # fmt: skip
"""Alerts by which a server refuses a client's certificate, or asks for the missing one."""

_NOT_TLS = {
    "WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "RECORD_LAYER_FAILURE",
}  # fmt: skip

_NOTHING_IN_COMMON = {
    "NO_PROTOCOLS_AVAILABLE", "SSLV3_ALERT_HANDSHAKE_FAILURE", "TLSV1_ALERT_PROTOCOL_VERSION",
    "UNSUPPORTED_PROTOCOL",
}  # fmt: skip


def refusal_in(error: BaseException, switch: str = "tls") -> RefusedError | None:
    """Return the refusal that an error means on a connection that has received nothing; None if the
    error means something else. In TLS 1.3 a client learns only after the handshake, in the place of
    an answer, that its certificate was refused.

    Args:
        error: the error.
        switch: the setting that turns TLS on.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return RefusedError(
            "the server's certificate was not accepted: compare its authority with tls_ca, its "
            "names with the host in the server's address, and its dates with this machine's clock",
            reason=error.verify_message,
        )
    reason = (error.reason or "") if isinstance(error, ssl.SSLError) else ""
    text = ""
    if reason in _ABOUT_OUR_CERTIFICATE:
        text = (
            "the server did not accept this client's certificate, or it needs one: check "
            "tls_certificate, its dates, that the server trusts its authority, and that it names "
            "this host if the server verifies that"
        )
    elif reason in _NOTHING_IN_COMMON:
        text = (
            "server and client share no version or cipher of TLS, or the server needs a client "
            "certificate: this client speaks TLS 1.2 and 1.3, with OpenSSL's default ciphers, and "
            "shows tls_certificate"
        )
    elif reason in _NOT_TLS:
        text = f"the server does not speak TLS here: check the port, and {switch}"
        return NotTlsError(text, reason=reason)
    return RefusedError(text, reason=reason) if text else None


def is_not_tls(error: BaseException) -> bool:
    """Return whether a handshake's error means that the other side's first bytes are not TLS."""
    return isinstance(error, ssl.SSLError) and error.reason in _NOT_TLS


def refusal_without_tls(heard: bytes) -> RefusedError | None:
    """Return the refusal that a server's first bytes mean to a client without TLS: an alert, as the
    server takes the client's bytes for a handshake. None if they are something else.
    """
    if len(heard) != len(TLS_IS_SPOKEN) or heard[:2] != TLS_IS_SPOKEN[:2] or heard[3:5] != b"\0\2":
        return None
    return RefusedError(
        "the server speaks TLS here, and this client does not: check the port, and set tls, tls_ca "
        "and tls_certificate"
    )
