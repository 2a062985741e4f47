"""The topics under which dead letters and redrives lie."""

from __future__ import annotations

__all__ = ["dead_letter_topic", "is_delivered_unasked", "is_redrive", "redrive_topic"]

_DEAD = "hqueue.dead-letters."
_REDRIVE = "hqueue.redrive."


def dead_letter_topic(subscriber: str) -> str:
    """The topic of a subscriber's dead letters."""
    return _DEAD + subscriber


def redrive_topic(subscriber: str) -> str:
    """The topic of what is put back to a subscriber."""
    return _REDRIVE + subscriber


def is_delivered_unasked(topic: str) -> bool:
    """Whether a subscription to all topics includes this one."""
    return not topic.startswith((_DEAD, _REDRIVE))


def is_redrive(topic: str) -> bool:
    """Whether what is put back to some subscriber lies under this topic."""
    return topic.startswith(_REDRIVE)
