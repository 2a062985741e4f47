"""Calls of the Thrift API that hubs serve beside their port."""

from __future__ import annotations

import random
from typing import Any

from hqueue.errors import (
    ClosedError,
    HubError,
    HubUnavailableError,
    IdempotencyKeyReusedError,
    IdempotencyKeyTooOldError,
    InvalidInputError,
    NotAllowedError,
    NotAQueueError,
    Outcome,
    QueueDisabledError,
    QueueNotFoundError,
    QueueStateError,
)
from hqueue.net.refusals import refusal_of
from hqueue.rpc.calls import NoCallError
from hqueue.rpc.connection import ThriftError, is_another_service
from hqueue.rpc.pool import NotConnectedError
from hqueue.rpc.services import load
from hqueue.runtime.backoff import Backoff
from hqueue.runtime.clock import Clock, Deadline, Tries, do_step, do_step_in_loop
from hqueue.runtime.interrupts import is_interruption
from hqueue.runtime.steps import Pause, Work
from hqueue.runtime.stepwise import Stepwise, stepwise
from hqueue.settings.addresses import Address
from hqueue.topics.calls import OVER_QUOTA, HubCalls, not_accepted
from hqueue.topics.connections import HubConnections
from hqueue.topics.exchanges import Exchange, HubMethod
from hqueue.topics.loop_connections import LoopHubConnections
from hqueue.topics.silence import share_ms
from hqueue.topics.structs import text_of

__all__ = ["ApiCalls"]

RETRIES = Backoff(20.0, 2_000.0, spread=(0.5, 1.5))

POSITION_MS = 10_000.0
"""How long a position is used for puts: a search begins that much earlier in any case."""

NOT_AN_API = (
    "the server at the hub's Thrift API does not know the call, and did nothing: upgrade the hub "
    "if its version is older than this client's; or does another server have the hub's api_port?"
)


class ApiCalls(Stepwise):
    """Calls the Thrift API of whichever hub answers. Thread-safe, and usable in any number of event
    loops; a forked child opens connections of its own.

    Args:
        hubs: calls hubs, which report the addresses of their APIs. A process that hangs answers at
            neither of its ports.
        clock: measures time.
    """

    def __init__(self, hubs: HubCalls, clock: Clock) -> None:
        self._hubs = hubs
        self._settings = hubs.settings
        self._clock = clock
        self.idl = load("hqueue")
        self._known: dict[Address, Address] = {}
        """The address of each hub's API."""
        self._positions: dict[str, tuple[float, Any]] = {}
        """A position of each queue, and when it was requested."""
        self._closed = False
        idl = self.idl
        self._declared = (
            idl.TIllegalArgument,
            idl.TQueueStateError,
            idl.TScannerNotFound,
            idl.TUnavailable,
            idl.TServiceError,
            idl.TIdempotencyKeyError,
        )
        called = idl.HQueueService, self._declared, self._settings, hubs.tls
        self._connections = HubConnections(*called)
        self._loop_connections = LoopHubConnections(*called)

    def close(self) -> None:
        """Close all connections; further calls are refused."""
        self._closed = True
        self._connections.close()
        self._loop_connections.close()

    def deadline(self) -> Deadline:
        """The bound on one operation, from now."""
        return Deadline(self._clock, self._settings.operation_timeout_ms)

    @stepwise
    def call(
        self, queue: str, method: HubMethod, deadline: Deadline | None = None
    ) -> Work[Any, tuple[Any, Address]]:
        """Call hubs, one after the other, until one has answered. Returns its answer and its
        address. A call is repeated if its answer was lost, so a repetition must change nothing.

        Args:
            queue: the queue, for errors.
            method: the method to call.
            deadline: the bound on all tries; that of one operation if None.

        Raises:
            HubUnavailableError: no hub carried out the call in time.
            HQueueError: otherwise, as the IDL's error says.
        """
        deadline = deadline or self.deadline()
        tries, pauses = Tries(), RETRIES.pauses()
        while True:
            try:
                if self._closed:
                    raise ClosedError("the client was closed")
                at = yield from self._any(queue, deadline)
                return (yield from self.call_at.steps(at, queue, method, deadline)), at
            except (ClosedError, HubError, QueueStateError, IdempotencyKeyTooOldError) as exc:
                tries.note(exc)
                tries.conclude(exc)
                is_over_quota = "retry_after_ms" in exc.facts  # For longer than there is time.
                if not isinstance(exc, HubUnavailableError) or deadline.expired or is_over_quota:
                    raise
            yield Pause(min(next(pauses), deadline.remaining_ms))

    def position(self, queue: str, deadline: Deadline) -> Work[Any, Any]:
        """A position before all messages that are put into a queue from now on, by the hubs'
        clocks: this machine's clock may be wrong.

        Raises:
            HQueueError: as `call`. Nothing was put.
        """
        now_ms = self._clock.monotonic_ms()
        known = self._positions.get(queue)
        if known is None or now_ms - known[0] > POSITION_MS:
            method = HubMethod("currentPosition", (queue,), only_reads=True)
            found, _ = yield self.call.asked(queue, method, deadline)
            if len(self._positions) >= self._settings.owners_max:
                self._positions.clear()
            self._positions[queue] = known = now_ms, found
        return known[1]

    @stepwise
    def call_at(
        self, at: Address, queue: str, method: HubMethod, deadline: Deadline
    ) -> Work[Any, Any]:
        """Call one hub's API. The call is repeated when the caller's quota allows it.

        Raises:
            HubUnavailableError: the hub does not answer, or has lost the scanner, and another hub
                may serve the call; or the quota does not allow the call before the deadline.
            HQueueError: otherwise, as the IDL's error says.
        """
        while True:
            try:
                with method.outcome():
                    return (yield from self._call_at(at, queue, method, deadline))
            except HubUnavailableError as exc:
                retry_after_ms = exc.facts.get("retry_after_ms")
                if not isinstance(retry_after_ms, int) or deadline.remaining_ms <= retry_after_ms:
                    raise
                pause_ms = RETRIES.obey(retry_after_ms)
            yield Pause(min(pause_ms, deadline.remaining_ms))

    def _call_at(
        self, at: Address, queue: str, method: HubMethod, deadline: Deadline
    ) -> Work[Any, Any]:
        hub = next((hub for hub, known in list(self._known.items()) if known == at), None)
        watch = None if hub is None else self._hubs.watch(hub, deadline)
        try:
            return (yield Exchange(at, method, deadline, watch))
        except NotConnectedError as exc:
            self._lost(at)
            if hub is not None and isinstance(exc.__cause__, TimeoutError):
                self._hubs.silent.note(hub)
            refusal = refusal_of(exc.__cause__)
            if refusal is not None:
                raise not_accepted(refusal, api=str(at)) from exc.__cause__
            raise HubUnavailableError(
                "no connection to the hub's Thrift API",
                outcome=Outcome.NOT_APPLIED,
                api=str(at),
                queue=queue,
            ) from exc.__cause__
        except self._declared as exc:
            raise self._translated(exc, at, queue) from exc
        except (OSError, *ThriftError, EOFError, ValueError, NoCallError) as exc:
            if is_interruption(exc):
                raise
            refusal = refusal_of(exc)
            if refusal is not None:
                raise not_accepted(refusal, api=str(at)) from exc
            self._lost(at)
            elsewhere = is_another_service(exc)
            raise HubUnavailableError(
                NOT_AN_API if elsewhere else method.no_answer,
                outcome=Outcome.NOT_APPLIED if elsewhere else Outcome.UNKNOWN,
                api=str(at),
                queue=queue,
            ) from exc

    def _do(self, step: Any) -> object:
        return do_step(self._connections, self._clock, step)

    async def _do_in_loop(self, step: Any) -> object:
        return await do_step_in_loop(self._loop_connections, self._clock, step)

    def _any(self, queue: str, deadline: Deadline) -> Work[Any, Address]:
        """The address of a hub's API."""
        hubs = list(self._settings.hubs)
        random.shuffle(hubs)
        refused: Exception | None = None
        without = 0
        for hub in hubs:
            share = share_ms(deadline.remaining_ms)
            if not (yield self._hubs.may_be_called.asked(hub, share)):
                refused = ConnectionError(f"{hub}: the hub is silent")
                continue
            known = self._known.get(hub)
            if known is not None:
                return known
            try:
                found: Address | None = yield self._hubs.api_address.asked(hub, deadline)
            except Exception as exc:  # Another may answer.
                if is_interruption(exc):
                    raise
                if isinstance(exc, NotAllowedError):
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
        """Forget an API's address: the hub is asked again, since it may have changed."""
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
                if not error.notAllowed:
                    made: Exception = InvalidInputError("the hub refuses the call", reason=reason)
                else:
                    text = "the caller is not allowed to do this"
                    made = NotAllowedError(text, queue=queue, api=str(at), reason=reason)
                return made
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
                    "the headers at the start of the search for the idempotency key were deleted",
                    queue=queue,
                    reason=reason,
                    outcome=outcome,
                )
            case idl.TServiceError():
                return HubError(
                    "the hub can't serve the call", queue=queue, reason=reason, outcome=outcome
                )
        unavailable = HubUnavailableError(
            "the hub can't serve the call now",
            api=str(at),
            queue=queue,
            reason=reason,
            outcome=outcome,
        )
        retry_after_ms = getattr(error, "retryAfterMs", None)
        if retry_after_ms:
            unavailable.text = OVER_QUOTA
            unavailable.facts["retry_after_ms"] = retry_after_ms
        return unavailable
