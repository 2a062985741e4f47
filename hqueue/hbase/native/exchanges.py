"""A request to one server, and its result: an answer, or an error that says whether the server may
have executed it. For threads and for event loops.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from hqueue.errors import ClosedError, HQueueError, Outcome, StoreUnavailableError
from hqueue.hbase import reachability
from hqueue.hbase.native.calls import REQUESTS_MAX
from hqueue.hbase.native.translation import translate_answer, translate_silence
from hqueue.hbase.native.wire import CLIENT, Answer, RemoteError
from hqueue.net.kdc import kdc_error_of
from hqueue.net.refusals import refusal_of
from hqueue.runtime.steps import Pause, Wait
from hqueue.settings.addresses import Address

__all__ = [
    "Ask", "AskAll", "Asking", "Request", "Step",
    "answered", "no_turn", "unanswered", "unsent",
]  # fmt: skip

Result = TypeVar("Result")


class Request(NamedTuple):
    """A request to one server."""

    address: Address
    method: bytes
    message: bytes
    cells: Sequence[bytes] = ()
    cell_bytes: int = 0
    service: str = CLIENT


class Ask(NamedTuple):
    """Asks for a request to be made; the answer is the server's. Raises as `Servers.ask`."""

    request: Request
    table: str
    timeout_ms: float | None = None

    def do(self, servers: Any) -> object:
        answer: object = servers.ask(*self)
        return answer


class AskAll(NamedTuple):
    """Asks for requests to be made at once; the answer is that of `Servers.ask_all`."""

    requests: Iterable[Request]
    table: str
    together_max: int = REQUESTS_MAX

    def do(self, servers: Any) -> object:
        answers: object = servers.ask_all(self.requests, self.table, together_max=self.together_max)
        return answers


Step = Ask | AskAll | Pause | Wait
Asking = Generator[Step, Any, Result]
"""Work that asks servers: see `hqueue.runtime.steps`."""


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


def no_turn(table: str) -> StoreUnavailableError:
    """What it means that another caller had no answer where a table's regions are, within the time
    of a request: nothing was sent.
    """
    return StoreUnavailableError(
        "another caller of this process waits for HBase's meta table to say where the table's "
        "regions are; the log names servers that do not answer",
        outcome=Outcome.NOT_APPLIED,
        table=table,
    )


def unsent(request: Request, table: str, reason: OSError) -> HQueueError:
    """What it means that a request was not sent as a whole, or that its server refused the
    connection: it is not applied.
    """
    return _silence(request, table, reason, sent=False)


def _silence(request: Request, table: str, reason: OSError, *, sent: bool) -> HQueueError:
    if refusal_of(reason) is None and kdc_error_of(reason) is None:
        reachability.unanswered(request.address, reason)
    silence = translate_silence(
        reason, table, request.method.decode(), str(request.address), sent=sent
    )
    silence.__cause__ = reason
    return silence
