"""The questions before a change, which the command line and the console ask in the same words."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from hqueue.texts.shown import printable

__all__ = [
    "delayed_in",
    "delete_dead_letters",
    "move_checkpoints",
    "overwrite_offsets",
    "redrive_dead_letters",
]


def overwrite_offsets(group: str, queue: str, delayed: int = 0) -> str:
    """The question before a group is reset.

    Args:
        group: the group's name.
        queue: the queue's name.
        delayed: how many messages wait for their time in the partitions that are reset.
    """
    question = f"Overwrite the offsets of {printable(group)} in {queue}?"
    if not delayed:
        return question
    if delayed == 1:
        return f"{question} Its delayed message is lost to it if it lies before the new position."
    lost = "those before the new position are lost to it"
    return f"{question} Of its {delayed:,} delayed messages, {lost}."


def delayed_in(described: Any, queue: str, partitions: Collection[int] | None) -> int:
    """How many messages of a group wait for their time in these partitions of a queue; in all if
    None.

    Args:
        described: the group's `hqueue.groups.descriptions.GroupDescription`.
        queue: the queue's name.
        partitions: the partitions.
    """
    return sum(
        each.shared.delayed
        for each in described.partitions
        if each.shared is not None
        and each.queue == queue
        and (partitions is None or each.partition in partitions)
    )


def move_checkpoints(subscriber: str, queue: str) -> str:
    """The question before a subscriber's checkpoints are moved."""
    return f"Move the checkpoints of {printable(subscriber)} in {queue}?"


def delete_dead_letters(owner: str | None, queue: str, chosen: str | None = None) -> str:
    """The question before dead letters are deleted.

    Args:
        owner: the subscriber or the group; None for all of them.
        queue: the queue.
        chosen: the ID of the only one; None for all that are listed.
    """
    return f"Delete {_what(chosen)} of {_whose(owner)} in {queue}?"


def redrive_dead_letters(owner: str | None, queue: str, chosen: str | None = None) -> str:
    """The question before dead letters are redriven; as `delete_dead_letters`."""
    return f"Redrive {_what(chosen)} of {_whose(owner)} in {queue}?"


def _what(chosen: str | None) -> str:
    return "the listed dead letters" if chosen is None else f"dead letter {chosen}"


def _whose(owner: str | None) -> str:
    return printable(owner or "all subscribers and groups")
