"""The moves of topics' metadata that one client has under way, and its views of their states."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar

from hqueue.errors import ClosedError, Outcome
from hqueue.metadata.managers.migration_state import MigrationState
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline
from hqueue.runtime.fork import register
from hqueue.runtime.program_loop import ended
from hqueue.runtime.steps import Wait, Work
from hqueue.runtime.stepwise import BoundWork, Stepwise, stepwise
from hqueue.runtime.waiting import InterruptibleFuture

__all__ = ["OwnMove", "OwnMoves"]

BOUND_MS = 60_000.0
"""The longest that the closing of a client waits for moves."""

Result = TypeVar("Result")


class OwnMove:
    """A move that its caller carries out: in a thread, or in an event loop.

    Args:
        moves: the client's moves.
        abandon: abandons the move, for a caller that does not do so in time.
    """

    def __init__(self, moves: OwnMoves, abandon: Callable[[], Wait]) -> None:
        self._moves = moves
        self.abandon = abandon
        self.loop = asyncio._get_running_loop()
        """The loop in which the caller runs, if it does."""
        self._task = None if self.loop is None else asyncio.current_task()
        self._thread_id = threading.get_ident()
        self._ended: InterruptibleFuture[None] = InterruptibleFuture()

    @property
    def is_over(self) -> bool:
        """Whether the move has ended."""
        return self._ended.done()

    def begin(self) -> None:
        """Note that the move is under way.

        Raises:
            ClosedError: the client was closed.
        """
        self._moves.under_way.add(self)
        try:
            self.check()
        except ClosedError:
            self.end()
            raise

    def end(self) -> None:
        """Note that the move is done, or was abandoned."""
        self._moves.under_way.discard(self)
        if not self._ended.done():
            self._ended.set_result(None)

    def check(self) -> None:
        """Check that the move may go on.

        Raises:
            ClosedError: the client is closing.
        """
        if self._moves.is_closed:
            raise ClosedError(
                "the client was closed while topics' metadata was moved: the move is abandoned, "
                "and can be repeated by another client",
                outcome=Outcome.NOT_APPLIED,
            )

    def checked(self, work: Work[Any, Result]) -> Work[Any, Result]:
        """The same work, with a `check` before each step."""
        try:
            step = next(work)
            while True:
                self.check()
                try:
                    answer = yield step
                except BaseException as exc:
                    step = work.throw(exc)
                else:
                    step = work.send(answer)
        except StopIteration as end:
            result: Result = end.value
            return result
        finally:
            work.close()

    def waited_for(self, bound_s: float) -> Wait:
        """Wait until the move is over, or the time has passed. Does not wait if only the caller can
        end the move, or if its event loop does not run.
        """
        wait = ended(self._ended, bound_s)
        return Wait(partial(self._wait, wait), partial(self._wait_in_loop, wait))

    def _wait(self, wait: Wait) -> None:
        if self._thread_id != threading.get_ident() and self._goes_on:
            wait.here()

    async def _wait_in_loop(self, wait: Wait) -> None:
        if (self._task is None or self._task is not asyncio.current_task()) and self._goes_on:
            await wait.in_loop()

    @property
    def _goes_on(self) -> bool:
        return self.loop is None or self.loop.is_running()


class View(Protocol):
    """Knows the migration state, and follows its changes."""

    @property
    def above(self) -> str:
        """The path below which the state's record lies."""

    @property
    def is_left(self) -> bool:
        """Whether it can't follow the state any more, since its event loop was closed."""

    def learn(self, state: MigrationState) -> None:
        """Note that the state was changed to this."""

    @property
    def close(self) -> BoundWork[[], None]:
        """Stop following the state. Never raises."""


class OwnMoves(Stepwise):
    """The moves of one client, and its views of the migration states. Thread-safe. A forked child
    has none of its parent's moves.

    Args:
        bound_ms: how long `close` waits for the callers of moves; never longer than a minute.
    """

    def __init__(self, bound_ms: float = BOUND_MS) -> None:
        self._bound_ms = min(bound_ms, BOUND_MS)
        self._views: set[weakref.ref[View]] = set()
        self.is_closed = False
        """Whether moves must end."""
        self.after_fork_in_child()
        register(self)

    def after_fork_in_child(self) -> None:
        self.under_way: set[OwnMove] = set()
        """The moves that are under way."""

    def follow(self, view: View) -> None:
        """Let a view learn each state that this client makes."""
        self._views.add(weakref.ref(view, self._views.discard))

    def changed(self, above: str, state: MigrationState) -> None:
        """Report that this client has changed a migration state."""
        for each in self._views.copy():
            view = each()
            if view is not None and view.above == above:
                view.learn(state)

    @stepwise
    def close_left(self, above: str) -> Work[Any, None]:
        """Close the views of this state whose event loops were closed: a move would wait for
        them in vain. Never raises.
        """
        for each in self._views.copy():
            view = each()
            if view is not None and view.above == above and view.is_left:
                yield view.close.asked()

    @stepwise
    def close(self) -> Work[Any, None]:
        """Have each move under way abandoned: its call raises `ClosedError`. If the caller of a
        move does not abandon it within the bound, this call does. Raises no error itself.
        """
        self.is_closed = True
        bound = Deadline(SYSTEM_CLOCK, self._bound_ms)
        for move in self.under_way.copy():
            yield move.waited_for(bound.remaining_ms / 1e3)
            if not move.is_over:
                yield move.abandon()
                move.end()
