"""Where in a queue one begins that has no place of its own yet."""

from __future__ import annotations

from hqueue.position import EARLIEST, Position, as_message_id

__all__ = ["EARLIEST", "LATEST", "Start", "check_start"]

LATEST = "latest"

Start = Position | str
"""Where a subscriber without a checkpoint begins, or a group that is reset: a `Position`,
``"earliest"``: the oldest message there is, or ``"latest"``: what is written from now on."""


def check_start(start: object) -> Start:
    """Where to begin.

    Raises:
        InvalidInputError: it is neither a position nor ``latest``.
    """
    if isinstance(start, str) and start in (EARLIEST, LATEST):
        return start
    return as_message_id(start)  # type: ignore[arg-type]
