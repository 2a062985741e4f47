"""The session with ZooKeeper: its state, and requests in bulk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import KazooException, RolledBackError, RuntimeInconsistency
from kazoo.handlers.threading import KazooTimeoutError

from hqueue.errors import ClosedError, Outcome, RequestRefusedError, StoreUnavailableError
from hqueue.metadata.ports import SessionState
from hqueue.runtime.alarm import needed_loop
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline, bounded_ms
from hqueue.runtime.loop import BackgroundLoop
from hqueue.runtime.steps import Work
from hqueue.runtime.stepwise import Stepwise, stepwise
from hqueue.settings.connection import Settings
from hqueue.zookeeper.allocation import SESSION_BYTES_MAX
from hqueue.zookeeper.member import Member
from hqueue.zookeeper.members import Members, Request
from hqueue.zookeeper.states import StateListener
from hqueue.zookeeper.translation import ANSWERS, translate

__all__ = [
    "PIPELINED_MAX",
    "TRANSACTION_BYTES_MAX",
    "Request",
    "Session",
    "Transaction",
    "verdict",
]

PIPELINED_MAX = 256
"""Requests under way at a time: what bounds the memory that they and their answers take."""

TRANSACTION_BYTES_MAX = 512 * 1024
"""Bytes of one transaction, at most. ZooKeeper takes no request, and reads nothing back from its
log, that is larger than ``jute.maxbuffer`` (1 MiB unless set)."""

Transaction = Callable[[TransactionRequest], object]
"""Adds operations to a transaction: all of them are done, or none."""


class Session(Stepwise):
    """A session with ZooKeeper. Thread-safe. Connects when it is first used.

    At ZooKeeper it is one session, or several as soon as it has more ephemeral nodes than one may
    own (`Members`). Reads, and all that is about no ephemeral node, go over the primary. What is
    about ephemeral nodes goes over the member that they are placed with: ZooKeeper promises a
    session to read what it wrote itself, not what another did.

    Requests are not repeated here: whether that is right is for their sender to know. In a forked
    child it begins again: without the parent's ephemeral nodes, listeners and connections, all of
    which stay the parent's.

    Args:
        settings: how to reach ZooKeeper.
        bytes_max: how much each member may own, as `Allocation` counts.
        loop: that of the program that it belongs to; None if threads use it.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        bytes_max: int = SESSION_BYTES_MAX,
        loop: BackgroundLoop | None = None,
    ) -> None:
        self.settings = settings
        self._loop = loop
        self.members = Members(settings, bytes_max)

    @property
    def loop(self) -> BackgroundLoop:
        """Like `MetadataStore.loop`."""
        return self._loop or needed_loop()

    def deadline(self) -> Deadline:
        """The bound on one operation, from now."""
        return Deadline(SYSTEM_CLOCK, self.settings.operation_timeout_ms)

    @property
    def timeout_ms(self) -> int:
        """Like `Members.timeout_ms`."""
        return self.members.timeout_ms

    @property
    def state(self) -> SessionState:
        return self.members.states.state

    @property
    def id(self) -> int | None:
        """Like `Members.id`."""
        return self.members.id

    def on_state(
        self, on_change: Callable[[SessionState], None], on_close: Callable[[], None] | None = None
    ) -> StateListener:
        """Report each change of state, in order, beginning with the state now.

        Args:
            on_change: called with the state.
            on_close: called when the session is closed for good.
        """
        return self.members.states.listen(on_change, on_close)

    @stepwise
    def confirm(self) -> Work[Any, float]:
        """Like `MetadataStore.confirm`: all members are asked at once.

        A member that comes later is not in it, and needs not be: it owns nothing before, and the
        request by which it comes to own something is a later sign of its life than this is.
        """
        now = Deadline(SYSTEM_CLOCK, 0)
        yield from self.members.primary.steps(now)
        asked = list(self.members)
        yield from self.members.wait(asked, now)
        sent_ms = SYSTEM_CLOCK.monotonic_ms()
        for answer in (yield from self._ask([("/", _exists_root)] * len(asked), asked)):
            if isinstance(answer, Exception):
                raise translate(answer, "/") from answer
        with self.members.lock:
            # kazoo may have answered for the session after the one that was asked about.
            self.members.check(asked)
            return sent_ms + self.timeout_ms

    @stepwise
    def run(
        self,
        requests: Sequence[tuple[str, Request]],
        deadline: Deadline,
        by: Sequence[Member] | None = None,
        *,
        takes_refusals: bool = False,
    ) -> Work[Any, list[Any]]:
        """Send requests, `PIPELINED_MAX` at a time, and wait for all answers.

        Args:
            requests: what each is about, for errors, and the request.
            deadline: the bound on waiting for a connection. An answer that takes longer than
                ``request_timeout_ms`` counts as none.
            by: the member that each is sent by; None for the primary.
            takes_refusals: whether a `RequestRefusedError` is an answer, too.

        Returns:
            For each request its result; or, as a value, an error that is an answer (`ANSWERS`).
            With `by` all answers are of those very sessions.

        Raises:
            StoreUnavailableError: one or more of them got no answer.
            RequestRefusedError: ZooKeeper will not do one of them.
            ClosedError: the session was closed.
            Each with the outcome of all of them together.
        """
        answers: list[Any] = []
        try:
            for first in range(0, len(requests), PIPELINED_MAX):
                chunk = requests[first : first + PIPELINED_MAX]
                if by is None:
                    members = [(yield from self.members.primary.steps(deadline))] * len(chunk)
                else:
                    members = list(by[first : first + PIPELINED_MAX])
                    yield from self.members.wait(members, deadline)
                answers += yield from self._ask(chunk, members)
                for answer in answers[first:]:
                    if isinstance(answer, RequestRefusedError) and not takes_refusals:
                        raise answer
                if by is not None:
                    self.members.check(members)
        except (StoreUnavailableError, RequestRefusedError, ClosedError) as exc:
            if any(not isinstance(answer, Exception) for answer in answers):  # It was done.
                exc.outcome = Outcome.UNKNOWN
            raise
        return answers

    @stepwise
    def one(self, path: str, request: Request, deadline: Deadline) -> Work[Any, Any]:
        """Send one request and return its result. Raises as `run`, and what is an answer, too."""
        (answer,) = yield from self.run.steps([(path, request)], deadline)
        if isinstance(answer, ANSWERS):
            raise answer
        return answer

    def transact(
        self,
        transactions: Iterable[tuple[str, Transaction]],
        deadline: Deadline,
        by: Sequence[Member] | None = None,
    ) -> Work[Any, list[Any]]:
        """Commit transactions, many at a time, by these members or the primary.

        Returns:
            For each None if it was done, or the error that is the answer to its first operation
            that could not be: then nothing of it was done.

        Raises:
            As `run`.
        """

        def request(operations: Transaction) -> Request:
            def send(client: KazooClient) -> Any:
                transaction = client.transaction()
                operations(transaction)
                return transaction.commit_async()

            return send

        placed = list(transactions)
        requests = [(path, request(fill)) for path, fill in placed]
        committed = yield from self.run.steps(requests, deadline, by)
        try:
            return [
                verdict(path, results) for (path, _), results in zip(placed, committed, strict=True)
            ]
        except RequestRefusedError as exc:
            if len(placed) > 1:  # Others may have been done.
                exc.outcome = Outcome.UNKNOWN
            raise

    @stepwise
    def close(self) -> Work[Any, None]:
        """End the session; its ephemeral nodes disappear. Never raises."""
        yield from self.members.close.steps()

    def close_later(self, delay_ms: float) -> None:
        """Like `Members.close_later`."""
        self.members.close_later(delay_ms)

    def _ask(
        self, requests: Sequence[tuple[str, Request]], by: Sequence[Member]
    ) -> Work[Any, list[Any]]:
        """What each was answered with; that one was refused is an answer here, beside which the
        others count.
        """
        results = yield from self.members.ask(
            [(member, request) for (_, request), member in zip(requests, by, strict=True)],
            bounded_ms(self.settings.request_timeout_ms),
        )
        answers: list[Any] = []
        for (path, _), result in reversed([*zip(requests, results, strict=True)]):
            try:
                answers.append(self._answer(path, result))
            except RequestRefusedError as exc:
                answers.append(exc)
        return answers[::-1]

    def _answer(self, path: str, result: Any) -> Any:
        """What a result says; it is there, so nothing of kazoo is called."""
        error = result if isinstance(result, BaseException) else result.exception
        if error is None:
            return result.value
        if isinstance(error, ANSWERS):
            return error
        if isinstance(error, (KazooException, KazooTimeoutError)):
            raise translate(error, path) from error
        raise error


def _exists_root(client: KazooClient) -> Any:
    return client.exists_async("/")


def verdict(path: str, results: Sequence[Any]) -> Any:
    """What stopped a transaction; None if nothing did."""
    for result in results:
        if isinstance(result, ANSWERS):
            return result
        if isinstance(result, Exception) and not isinstance(
            result, (RolledBackError, RuntimeInconsistency)
        ):
            raise translate(result, path) from result
    failed: Iterator[Exception] = (r for r in results if isinstance(r, Exception))
    error = next(failed, None)
    if error is not None:
        raise translate(error, path) from error
    return None
