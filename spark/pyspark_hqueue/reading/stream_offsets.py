"""The offsets of a stream, as a checkpoint keeps them and a query's progress shows them.

For each partition an offset has the ID that comes next, and how many messages came before it:

    {"partitions": {"0": [57909149007872000, 1200], "1": [0, 0]}, "queue": "events"}

The offset that the first batch ends at has the positions at which the query began as well, in
``start``, and in ``exact`` the partitions among them that began at a group's offset. The offset of
the log's end, which only a progress has, says how far the stream is behind, by the names of Kafka's
metrics. `hqueue lag --checkpoint` reads these offsets, too.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from hqueue import InvalidInputError
from pyspark_hqueue.reading.plan import Position

__all__ = [
    "Positions",
    "behind",
    "check_queue",
    "latest_offset",
    "offset_of",
    "positions_in",
    "read_offset",
    "start_in",
]

Positions = dict[int, Position]


def offset_of(
    queue: str,
    positions: Positions,
    start: Positions | None = None,
    exact: Collection[int] = (),
) -> dict[str, Any]:
    """An offset as Spark keeps it. Two are the same when their texts are: so keys are in order."""
    offset: dict[str, Any] = {"partitions": _listed(positions), "queue": queue}
    if start is not None:
        offset["start"] = _listed(start)
    if exact:
        offset["exact"] = sorted(exact)
    return offset


def latest_offset(queue: str, ends: Positions, read: Positions) -> dict[str, Any]:
    """The end of the log, with how many messages a stream that was read to somewhere is behind."""
    numbers = behind(ends, read).values()
    return {
        "avgOffsetsBehindLatest": sum(numbers) / len(numbers) if numbers else 0.0,
        "maxOffsetsBehindLatest": max(numbers, default=0),
        "minOffsetsBehindLatest": min(numbers, default=0),
        **offset_of(queue, ends),
    }


def behind(ends: Positions, read: Positions) -> dict[int, int]:
    """The messages from the positions that were read to on, by partition."""
    return {
        partition: _between(read.get(partition, Position(0, 0)), end)
        for partition, end in ends.items()
    }


def _between(begin: Position, end: Position) -> int:
    if begin.id >= end.id:
        return 0
    # Fewer than before: the log was truncated, and began again.
    return end.ordinal - begin.ordinal if end.ordinal >= begin.ordinal else end.ordinal


def positions_in(offset: Mapping[str, Any]) -> Positions:
    """The positions that an offset ends at."""
    return _positions(offset["partitions"])


def start_in(offset: Mapping[str, Any]) -> Positions:
    """The positions at which the query began, in the offset that its first batch ends at."""
    return _positions(offset["start"])


def read_offset(text: Any) -> dict[str, Any] | None:
    """An offset in a query's progress, which is JSON or read already; None if another source
    wrote it.
    """
    try:
        offset = json.loads(text) if isinstance(text, str) else text
        if isinstance(offset, dict) and positions_in(offset) and isinstance(offset["queue"], str):
            return offset
    except (ValueError, TypeError, KeyError, AttributeError):
        pass
    return None


def check_queue(offset: Mapping[str, Any], queue: str) -> None:
    """Refuse an offset of another queue.

    Raises:
        InvalidInputError: it is one.
    """
    if offset.get("queue", queue) != queue:
        raise InvalidInputError(
            "the checkpoint belongs to a stream of another queue: give the query another "
            "checkpointLocation",
            queue=queue,
            checkpoint_queue=offset["queue"],
        )


def _listed(positions: Positions) -> dict[str, list[int]]:
    return {str(p): [positions[p].id, positions[p].ordinal] for p in sorted(positions)}


def _positions(listed: Mapping[str, Any]) -> Positions:
    return {int(p): Position(*position) for p, position in listed.items()}
