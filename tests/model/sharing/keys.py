"""Tells states of a share group apart: only what matters for what can happen next."""

from __future__ import annotations

import functools
from typing import Any

from hqueue.metadata.ports import Change, Record
from hqueue.metadata.steps import Read, Write
from hqueue.sharing.window import Fate, Window
from hqueue.sharing.window_record import decode_window

from .consumer import LOCK_MS, PATH, Run, State

__all__ = ["Keys"]

OVER_MS = 2 * LOCK_MS
"""What is so long ago is over by every clock."""


class Keys:
    """Of versions, stamps and holders it matters only which are the same, and of times how long ago
    they are: so states do not differ by how often something was done before. Names are given in the
    order in which this is asked.

    Args:
        record: the group's.
    """

    def __init__(self, record: Record) -> None:
        self._version = record.version
        self._holders: dict[str, int] = {}
        self._stamps: dict[tuple[str, int], int] = {}

    def holder(self, holder: str) -> int:
        return self._holders.setdefault(holder, len(self._holders))

    def can_come(self, change: Change) -> bool:
        """Whether a write can be carried out yet."""
        return change.version == self._version

    def change(self, change: Change) -> object:
        return self.can_come(change), self.window(_window(change.value))

    def window(self, window: Window) -> object:
        spans = []
        for begin, end, messages, mark, _ in window.spans:
            held = ()
            if mark.fate is Fate.ACQUIRED:
                pair = mark.holder, mark.stamp
                held = self.holder(pair[0]), self._stamps.setdefault(pair, len(self._stamps))
            spans.append((begin, end, messages, int(mark.fate), mark.deliveries, held))
        return window.begin, spans

    def state(self, state: State, now_ms: float) -> object:
        """A consumer between two calls."""
        partition, hands = state.partition, state.hands
        known = partition._known
        held = [
            (
                each,
                one.deliveries,
                max(0.0, round(one.until_ms - now_ms, 3)),
                one.answer and one.answer.value,
            )
            for each, one in sorted(partition.held.items())
        ]
        return (
            known and (known.version == self._version, self.window(known.window)),
            sorted(
                (self._stamps[pair], min(OVER_MS, round(now_ms - since_ms, 3)))
                for pair, since_ms in partition._seen.items()
                if pair in self._stamps
            ),
            held,
            partition.lapsed,
            sorted((each, one.deliveries) for each, one in hands.out.items()),
            [(int(each.message.id), each.reason) for each in hands.rejections],
            [(int(each.id), each.deliveries) for each in hands._waiting],
        )

    def run(self, run: Run, now_ms: float) -> object:
        """A call of a consumer: how it was before, and what has happened since."""
        events = [
            (
                max(-OVER_MS, round(event.now_ms - now_ms, 3)),
                event.kind,
                self._what(event.what),
            )
            for event in run.events
        ]
        return run.call, events, self._what(run.step)

    def _what(self, what: Any) -> object:
        """What a consumer was answered, or asks for."""
        if isinstance(what, Write):
            return self.change(what.changes[PATH])
        if isinstance(what, dict):
            answer = what[PATH]
            if not isinstance(answer, Record):
                return answer == self._version
            return answer.version == self._version, self.window(_window(answer.value))
        return None if isinstance(what, (Exception, Read)) else repr(what)


@functools.lru_cache(maxsize=4_096)
def _window(value: bytes) -> Window:
    return decode_window(value, PATH)
