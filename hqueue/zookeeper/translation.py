"""ZooKeeper's errors, translated to this library's."""

from __future__ import annotations

from typing import Any

from kazoo import exceptions

from hqueue.errors import (
    AuthenticationError,
    HQueueError,
    Outcome,
    RequestRefusedError,
    StoreUnavailableError,
)
from hqueue.net.refusals import RefusedError

__all__ = ["ANSWERS", "is_refusal", "not_accepted", "refused", "translate"]

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
    exceptions.SessionClosedRequireSaslError,
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
    if isinstance(error, exceptions.SessionClosedRequireSaslError):
        return AuthenticationError(
            "ZooKeeper demands a proof of identity: set zookeeper_authentication",
            path=path,
        )
    text = "ZooKeeper refused the request"
    if isinstance(error, exceptions.NoAuthError):
        text = (
            "ZooKeeper's ACL of the node does not let this session do that: use another "
            "principal, or have the node's owner add this one to zookeeper_acl"
        )
    return RequestRefusedError(text, path=path, answer=f"{type(error).__name__}: {error}")


def not_accepted(refusal: RefusedError, **facts: Any) -> AuthenticationError:
    """Make the error that client and server don't accept each other."""
    return AuthenticationError(refusal.text, **{**facts, **refusal.facts})


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
