"""What errors of TLS mean to a client: who did not accept whom, and what to look at."""

from __future__ import annotations

import ssl

from hqueue.net.refusals import RefusedError

__all__ = ["refusal_in"]

_ABOUT_OUR_CERTIFICATE = {
    f"{prefix}_ALERT_{alert}"
    for prefix in ("SSLV3", "TLSV1", "TLSV13")
    for alert in (
        "ACCESS_DENIED", "BAD_CERTIFICATE", "CERTIFICATE_EXPIRED", "CERTIFICATE_REQUIRED",
        "CERTIFICATE_REVOKED", "CERTIFICATE_UNKNOWN", "UNKNOWN_CA", "UNSUPPORTED_CERTIFICATE",
    )
}  # fmt: skip
"""A server's reasons for not taking a client's certificate, or for missing one."""

_NOT_TLS = {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"}

_NOTHING_IN_COMMON = {
    "NO_PROTOCOLS_AVAILABLE", "SSLV3_ALERT_HANDSHAKE_FAILURE", "TLSV1_ALERT_PROTOCOL_VERSION",
    "UNSUPPORTED_PROTOCOL",
}  # fmt: skip


def refusal_in(error: BaseException, switch: str) -> RefusedError | None:
    """The refusal that an error of a connection means on which nothing was heard yet; None if it
    means none. In TLS 1.3 a client learns only after the handshake that its certificate was
    refused, instead of an answer.

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
            "server and client have no version of TLS, or no cipher, in common, or the server "
            "needs a certificate of the client: this client speaks TLS 1.2 and 1.3, with OpenSSL's "
            "default ciphers, and shows tls_certificate"
        )
    elif reason in _NOT_TLS:
        text = f"the server does not speak TLS here: check the port, and {switch}"
    return RefusedError(text, reason=reason) if text else None
