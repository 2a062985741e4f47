"""The messages that were published lately, in memory, for subscriptions at a topic's end."""

from __future__ import annotations

import collections
from collections.abc import Sequence

from hqueue import Message, MessageID, Queue, ReceivedMessage
from hqueue_workers.delivery.segment import EncodedSlice, Segment, SubscriptionFilter, Window
from hqueue_workers.hub.writing.owned_topic import Publish, held_bytes

__all__ = ["Kept", "Recent"]

KEPT_OVERHEAD_BYTES = 550
SHED_TO = 15 / 16
"""The part of the bound that stays when it was exceeded, so that not each append makes room."""


class Kept(Segment):
    """The messages of one publish, in memory, with consecutive IDs. They are encoded when the first
    subscriber wants them, and then kept so, because all subscribers get the same bytes.
    """

    __slots__ = ("_cut_once", "_kept", "_partition")

    def __init__(self, publish: Publish, first: int) -> None:
        messages = publish.messages
        super().__init__(first, first + len(messages))
        self.messages = len(messages)
        topic_bytes = len(messages) * len(publish.owned.name)
        self.size = publish.size + held_bytes(messages) + topic_bytes + KEPT_OVERHEAD_BYTES
        self._kept: Sequence[Message] | None = messages
        self._partition = publish.owned.partition
        self._cut_once: tuple[EncodedSlice, ...] | None = None

    def slices(self, filter_: SubscriptionFilter) -> tuple[EncodedSlice, ...] | None:
        """Like `Segment`."""
        if self._cut_once is None and self.is_small:
            return self._cut(None, filter_, may_read=False)
        return self._cut_once

    def _cut(
        self, queue: Queue | None, filter_: SubscriptionFilter, *, may_read: bool
    ) -> tuple[EncodedSlice, ...]:
        kept = self._kept
        if kept is not None:
            messages = [
                ReceivedMessage(
                    each.topic,
                    each.value,
                    MessageID.from_int(number),
                    self._partition,
                    key=each.key,
                    headers=each.headers,
                )
                for number, each in enumerate(kept, self.end - self.messages)
            ]
            self._cut_once = self._slices(messages, filter_)
            self._kept = None
        assert self._cut_once is not None
        return self._cut_once


class Recent:
    """The recent messages of topics with subscriptions, bounded in bytes over all topics.

    Args:
        bytes_max: about how many bytes to keep.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._all: collections.deque[tuple[Window, Kept]] = collections.deque()

    def add(self, window: Window, kept: Kept) -> None:
        """Keep messages that were appended at a window's end, and drop the oldest of all windows if
        needed.
        """
        kept.start = window.end
        window.add((kept,))
        self._all.append((window, kept))
        self._bytes += kept.size
        if self._bytes > self._bytes_max:
            self._shed()

    def _shed(self) -> None:
        gone: dict[Window, int] = {}
        while self._bytes > self._bytes_max * SHED_TO:
            window, kept = self._all.popleft()
            self._bytes -= kept.size
            gone[window] = kept.end
        for window, below in gone.items():
            window.drop(below)
