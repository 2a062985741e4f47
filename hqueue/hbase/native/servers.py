"""Connections to HBase's servers: one to each, and service."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import TypeVar

from hqueue.errors import ClosedError, HQueueError
from hqueue.hbase.native.calls import REQUESTS_MAX, NoAnswerError, UnsentError
from hqueue.hbase.native.connection import BlockingCall, Connection
from hqueue.hbase.native.exchanges import (
    Asking,
    Request,
    answered,
    unanswered,
    unsent,
)
from hqueue.hbase.native.links import Link
from hqueue.hbase.native.opening import Open, Opener
from hqueue.hbase.native.wire import Answer
from hqueue.net.refusals import RefusedError
from hqueue.runtime.clock import bounded_ms
from hqueue.runtime.fork import register
from hqueue.runtime.held import Held
from hqueue.runtime.interrupts import is_interruption
from hqueue.runtime.steps import carry_out
from hqueue.settings.addresses import Address
from hqueue.settings.connection import Settings

__all__ = ["Servers"]

Result = TypeVar("Result")


class _Server(Link[Connection]):
    """The connection to one server's service, opened by one thread."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.opening = threading.RLock()


class Servers:
    """All servers that were spoken to. Thread-safe, and usable in a forked child.

    Args:
        settings: the bounds.
        opener: how connections are opened; in clear if None.
    """

    def __init__(self, settings: Settings, opener: Open | None = None) -> None:
        self.settings = settings
        self._opener = opener or Opener().open
        self._closed = False
        self._servers: dict[tuple[Address, str], _Server] = {}
        self._lock = threading.RLock()
        register(self)

    def after_fork_in_child(self) -> None:
        servers, self._servers = self._servers, {}
        self._lock = threading.RLock()
        for server in servers.values():
            if server.connection is not None:
                server.connection.abandon()

    def check_open(self) -> None:
        """Check that the client was not closed.

        Raises:
            ClosedError: the client was closed.
        """
        if self._closed:
            raise ClosedError("the client is closed")

    def ask(self, request: Request, table: str, timeout_ms: float | None = None) -> Answer:
        """Make one request and return its answer. Never repeats it.

        Args:
            request: the request.
            table: the table it is about, for errors.
            timeout_ms: the bound, if not ``request_timeout_ms``.

        Raises:
            StoreUnavailableError: no usable answer in time; its outcome is not applied where the
                server can't have done it.
            QueueStateError: the table isn't there, or is not in the state for that.
            RequestRefusedError: HBase will not do it; `AuthenticationError` if client and server
                don't accept each other.
            ClosedError: this was closed; its outcome is unknown where the request was sent before.
        """
        self.check_open()
        begun = self._begin(request, table, self._ends_s(timeout_ms))
        answer = begun if isinstance(begun, HQueueError) else self._finish(request, table, *begun)
        if isinstance(answer, HQueueError):
            raise answer
        return answer

    def ask_all(
        self,
        requests: Iterable[Request],
        table: str,
        timeout_ms: float | None = None,
        together_max: int = REQUESTS_MAX,
    ) -> list[Answer | HQueueError]:
        """Make requests of several servers at once: for each its answer, or what `ask` raises.

        Args:
            requests: the requests; each is taken when it is sent.
            table: the table they are about, for errors.
            timeout_ms: the bound on all together, if not ``request_timeout_ms``.
            together_max: this many are under way; the next one goes when the first is answered.

        Raises:
            ClosedError: this was closed before. None was sent.
        """
        self.check_open()
        ends_s = self._ends_s(timeout_ms)
        under_way: deque[tuple[Request, tuple[Connection, BlockingCall] | HQueueError]] = deque()
        answers: list[Answer | HQueueError] = []

        def finish() -> None:
            request, begun = under_way.popleft()
            answers.append(
                begun if isinstance(begun, HQueueError) else self._finish(request, table, *begun)
            )

        try:
            for request in requests:
                if len(under_way) >= together_max:
                    finish()
                under_way.append((request, self._begin(request, table, ends_s)))
        finally:
            # What was sent is waited for, whatever comes between.
            while under_way:
                finish()
        return answers

    def carry_out(self, work: Asking[Result]) -> Result:
        """Carry out work in the caller's thread.

        Raises:
            HQueueError: as the work does.
        """
        return carry_out(work, lambda step: step.do(self))

    def close(self) -> None:
        """Close all connections. Later requests raise `ClosedError`."""
        self._closed = True
        with self._lock:
            servers = list(self._servers.values())
        for server in servers:
            if server.connection is not None:
                server.connection.close()

    def _ends_s(self, timeout_ms: float | None) -> float:
        return time.monotonic() + bounded_ms(timeout_ms or self.settings.request_timeout_ms) / 1e3

    def _begin(
        self, request: Request, table: str, ends_s: float
    ) -> tuple[Connection, BlockingCall] | HQueueError:
        method, message, cells = request.method, request.message, request.cells
        try:
            connection = self._connection(request.address, request.service, ends_s)
            return connection, connection.begin(method, message, cells, request.cell_bytes, ends_s)
        except OSError as exc:
            if is_interruption(exc):
                raise
            return unsent(request, table, exc)

    def _finish(
        self, request: Request, table: str, connection: Connection, call: BlockingCall
    ) -> Answer | HQueueError:
        try:
            said = connection.finish(call)
        except (RefusedError, UnsentError) as exc:
            return unsent(request, table, exc)
        except NoAnswerError as exc:
            return unanswered(request, table, exc, closed=self._closed)
        return answered(request, table, said)

    def _connection(self, address: Address, service: str, ends_s: float) -> Connection:
        """The connection to a server; opened if there is none that can be used.

        Raises:
            OSError: it can't be opened within ``connect_timeout_ms``.
        """
        with self._lock:
            server = self._servers.get((address, service))
            if server is None:
                server = self._servers[address, service] = _Server(self.settings)
        connection = server.good()
        if connection is not None:
            return connection
        asked_s = time.monotonic()
        late = UnsentError("the connection was not opened in time")
        with Held(server.opening, ends_s - time.monotonic(), lambda: late):
            connection = server.good()
            if connection is not None:
                return connection
            left_s = server.begin_opening(asked_s, ends_s)
            try:
                opened = self._opener(address, service, left_s)
            except OSError as exc:
                if not is_interruption(exc):
                    server.failed(exc)
                raise
            try:
                connection = Connection(opened)
                server.opened(connection)
            except BaseException:
                opened.close()
                raise
            if self._closed:
                connection.close()
            return connection
