"""ZooKeeper's errors, translated to this library's."""

from __future__ import annotations

from kazoo import exceptions

from hqueue.errors import HQueueError, Outcome, RequestRefusedError, StoreUnavailableError

__all__ = ["ANSWERS", "is_refusal", "refused", "translate"]

ANSWERS = (
    exceptions.NoNodeError,
    exceptions.NodeExistsError,
    exceptions.NotEmptyError,
    exceptions.BadVersionError,
)
"""What a request may be answered with, and its sender understands: these are not translated."""

_REFUSALS = (
    exceptions.NoAuthError,
    exceptions.AuthFailedError,
    exceptions.InvalidACLError,
    exceptions.BadArgumentsError,
    exceptions.MarshallingError,
    exceptions.UnimplementedError,
    exceptions.QuotaExceededError,
    exceptions.NoChildrenForEphemeralsError,
)


def is_refusal(error: BaseException) -> bool:
    """Whether ZooKeeper will not do what it was asked for."""
    return isinstance(error, _REFUSALS)


def refused(error: BaseException, path: str) -> RequestRefusedError:
    """A refusal."""
    return RequestRefusedError(
        "ZooKeeper refused the request", path=path, answer=f"{type(error).__name__}: {error}"
    )


def translate(error: BaseException, path: str) -> HQueueError:
    """Anything but an answer. What isn't a refusal means that ZooKeeper did not answer in time,
    and may do it yet.
    """
    if is_refusal(error):
        return refused(error, path)
    return StoreUnavailableError(
        "ZooKeeper gave no answer",
        outcome=Outcome.UNKNOWN,
        path=path,
        reason=f"{type(error).__name__}: {error}",
    )
