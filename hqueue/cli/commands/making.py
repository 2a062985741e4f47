"""Messages made of what ``hqueue put`` is given: values, lines and documents."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence

from hqueue.cli.framing import Framing
from hqueue.errors import InvalidInputError
from hqueue.message import Headers, Message, checked_headers
from hqueue.texts.documents import message_of

__all__ = ["Make", "message_maker", "parse_headers"]

Make = Callable[[bytes], Message | None]
"""Gives None for what a copy leaves out."""


def message_maker(
    framing: Framing,
    topic: str,
    key: bytes | None = None,
    headers: Headers = (),
    separator: str | None = None,
) -> Make:
    """What turns what was read into messages.

    Args:
        framing: how it was told apart.
        topic: of each message; of documents those that have none.
        key, headers: of each message.
        separator: each line is a key, this text, and the value.

    Raises:
        InvalidInputError: these don't go together.
    """
    if framing is Framing.JSON:
        if key is not None or headers or separator is not None:
            raise InvalidInputError(
                "JSON documents carry their own keys and headers: leave out the options for keys "
                "and headers"
            )
        return functools.partial(message_of, topic=topic)
    if not topic:
        raise InvalidInputError("put needs a topic: give --topic")
    if separator is None:
        return lambda value: Message(topic, value, key, headers)
    if framing is not Framing.LINES:
        raise InvalidInputError(
            "a key separator works only with --format lines", format=framing.value
        )
    if key is not None:
        raise InvalidInputError("give a message key or a key separator, not both")
    if not separator:
        raise InvalidInputError("the key separator is empty: give at least one character")
    between = os.fsencode(separator)

    def split(line: bytes) -> Message:
        before, found, value = line.partition(between)
        if not found:
            raise InvalidInputError("a line has no key separator", separator=separator)
        return Message(topic, value, before, headers)

    return split


def parse_headers(assignments: Sequence[str]) -> Headers:
    """Headers that are written NAME=VALUE, in their order.

    Raises:
        InvalidInputError: one is not written so, or a name has no UTF-8.
    """
    headers = []
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise InvalidInputError("a header must be written as NAME=VALUE", header=assignment)
        headers.append((name, os.fsencode(value)))
    return checked_headers(headers)
