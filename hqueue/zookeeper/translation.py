"""ZooKeeper's errors, translated to this library's."""

from __future__ import annotations

from kazoo import exceptions

from hqueue.errors import HQueueError, Outcome, RequestRefusedError, StoreUnavailableError

__all__ = ["ANSWERS", "translate"]

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


def translate(error: BaseException, path: str) -> HQueueError:
    """Anything but an answer. What isn't a refusal means that ZooKeeper did not answer in time,
    and may do it yet.
    """
    if isinstance(error, _REFUSALS):
        return RequestRefusedError(
            "ZooKeeper refused", path=path, answer=f"{type(error).__name__}: {error}"
        )
    return StoreUnavailableError(
        "ZooKeeper gave no answer",
        outcome=Outcome.UNKNOWN,
        path=path,
        reason=f"{type(error).__name__}: {error}",
    )
