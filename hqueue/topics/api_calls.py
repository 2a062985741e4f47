"""Calls of the Thrift API that hubs serve beside their port."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from hqueue.errors import (
    ClosedError,
    HubError,
    HubUnavailableError,
    IdempotencyKeyReusedError,
    IdempotencyKeyTooOldError,
    InvalidInputError,
    NotAQueueError,
    Outcome,
    QueueDisabledError,
    QueueNotFoundError,
    QueueStateError,
)
from hqueue.rpc.connection import Connection, ThriftError, is_another_service
from hqueue.rpc.pool import NotConnectedError
from hqueue.rpc.services import load
from hqueue.runtime.backoff import Backoff
from hqueue.runtime.clock import Clock, Deadline, Tries
from hqueue.runtime.interrupts import is_interruption
from hqueue.settings.addresses import Address
from hqueue.topics.connections import NO_ANSWER, HubConnections
from hqueue.topics.settings import HubClientSettings
from hqueue.topics.silence import SilentHubs, share_ms
from hqueue.topics.structs import text_of

__all__ = ["ApiCalls"]

RETRIES = Backoff(20.0, 2_000.0, spread=(0.5, 1.5))

NOT_AN_API = (
    "what listens where the hub says its Thrift API is does not know the call, and did nothing: "
    "does another server have the hub's api_port?"
)


class ApiCalls:
    """Calls the Thrift API of whichever hub answers. Thread-safe; a forked child opens connections
    of its own.

    Args:
        settings: where hubs are, and bounds.
        clock: where time comes from.
        find: asks a hub where its API is; what it raises means another hub.
        silent: the hubs that do not answer. A process that hangs answers at neither of its ports.
    """

    def __init__(
        self,
        settings: HubClientSettings,
        clock: Clock,
        find: Callable[[Address, Deadline], Address | None],
        silent: SilentHubs,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._find = find
        self._silent = silent
        self.idl = load("hqueue")
        self._known: dict[Address, Address] = {}
        """Where the API of a hub is."""
        self._closed = False
        self._connections = HubConnections(
            self.idl.HQueueService, settings.connections_max, settings.connect_timeout_ms
        )

    def close(self) -> None:
        """Close all connections; further calls are refused."""
        self._closed = True
        self._connections.close()

    def deadline(self) -> Deadline:
        """The bound on one operation, from now."""
        return Deadline(self._clock, self._settings.operation_timeout_ms)

    def call(
        self, queue: str, method: Callable[[Any], Any], *, repeatable: bool
    ) -> tuple[Any, Address]:
        """Call one after the other until one has done it; its answer, and which it was.

        Args:
            queue: the queue, for errors.
            method: makes the call.
            repeatable: whether it can be made again where nobody knows what became of it.

        Raises:
            HubUnavailableError: none did it in time.
            HQueueError: otherwise, as the IDL's error says.
        """
        deadline, tries, pauses = self.deadline(), Tries(), RETRIES.pauses()
        while True:
            try:
                if self._closed:
                    raise ClosedError("the client was closed")
                at = self._any(queue, deadline)
                return self.call_at(at, queue, method, deadline), at
            except (ClosedError, HubError, QueueStateError, IdempotencyKeyTooOldError) as exc:
                tries.note(exc)
                tries.conclude(exc)
                if not isinstance(exc, HubUnavailableError):
                    raise
                unknown = exc.outcome is Outcome.UNKNOWN and not repeatable
                if unknown or deadline.expired:
                    raise
            self._clock.sleep_ms(min(next(pauses), deadline.remaining_ms))

    def call_at(
        self, at: Address, queue: str, method: Callable[[Any], Any], deadline: Deadline
    ) -> Any:
        """One call of one of them.

        Raises:
            HubUnavailableError: it does not answer, or has lost the scanner: another may do it.
            HQueueError: otherwise, as the IDL's error says.
        """
        bound_ms = max(1.0, deadline.remaining_ms)
        idl = self.idl
        hub = next((hub for hub, known in list(self._known.items()) if known == at), None)

        def request(connection: Connection) -> Any:
            if hub is None:
                connection.socket.settimeout(bound_ms / 1e3)
            else:
                self._silent.watch(connection.socket, hub, deadline)
            return method(connection.client)

        answers = (
            idl.TIllegalArgument,
            idl.TQueueStateError,
            idl.TScannerNotFound,
            idl.TUnavailable,
            idl.TServiceError,
            idl.TIdempotencyKeyError,
        )
        try:
            return self._connections.call(at, request, answers, bound_ms)
        except NotConnectedError as exc:
            self._lost(at)
            if hub is not None and isinstance(exc.__cause__, TimeoutError):
                self._silent.note(hub)
            raise HubUnavailableError(
                "no connection to the hub's Thrift API",
                outcome=Outcome.NOT_APPLIED,
                api=str(at),
                queue=queue,
            ) from exc.__cause__
        except answers as exc:
            raise self._translated(exc, at, queue) from exc
        except (OSError, *ThriftError, EOFError, ValueError) as exc:
            if is_interruption(exc):
                raise
            self._lost(at)
            elsewhere = is_another_service(exc)
            raise HubUnavailableError(
                NOT_AN_API if elsewhere else NO_ANSWER,
                outcome=Outcome.NOT_APPLIED if elsewhere else Outcome.UNKNOWN,
                api=str(at),
                queue=queue,
            ) from exc

    def _any(self, queue: str, deadline: Deadline) -> Address:
        """Where some hub serves the API."""
        hubs = list(self._settings.hubs)
        random.shuffle(hubs)
        refused: Exception | None = None
        without = 0
        for hub in hubs:
            if not self._silent.may_be_called(hub, share_ms(deadline.remaining_ms)):
                refused = ConnectionError(f"{hub}: the hub is silent")
                continue
            known = self._known.get(hub)
            if known is not None:
                return known
            try:
                found = self._find(hub, deadline)
            except Exception as exc:  # Another may answer.
                if is_interruption(exc):
                    raise
                refused = exc
                without += is_another_service(exc.__cause__)
                continue
            if found is not None:
                self._known[hub] = found
                return found
            without += 1
        if without == len(hubs):
            raise InvalidInputError(
                "none of these hubs serves the Thrift API: give each hub's own port, and set the "
                "hub's api_port (HQUEUE_HUB_API_PORT), not a worker's",
                queue=queue,
                hubs=",".join(map(str, hubs)),
            )
        raise HubUnavailableError(
            "no hub that serves the Thrift API answers",
            outcome=Outcome.NOT_APPLIED,
            queue=queue,
            reason=str(refused),
        ) from refused

    def _lost(self, at: Address) -> None:
        """It may be another one by the next call: the hub is asked again."""
        self._connections.drop(at)
        for hub, known in list(self._known.items()):
            if known == at:
                self._known.pop(hub, None)

    def _translated(self, error: Any, at: Address, queue: str) -> Exception:
        idl = self.idl
        reason = text_of(error.message)
        outcome = (
            Outcome.UNKNOWN
            if getattr(error, "outcome", None) == idl.TOutcome.UNKNOWN
            else Outcome.NOT_APPLIED
        )
        match error:
            case idl.TIllegalArgument():
                return InvalidInputError("the hub refuses the call", reason=reason)
            case idl.TQueueStateError():
                kinds: dict[int, type[QueueStateError]] = {
                    idl.TQueueCondition.DISABLED: QueueDisabledError,
                    idl.TQueueCondition.NOT_A_QUEUE: NotAQueueError,
                }
                kind = kinds.get(error.condition, QueueNotFoundError)
                return kind(reason, queue=queue, outcome=outcome)
            case idl.TIdempotencyKeyError() if error.condition == idl.TIdempotencyCondition.REUSED:
                return IdempotencyKeyReusedError(
                    "this idempotency key was used for other messages",
                    queue=queue,
                    reason=reason,
                    count=error.count,
                    count_before=error.countBefore,
                    outcome=outcome,
                )
            case idl.TIdempotencyKeyError():
                return IdempotencyKeyTooOldError(
                    "the log was collected past the start of the search for the idempotency key",
                    queue=queue,
                    reason=reason,
                    outcome=outcome,
                )
            case idl.TServiceError():
                return HubError(
                    "the hub can't serve the call", queue=queue, reason=reason, outcome=outcome
                )
        return HubUnavailableError(
            "the hub can't serve the call now",
            api=str(at),
            queue=queue,
            reason=reason,
            outcome=outcome,
        )
