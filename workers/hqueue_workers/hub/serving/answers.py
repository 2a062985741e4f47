"""Converts errors, texts and arguments between the hub's service and its IDL."""

from __future__ import annotations

import asyncio
import dataclasses
from concurrent.futures import CancelledError
from typing import Any

from hqueue import BufferFullError, HQueueError, InvalidInputError, MessageID, TopicACL
from hqueue.errors import (
    NoSubscriptionStateError,
    NotAllowedError,
    Outcome,
    QueueNotFoundError,
    SubscriptionStateExistsError,
)
from hqueue.message import topic_bytes
from hqueue.metadata.managers import check_names
from hqueue.rpc.services import given, load
from hqueue.settings.limits import NAME_BYTES_MAX
from hqueue_workers.hub.writing.owned_topic import RedirectedError

__all__ = [
    "acl_lists_of",
    "acl_struct",
    "as_thrift",
    "message_id_of",
    "since_of",
    "text_of",
    "topic_of",
]


def as_thrift(error: BaseException) -> Exception:
    """Convert an error into one of the IDL. An unexpected error becomes an unknown one, without its
    text.
    """
    idl = load("hub")
    made: Exception
    match error:
        case RedirectedError():
            made = idl.TRedirect(error.address.host, error.address.port)
        case InvalidInputError():
            made = idl.TIllegalArgument(str(error))
        case QueueNotFoundError():
            made = idl.TNoSuchQueue(str(error))
        case NotAllowedError():
            made = idl.TNotAllowed(str(error))
        case BufferFullError():
            made = idl.TBusy(str(error), error.facts.get("retry_after_ms"))
        case SubscriptionStateExistsError():
            made = idl.TSubscriptionExists(str(error))
        case NoSubscriptionStateError():
            made = idl.TNoSuchSubscription(str(error))
        case HQueueError():
            unknown = error.outcome is Outcome.UNKNOWN
            outcome = idl.TOutcome.UNKNOWN if unknown else idl.TOutcome.NOT_APPLIED
            made = idl.TUnavailable(str(error), outcome)
        case CancelledError() | asyncio.CancelledError():
            made = idl.TUnavailable("the hub is shutting down", idl.TOutcome.UNKNOWN)
        case _:
            made = idl.TUnavailable(f"the hub failed: {type(error).__name__}", idl.TOutcome.UNKNOWN)
    return made


def text_of(text: Any, name: str, bytes_max: int = NAME_BYTES_MAX) -> str:
    """Return a text of a call, which has at most this many bytes.

    Raises:
        InvalidInputError: the text is missing, too long, or not UTF-8.
    """
    if text is None:
        raise InvalidInputError(f"{name} is missing")
    if len(text) > bytes_max:
        raise InvalidInputError(f"{name} is too long", bytes=len(text), bytes_max=bytes_max)
    try:
        return text if isinstance(text, str) else bytes(text).decode()
    except UnicodeDecodeError as exc:
        raise InvalidInputError(f"{name} must be UTF-8") from exc


def topic_of(name: Any) -> str:
    """Return a topic's name in a call.

    Raises:
        InvalidInputError: it is not a topic's name.
    """
    topic = text_of(name, "topic")
    topic_bytes(topic)
    return topic


def message_id_of(struct: Any, name: str) -> MessageID:
    """Return a message's ID in a call.

    Raises:
        InvalidInputError: the ID is missing, or is not a message ID.
    """
    if struct is None or struct.timestamp is None or struct.sequenceID is None:
        raise InvalidInputError(f"{name} is missing")
    return MessageID(struct.timestamp, struct.sequenceID)


def since_of(struct: Any) -> int:
    """Return the ID before which a publisher has tried nothing; 0 if it is not given.

    Raises:
        InvalidInputError: it is not a message ID.
    """
    return 0 if given(struct) is None else int(message_id_of(struct, "since"))


def acl_lists_of(struct: Any) -> dict[str, tuple[str, ...]]:
    """Return the lists of an ACL that a call gives, by their names.

    Raises:
        InvalidInputError: one is not a list of names.
    """
    names = [field.name for field in dataclasses.fields(TopicACL)]
    lists = {name: getattr(struct, name, None) for name in names}
    return {
        name: check_names((text_of(each, name) for each in given_names), option=name)
        for name, given_names in lists.items()
        if given_names is not None
    }


def acl_struct(acl: TopicACL) -> Any:
    """Convert a topic's ACL into the IDL's struct."""
    return load("hub").TTopicAccess(
        publish=list(acl.publish),
        subscribe=list(acl.subscribe),
        manage=list(acl.manage),
    )
