"""The errors of HBase's servers, translated to this library's: the one place that reads them."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError

from hqueue.errors import (
    AuthenticationError,
    HQueueError,
    Outcome,
    QueueDisabledError,
    QueueEnabledError,
    QueueExistsError,
    QueueNotFoundError,
    RequestRefusedError,
    RowsUnreadableError,
    SnapshotExistsError,
    SnapshotNotFoundError,
    StoreUnavailableError,
)
from hqueue.hbase.answers import ROWS_UNREADABLE, ReadsAnswer, is_of_files
from hqueue.hbase.native.wire import RemoteError
from hqueue.hbase.reachability import silence_text
from hqueue.net.kdc import kdc_error_of
from hqueue.net.refusals import RefusedError, refusal_of

__all__ = [
    "NOT_SERVED",
    "NotServedError",
    "connection_refusal",
    "reads_answer",
    "translate_answer",
    "translate_silence",
]

_STATES: dict[str, tuple[type[HQueueError], str]] = {
    "TableNotFoundException": (QueueNotFoundError, "there is no such queue"),
    "TableExistsException": (QueueExistsError, "there is a table of that name already"),
    "TableNotEnabledException": (QueueDisabledError, "the queue is disabled"),
    "TableNotDisabledException": (QueueEnabledError, "the queue must be disabled first"),
    "SnapshotDoesNotExistException": (SnapshotNotFoundError, "there is no such snapshot"),
    "SnapshotExistsException": (SnapshotExistsError, "there is a snapshot of that name already"),
    "NamespaceNotFoundException": (
        RequestRefusedError,
        "there is no such namespace: HBase's shell creates it, by create_namespace",
    ),
}

NOT_SERVED = frozenset(
    {
        "NotServingRegionException",
        "RegionMovedException",
        "RegionOpeningException",
        "WrongRegionException",
    }
)
"""The server has not this region: nothing was done. The region map can't be trusted."""

_NOT_APPLIED = frozenset(
    {
        "CallDroppedException",
        "CallQueueTooBigException",
        "MasterNotRunningException",
        "MasterStoppedException",
        "MultiActionResultTooLarge",
        "NotPrimaryException",
        "PleaseHoldException",
        "RegionTooBusyException",
        "RpcThrottlingException",
        "ServerNotRunningYetException",
        "ThrottlingException",
    }
)
"""Refused before anything was done, and for now only."""

_PASSING = frozenset(
    {
        "LeaseException",
        "OutOfOrderScannerNextException",
        "RegionServerAbortedException",
        "RegionServerStoppedException",
        "ScannerResetException",
        "TimeoutIOException",
        "UnknownScannerException",
        "WALSyncTimeoutIOException",
    }
)
"""It may be done at another time, whatever the server says of trying again; what became of it is
not known."""

_REFUSALS = frozenset(
    {
        "AccessDeniedException",
        "FailedSanityCheckException",
        "IllegalArgumentException",
        "InvalidFamilyOperationException",
        "NoSuchColumnFamilyException",
        "UnsupportedOperationException",
    }
)


class NotServedError(StoreUnavailableError):
    """The server has not this region: it was moved, or its table was disabled or deleted. Nothing
    was done. Not raised beyond this package: `hbase:meta` says which it is.
    """

    default_outcome = Outcome.NOT_APPLIED


def translate_answer(error: RemoteError, table: str, method: str, server: str) -> HQueueError:
    """An error that a server gave as its answer.

    States of the table and refusals are final. Of the others it is known for some that nothing was
    done; for the rest the outcome is unknown: a write may be in the log whose end was not awaited.
    """
    kind = error.kind
    if kind in _STATES:
        state, static = _STATES[kind]
        return state(static, queue=table)
    lines = error.text.strip().splitlines()
    answer = f"{kind}: {lines[0][:300] if lines else ''}"
    facts: dict[str, Any] = {"queue": table, "request": method, "server": server, "answer": answer}
    if kind in NOT_SERVED:
        return NotServedError("the server does not serve this region", **facts)
    if kind in _NOT_APPLIED:
        return StoreUnavailableError(
            "the server accepts no requests now", outcome=Outcome.NOT_APPLIED, **facts
        )
    if kind not in _PASSING and is_of_files(error.text):
        return RowsUnreadableError(ROWS_UNREADABLE, outcome=Outcome.UNKNOWN, **facts)
    if kind not in _PASSING and (error.final or kind in _REFUSALS):
        return RequestRefusedError("HBase refused the request", **facts)
    return StoreUnavailableError(
        "HBase did not finish the request in time", outcome=Outcome.UNKNOWN, **facts
    )


_REFUSED_CONNECTIONS = {
    "AccessDeniedException": "the server did not let this client in: it asks for Kerberos "
    "(hbase_authentication='kerberos'), or this principal may not use it",
    "BadAuthException": "the server does not know this way to prove who a client is: compare "
    "hbase_authentication with the server's hbase.security.authentication",
    "WrongVersionException": "the server speaks another version of HBase's RPC",
}


def connection_refusal(error: RemoteError, *, was_accepted: bool) -> OSError:
    """Translate an answer that is about the whole connection, which the server closes.

    Args:
        error: the answer.
        was_accepted: whether the server answered a request on it before.
    """
    lines = error.text.strip().splitlines()
    answer = f"{error.kind}: {lines[0][:300] if lines else ''}"
    if error.kind in _REFUSED_CONNECTIONS and not was_accepted:
        return RefusedError(_REFUSED_CONNECTIONS[error.kind], answer=answer)
    return ConnectionError(f"the server closed the connection: {answer}")


def translate_silence(
    error: BaseException, table: str, method: str, server: str, *, sent: bool
) -> AuthenticationError | StoreUnavailableError:
    """A connection that failed, before or after the request was sent."""
    refusal = refusal_of(error)
    if refusal is not None and not sent:
        facts: dict[str, Any] = {"server": server, "request": method, **refusal.facts}
        return AuthenticationError(refusal.text, queue=table, **facts)
    away = kdc_error_of(error)
    if away is not None and not sent:
        return StoreUnavailableError(
            away.text,
            outcome=Outcome.NOT_APPLIED,
            queue=table,
            request=method,
            server=server,
            **away.facts,
        )
    return StoreUnavailableError(
        silence_text(error, "server", sent=sent),
        outcome=Outcome.UNKNOWN if sent else Outcome.NOT_APPLIED,
        queue=table,
        request=method,
        server=server,
        reason=f"{type(error).__name__}: {error}",
    )


reads_answer = ReadsAnswer(
    "the server's answer is malformed", DecodeError, IndexError, KeyError, TypeError, ValueError
)
