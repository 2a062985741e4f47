"""A request to one server, and what comes of it: an answer, or an error that says whether the
server may have done it. However one waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hqueue.errors import ClosedError, HQueueError, Outcome, StoreUnavailableError
from hqueue.hbase import reachability
from hqueue.hbase.native.translation import translate_answer, translate_silence
from hqueue.hbase.native.wire import Answer, RemoteError
from hqueue.settings.addresses import Address

__all__ = ["CLIENT", "MASTER", "REGISTRY", "Request", "answered", "unanswered", "unsent"]

CLIENT = "ClientService"
"""Rows, at region servers."""

MASTER = "MasterService"
"""Administration, at the active master."""

REGISTRY = "ClientMetaService"
"""Where the cluster's first servers are, and what it is called: at any master."""


class Request(NamedTuple):
    """A request to one server."""

    address: Address
    method: bytes
    message: bytes
    cells: Sequence[bytes] = ()
    cell_bytes: int = 0
    service: str = CLIENT


def answered(request: Request, table: str, said: Answer | RemoteError) -> Answer | HQueueError:
    """What a server's answer means: itself, or the error that it says."""
    reachability.answered(request.address)
    if isinstance(said, RemoteError):
        error = translate_answer(said, table, request.method.decode(), str(request.address))
        error.__cause__ = said
        return error
    return said


def unanswered(request: Request, table: str, reason: OSError, *, closed: bool) -> HQueueError:
    """What it means that a request was sent and has no answer: its outcome is unknown.

    Args:
        request: the request.
        table: the table it is about.
        reason: why there is none.
        closed: whether this side closed the connection.
    """
    if closed:
        error = ClosedError("the client is closed", outcome=Outcome.UNKNOWN)
        error.__cause__ = reason
        return error
    return _silence(request, table, reason, sent=True)


def unsent(request: Request, table: str, reason: OSError) -> StoreUnavailableError:
    """What it means that a request was not sent as a whole: it is not applied."""
    return _silence(request, table, reason, sent=False)


def _silence(request: Request, table: str, reason: OSError, *, sent: bool) -> StoreUnavailableError:
    reachability.unanswered(request.address, reason)
    silence = translate_silence(
        reason, table, request.method.decode(), str(request.address), sent=sent
    )
    silence.__cause__ = reason
    return silence
