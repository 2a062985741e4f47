"""What hubs are sent and send, as the library has it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from hqueue.errors import InvalidInputError, SubscriberExistsError, SubscriberNotFoundError
from hqueue.format.cells import check_count, check_size
from hqueue.message import Message, check_headers_of
from hqueue.metadata.managers import SubscriptionPreferences, TopicACL, check_names
from hqueue.produce.encode import headers_to_put
from hqueue.rpc.services import load
from hqueue.runtime.loop import computing, is_much
from hqueue.runtime.pieces import drop_in_pieces
from hqueue.runtime.steps import Work
from hqueue.settings.kinds import listed

__all__ = [
    "acl_of",
    "acl_struct",
    "check_sent",
    "freed",
    "message_struct",
    "message_structs",
    "naming",
    "preferences_of",
    "preferences_struct",
    "text_of",
]

FREED_TOGETHER = 500
"""Messages as the IDL has them, each of many objects."""


def preferences_struct(preferences: SubscriptionPreferences) -> Any:
    """Preferences as the IDL has them."""
    return load("hub").TPreferences(
        messageBound=preferences.message_bound,
        consumeInterval=preferences.consume_interval,
        deliveryWindow=preferences.delivery_window,
        application=dict(preferences.application),
        unansweredCallsMax=preferences.unanswered_calls_max,
    )


def preferences_of(given: Any) -> SubscriptionPreferences:
    """Preferences in a hub's answer, or none."""
    if given is None:
        return SubscriptionPreferences()
    return SubscriptionPreferences(
        given.messageBound,
        given.consumeInterval,
        given.deliveryWindow,
        {text_of(name): text_of(value) for name, value in (given.application or {}).items()},
        given.unansweredCallsMax,
    )


def message_structs(
    topic: str, messages: Sequence[bytes | bytearray | memoryview | Message]
) -> list[Any]:
    """Messages of a topic to publish.

    Raises:
        InvalidInputError: no message is given, one can't be the topic's, or a header is the
            system's own.
        MessageTooLargeError: together they are larger than a batch may be.
    """
    messages = listed(messages, "messages")
    if not messages:
        raise InvalidInputError("publish takes a sequence of at least one message")
    given = [_message(topic, each) for each in messages]
    check_sent(given)
    return [message_struct(each) for each in given]


def check_sent(messages: Sequence[Message]) -> None:
    """Refuse what no batch can have before it is sent.

    Raises:
        InvalidInputError: these are too many messages, or none.
        MessageTooLargeError: they are larger than a batch may be, or have more headers.
    """
    check_count(len(messages))
    check_size(sum(each.size for each in messages))
    check_headers_of([each.headers for each in messages])


def _message(topic: str, given: bytes | bytearray | memoryview | Message) -> Message:
    message = given if isinstance(given, Message) else Message(topic, given)
    if message.topic != topic:
        raise InvalidInputError(
            "a message's topic is not the topic of the call", topic=topic, found=message.topic
        )
    return message


def message_struct(message: Message, topic: bytes = b"") -> Any:
    """A message as the IDL has it, with its topic where the call has none."""
    structs = load("subscriber")
    headers = [structs.THeader(name.encode(), value) for name, value in headers_to_put(message)]
    return structs.TMessage(
        topic=topic, value=message.value, key=message.key, headers=headers or None
    )


def freed(structs: list[Any]) -> Work[Any, None]:
    """Free structs that were sent and are needed no more: many of them beside an event loop, for
    that takes as long as to make them.
    """
    if is_much(len(structs), lambda: 0):
        yield computing(partial(drop_in_pieces, structs, FREED_TOGETHER))


def acl_struct(**lists: Sequence[str] | None) -> Any:
    """Those lists of a topic's ACL that are given.

    Raises:
        InvalidInputError: one is not a list of names.
    """
    given = {
        what: list(check_names(names, option=what))
        for what, names in lists.items()
        if names is not None
    }
    return load("hub").TTopicAccess(**given)


def acl_of(given: Any) -> TopicACL:
    """A topic's ACL in a hub's answer."""
    lists = given.publish, given.subscribe, given.manage
    return TopicACL(*([text_of(name) for name in names or ()] for names in lists))


def text_of(given: bytes | str | None) -> str:
    """A text in a hub's answer."""
    return given.decode(errors="replace") if isinstance(given, bytes) else given or ""


@contextlib.contextmanager
def naming(subscriber: str) -> Iterator[None]:
    """Has a hub's answer about a subscription name the subscriber, too."""
    try:
        yield
    except (SubscriberExistsError, SubscriberNotFoundError) as exc:
        exc.facts["subscriber"] = subscriber
        raise
