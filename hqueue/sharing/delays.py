"""Moves the delayed messages of a share group into its window when they are due.

Due messages are moved into the window, which notes how far the move went, and are removed from
their record afterwards. So each message enters the window once, even if a consumer ends between two
steps.
"""

from __future__ import annotations

from bisect import bisect_right

from hqueue.metadata.delay_records import DelayRecords
from hqueue.metadata.delays import DELAYS_MAX, Delay
from hqueue.metadata.steps import Work
from hqueue.runtime.stepwise import stepwise
from hqueue.sharing.window import Fate, Mark, Move, Span, Window
from hqueue.sharing.window_record import WINDOW_MESSAGES_MAX

__all__ = ["WindowDelays", "takes_delays"]

MOVED_TOGETHER_MAX = 500
MOVES_MAX = 16
"""From how many records messages are moved with one write."""


def takes_delays(window: Window) -> bool:
    """Whether the window has room for more records of delays."""
    return len(window.delays) + len(window.moves) < DELAYS_MAX


class WindowDelays(DelayRecords):
    """The records of delays of a group in one partition. They lie below the window's record."""

    @stepwise
    def brought_in(self, window: Window, *, more: bool) -> Work[Window | None]:
        """Finish the moves of a window, and move further due messages into it, some hundreds at
        most.

        Args:
            window: the window, as the store has it.
            more: whether to move further messages.

        Returns:
            The new window, which the caller may write; None if another consumer changed a record
            meanwhile.
        """
        settled = yield from self._settled(window)
        if settled is None or not more:
            return settled
        room = min(WINDOW_MESSAGES_MAX - settled.unfinished, MOVED_TOGETHER_MAX)
        return (yield from self._moved(settled, self._clock.wall_ms(), room))

    def _settled(self, window: Window) -> Work[Window | None]:
        """Remove messages from the records that were moved into the window."""
        for move in window.moves:
            waiting, version = yield from self.read.steps(move.name)
            left = [each for each in waiting if (each.due_ms, each.id) > (move.due_ms, move.id)]
            if len(left) < len(waiting):
                assert version is not None
                if not (yield from self.shorten.steps(move.name, left, version)):
                    return None
            delays = [each for each in window.delays if each.name != move.name]
            if left:
                delays.append(Delay(move.name, left[0].due_ms, len(left)))
            window = window._replace(
                delays=tuple(delays), moves=tuple(m for m in window.moves if m != move)
            )
        return window

    def _moved(self, window: Window, now_ms: int, room: int) -> Work[Window]:
        for delay in sorted(window.delays, key=lambda each: each.due_ms)[:MOVES_MAX]:
            if room <= 0 or delay.due_ms > now_ms:
                break
            waiting, _ = yield from self.read.steps(delay.name)
            due = waiting[: bisect_right(waiting, now_ms, key=lambda each: each.due_ms)][:room]
            if not due:  # The record is gone, as when the group was deleted.
                window = window._replace(delays=tuple(d for d in window.delays if d != delay))
                continue
            room -= len(due)
            late = [
                Span(each.id, each.id + 1, 1, Mark(Fate.AVAILABLE, each.deliveries)) for each in due
            ]
            move = Move(delay.name, due[-1].due_ms, due[-1].id)
            window = window._replace(
                late=tuple(sorted([*window.late, *late])),
                delays=tuple(d for d in window.delays if d != delay),
                moves=(*window.moves, move),
            )
        return window
