"""The goals beside confluent-kafka, by what the messages hold."""

from __future__ import annotations

from collections.abc import Mapping

from .keyed import COLUMNS, MESSAGES
from .payloads import Payload

__all__ = [
    "DELIVERED_MEDIAN",
    "DELIVERED_TAIL",
    "EACH",
    "ONE",
    "SPARK",
    "batch_goals",
    "consume_goals",
]

EACH = 1.0
"""At least: messages one by one, through a buffer."""
ONE = 2.5
"""At most: one message, and wait until it is durable."""
DELIVERED_MEDIAN, DELIVERED_TAIL = 3.0, 5.0
"""At most: from the call that publishes to the handler."""
SPARK = 2.0
"""At least: rows into Spark."""

_SMALL, _MIDDLE = 100, 1_000
_CONSUMED = {_SMALL: (2.0, 4.0), _MIDDLE: (2.0, 3.0)}
_CONSUMED_LARGE = (1.4, 1.8)


def batch_goals(payload: Payload) -> Mapping[str, float]:
    """At least, in batches. Text is compressed here, so it costs fewer bytes."""
    goal = 2.0 if payload.size <= _SMALL else 1.5 if payload.text else 1.2
    return {MESSAGES: goal, COLUMNS: goal}


def consume_goals(payload: Payload) -> Mapping[str, float]:
    """At least, from the oldest message on."""
    as_messages, as_columns = _CONSUMED.get(payload.size, _CONSUMED_LARGE)
    return {MESSAGES: as_messages, COLUMNS: as_columns}
