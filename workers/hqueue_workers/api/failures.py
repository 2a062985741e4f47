"""Converts the library's errors into the exceptions that the IDL declares."""

from __future__ import annotations

from typing import Any

from hqueue import (
    BufferFullError,
    ClosedError,
    HQueueError,
    IdempotencyKeyReusedError,
    InvalidInputError,
    Outcome,
    QueueStateError,
    StoreUnavailableError,
)
from hqueue.errors import (
    IdempotencyKeyTooOldError,
    NotAllowedError,
    NotAQueueError,
    QueueDisabledError,
)
from hqueue_workers.api.structs import API

__all__ = ["ScannerBusyError", "ScannerNotFoundError", "exception_of"]

TEXT_LENGTH_MAX = 1_000
"""Of an error's text in an answer."""


class ScannerNotFoundError(HQueueError):
    """There is no scanner with this ID."""

    default_outcome = Outcome.NOT_APPLIED


class ScannerBusyError(HQueueError):
    """There is no room for a scanner, or another call is using it."""

    default_outcome = Outcome.NOT_APPLIED


def exception_of(error: HQueueError) -> tuple[Any, str]:
    """The IDL's exception for an error, and its name in metrics."""
    text = str(error)[:TEXT_LENGTH_MAX]
    outcome = API.TOutcome.UNKNOWN if error.outcome is Outcome.UNKNOWN else API.TOutcome.NOT_APPLIED
    if isinstance(error, (InvalidInputError, NotAllowedError)):
        refused = isinstance(error, NotAllowedError) or None  # Left out otherwise.
        return API.TIllegalArgument(message=text, notAllowed=refused), "illegal_argument"
    if isinstance(error, ScannerNotFoundError):
        return API.TScannerNotFound(message=text), "scanner_not_found"
    if isinstance(error, QueueStateError):
        condition = API.TQueueCondition.NOT_FOUND
        if isinstance(error, QueueDisabledError):
            condition = API.TQueueCondition.DISABLED
        elif isinstance(error, NotAQueueError):
            condition = API.TQueueCondition.NOT_A_QUEUE
        raised = API.TQueueStateError(message=text, condition=condition, outcome=outcome)
        return raised, "queue_state"
    if isinstance(error, (IdempotencyKeyReusedError, IdempotencyKeyTooOldError)):
        kinds = API.TIdempotencyCondition
        is_reused = isinstance(error, IdempotencyKeyReusedError)
        raised = API.TIdempotencyKeyError(
            message=text,
            condition=kinds.REUSED if is_reused else kinds.TOO_OLD,
            outcome=outcome,
            count=error.facts.get("count"),
            countBefore=error.facts.get("count_before"),
        )
        return raised, "idempotency_key"
    if isinstance(error, (StoreUnavailableError, ScannerBusyError, BufferFullError, ClosedError)):
        retry_after_ms = error.facts.get("retry_after_ms")
        raised = API.TUnavailable(message=text, outcome=outcome, retryAfterMs=retry_after_ms)
        return raised, "unavailable"
    return API.TServiceError(message=text, outcome=outcome), "service_error"
