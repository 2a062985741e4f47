"""The part of a partition to read."""

from __future__ import annotations

from collections.abc import Iterable

from hqueue.errors import InvalidInputError
from hqueue.message import plain_text, topic_bytes
from hqueue.position import Position, as_message_id
from hqueue.settings.kinds import listed
from hqueue.settings.limits import MESSAGE_ID_MAX

__all__ = ["Scan"]


class Scan:
    """Selects messages to read: those with IDs in ``[start, stop)``, of some topics or all.

    Args:
        start: a `MessageID`, an aware datetime, or milliseconds since the epoch; None for the
            oldest message.
        stop: as `start`; None for the end of the log.
        topics: the topics to read; all if empty.

    Raises:
        InvalidInputError: a position or a topic is out of range, or `stop` lies before `start`.
    """

    def __init__(
        self,
        start: Position | None = None,
        stop: Position | None = None,
        topics: Iterable[str] = (),
    ) -> None:
        self.start: int = 0 if start is None else int(as_message_id(start))
        """The first ID that is wanted, as an integer."""
        self.stop: int = MESSAGE_ID_MAX + 1 if stop is None else int(as_message_id(stop))
        """The first ID that isn't any more, as an integer."""
        if self.stop < self.start:
            raise InvalidInputError("a scan's stop lies before its start", start=start, stop=stop)
        self.topics: set[str] = set()
        """The topics wanted; all if empty."""
        self.owner_epoch: int | None = None
        """Of topics that hubs own: only what the owner with this epoch appended; from any writer
        if None."""
        for topic in listed(topics, "topics"):
            self.add_topic(topic)

    def add_topic(self, topic: str) -> Scan:
        """Read this topic, and no topics that are not added. Returns the scan itself."""
        topic_bytes(topic)
        self.topics.add(plain_text(topic, "a topic must be a str"))
        return self
