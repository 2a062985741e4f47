"""Counting in the demo, by what is installed for it: an entry point ``hqueue.demo``."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from typing import Protocol

from hqueue.cli.exits import say

__all__ = ["Counted", "count_elsewhere"]

GROUP = "hqueue.demo"


class Counted(Protocol):
    """What was counted, and how long that took."""

    seconds: float

    @property
    def messages(self) -> int:
        """All that were counted."""

    @property
    def window_ms(self) -> int:
        """How long the windows of time are."""

    def show(self) -> None:
        """Write the counts to stdout."""


def count_elsewhere(queue: str, options: Mapping[str, str]) -> Counted | None:
    """Count the messages of a queue; None where nothing is installed that does.

    Args:
        queue: the queue's name.
        options: the connection's settings, as options of a data source.
    """
    for point in importlib.metadata.entry_points(group=GROUP):
        try:
            count = point.load()
        except ImportError:
            continue
        say("Counting all messages in a Spark job, which takes a moment to start.")
        counted: Counted = count(queue, options)
        return counted
    return None
