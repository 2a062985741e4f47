"""Requests to the active master, and the procedures that it carries out."""

from __future__ import annotations

import secrets
from typing import Any

from hqueue.errors import HQueueError, Outcome, StoreUnavailableError
from hqueue.hbase.native.exchanges import Ask, Asking, Request
from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.registry import Registry
from hqueue.hbase.native.servers import Servers
from hqueue.hbase.native.translation import reads_answer, translate_answer
from hqueue.hbase.native.wire import MASTER, RemoteError
from hqueue.runtime.backoff import Backoff
from hqueue.runtime.clock import LAST_TRY_MS, Deadline
from hqueue.runtime.steps import Pause

__all__ = ["Master", "Procedure"]

LOOKS = Backoff(5.0, 200.0)
"""The pauses between two questions whether a procedure is done."""


class Master:
    """The active master. Thread-safe. Its requests are work; each makes one try.

    Args:
        servers: bound its requests, and say whether the store is closed.
        registry: where it is.
    """

    def __init__(self, servers: Servers, registry: Registry) -> None:
        self._servers = servers
        self._registry = registry

    @reads_answer
    def ask(
        self, method: str, message: Any, kind: Any, table: str, deadline: Deadline
    ) -> Asking[Any]:
        """Make a request; its answer, which is a message of this kind.

        Raises:
            HQueueError: as `Servers.ask`.
        """
        self._servers.check_open()
        address = yield from self._registry.master()
        bound_ms = self._servers.settings.request_timeout_ms
        request = Request(address, method.encode(), message.SerializeToString(), service=MASTER)
        try:
            left_ms = max(LAST_TRY_MS, deadline.remaining_ms)
            answer = yield Ask(request, table, min(bound_ms, left_ms))
        except StoreUnavailableError:
            self._registry.doubt_master(address)
            raise
        return kind.FromString(answer.message)


class Procedure:
    """A change of a table that the master carries out, known by a number: however often it is asked
    for, also of another master, it is done once, unless it fails.

    Args:
        master: the master.
        method: the service's method.
        message: its argument, without that number.
        table: the table's name.
    """

    def __init__(self, master: Master, method: str, message: Any, table: str) -> None:
        self._master = master
        self._method = method
        self._message = message
        self._table = table
        self._in_doubt = False
        """Whether a master may have taken it on and has not said what came of it."""
        self._renew()

    def run(self, deadline: Deadline) -> Asking[None]:
        """Ask for it, and wait until it is done. What was asked for goes on at the master if the
        caller is cancelled.

        Raises:
            StoreUnavailableError: there was no usable answer, or it was not done in time. Call this
                again to know more.
            HQueueError: as `Servers.ask`; its outcome is unknown while a master may have taken it
                on, and has not said what came of it.
        """
        try:
            result = yield from self._result(deadline)
        except HQueueError as exc:
            self._in_doubt |= exc.outcome is Outcome.UNKNOWN
            if self._in_doubt:
                exc.outcome = Outcome.UNKNOWN
            raise
        self._in_doubt = False
        if result.HasField("exception"):
            self._renew()  # What failed is not done by asking for it again.
            said = result.exception.generic_exception
            error = RemoteError(said.class_name, said.message, False)
            raise translate_answer(error, self._table, self._method, "master") from error

    def _result(self, deadline: Deadline) -> Asking[Any]:
        """The outcome, as the master reports it."""
        answer = yield from self._master.ask(
            self._method, self._message, pb.CreateTableResponse, self._table, deadline
        )
        if not answer.HasField("proc_id"):
            raise StoreUnavailableError(
                "the master's answer does not name its procedure",
                outcome=Outcome.UNKNOWN,
                queue=self._table,
            )
        self._in_doubt = True
        asked = pb.GetProcedureResultRequest(proc_id=answer.proc_id)
        pauses = LOOKS.pauses()
        while True:
            result = yield from self._master.ask(
                "getProcedureResult",
                asked,
                pb.GetProcedureResultResponse,
                self._table,
                deadline,
            )
            if result.state == pb.GetProcedureResultResponse.FINISHED:
                return result
            if result.state == pb.GetProcedureResultResponse.NOT_FOUND or deadline.expired:
                raise StoreUnavailableError(
                    "the master did not finish the operation in time",
                    outcome=Outcome.UNKNOWN,
                    queue=self._table,
                    request=self._method,
                )
            yield Pause(min(next(pauses), deadline.remaining_ms))

    def _renew(self) -> None:
        self._message.nonce_group = 1 + secrets.randbits(63)
        self._message.nonce = 1 + secrets.randbits(63)
