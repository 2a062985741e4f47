"""The owners of dead letters, and the topics of dead letters and redrives.

The dead letters of a subscriber have the topic ``hqueue.dead-letters.<subscriber>``, and those of a
group ``hqueue.dead-letters.group/<group>``: no subscriber's name has a slash. If a group's name has
more than 200 bytes in UTF-8, the topic ends with ``group-hash/`` and a hash of the name.
"""

from __future__ import annotations

import hashlib
from typing import Literal, NamedTuple

from hqueue.errors import InvalidInputError
from hqueue.metadata import check_name
from hqueue.settings.limits import NAME_LENGTH_MAX

__all__ = [
    "GROUP",
    "SUBSCRIBER",
    "DeadLetterOwner",
    "dead_letter_topic",
    "is_dead_letter",
    "is_delivered_unasked",
    "is_redrive",
    "redrive_topic",
    "redrive_topic_beside",
]

SUBSCRIBER: Literal["subscriber"] = "subscriber"
GROUP: Literal["group"] = "group"

_DEAD = "hqueue.dead-letters."
_REDRIVE = "hqueue.redrive."
_GROUP_BYTES_MAX = 200
"""A topic has 255 bytes at most, and a group's name may have 800."""


class DeadLetterOwner(NamedTuple):
    """The push subscription or the group that failed to process a message."""

    kind: Literal["subscriber", "group"]
    name: str

    @classmethod
    def of(cls, subscriber: object, group: object) -> DeadLetterOwner:
        """The owner with the name that is given.

        Raises:
            InvalidInputError: both names are given, or none, or the name is not valid.
        """
        if group is None and subscriber is not None:
            return cls(SUBSCRIBER, check_name(subscriber))
        if group is None or subscriber is not None:
            raise InvalidInputError(
                "dead letters belong to a subscriber or to a group: give one of the two names",
                subscriber=subscriber,
                group=group,
            )
        return cls(GROUP, _check_group(group))

    @property
    def dead_letter_topic(self) -> str:
        """The topic of the owner's dead letters."""
        return _DEAD + self._segment

    @property
    def redrive_topic(self) -> str:
        """The topic of redrives to the owner."""
        return _REDRIVE + self._segment

    @property
    def _segment(self) -> str:
        if self.kind == SUBSCRIBER:
            return self.name
        encoded = self.name.encode()
        if len(encoded) <= _GROUP_BYTES_MAX:
            return f"group/{self.name}"
        return f"group-hash/{hashlib.blake2b(encoded, digest_size=32).hexdigest()}"


DeadLetterOwner.kind.__doc__ = "``subscriber`` or ``group``."
DeadLetterOwner.name.__doc__ = "The subscriber's or the group's name."


def dead_letter_topic(subscriber: str) -> str:
    """The topic of a subscriber's dead letters."""
    return DeadLetterOwner(SUBSCRIBER, subscriber).dead_letter_topic


def redrive_topic(subscriber: str) -> str:
    """The topic of redrives to a subscriber."""
    return DeadLetterOwner(SUBSCRIBER, subscriber).redrive_topic


def is_delivered_unasked(topic: str) -> bool:
    """Whether a subscription to all topics includes this topic."""
    return not topic.startswith((_DEAD, _REDRIVE))


def is_dead_letter(topic: str) -> bool:
    """Whether this is a topic of dead letters."""
    return topic.startswith(_DEAD)


def is_redrive(topic: str) -> bool:
    """Whether this is a topic of redrives."""
    return topic.startswith(_REDRIVE)


def redrive_topic_beside(dead_letter_topic: str) -> str:
    """The topic of redrives to the owner of a topic of dead letters."""
    return _REDRIVE + dead_letter_topic.removeprefix(_DEAD)


def _check_group(name: object) -> str:
    if not isinstance(name, str) or not 1 <= len(name) <= NAME_LENGTH_MAX:
        raise InvalidInputError("the name of a group must be a string of 1 to 200 characters",
                                name=name)  # fmt: skip
    try:
        name.encode()
    except UnicodeEncodeError as exc:
        raise InvalidInputError("the name can't be encoded as UTF-8", name=name) from exc
    return name
