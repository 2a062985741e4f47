"""Listeners, which process a subscriber's messages, and their answers."""

from __future__ import annotations

import abc
import asyncio
import concurrent.futures
import contextlib
import inspect
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar

from hqueue.errors import HQueueError, InvalidInputError
from hqueue.message import ReceivedMessage
from hqueue.push.answers import Answer, CombinedAnswer, DeliveryAnswer, Status
from hqueue.runtime.foreign import call_foreign
from hqueue.runtime.loop import background, in_thread
from hqueue.runtime.threads import start
from hqueue.settings.kinds import is_async
from hqueue.watching.observers import processing

__all__ = [
    "Listener",
    "ListenerAnswer",
    "Listeners",
    "MessageListener",
    "current_call",
    "functions_of",
    "named_listener",
]

LEFT = "what a listener left to be done"
RETRY_S = 1.0
"""The pause before work is tried again for which no thread was free."""


_Returned = Status | DeliveryAnswer | None

ListenerAnswer = _Returned | Awaitable[_Returned]
"""What a listener returns: a `Status` for all messages, or a `DeliveryAnswer` for each; None stands
for `Status.DONE`. An async listener's result is awaited."""


class MessageListener(abc.ABC):
    """A listener as a class: override `consume`, as a plain or an async method."""

    @abc.abstractmethod
    def consume(self, messages: Sequence[ReceivedMessage]) -> ListenerAnswer:
        """Process some messages of one partition, in their order.

        Returns:
            A `Status`, or a `DeliveryAnswer` with an answer for each message; None counts as
            `Status.DONE`. An exception counts as `Status.RETRY`, and so does anything else that is
            returned; if the messages become dead letters, the dead letters name the exception.
        """


_Consume = Callable[[Sequence[ReceivedMessage]], ListenerAnswer]

Listener = MessageListener | _Consume
"""A `MessageListener`, or a plain or async function that does what its `consume` does."""

current_call: ContextVar[object] = ContextVar("current_call", default=None)
"""The call of listeners in which code runs, also in tasks and threads that asyncio makes for it."""


class Listeners:
    """Calls a subscriber's listeners in turn. Thread-safe if the listeners are.

    Async listeners run in one event loop, in a thread of its own that lives from `start` to
    `close`.

    Args:
        listeners: one listener, or several.
        timeout_ms: how long an async listener may take before it is cancelled. A plain listener
            can't be stopped.
        subscriber: the subscriber's name, for the log.
    """

    def __init__(
        self, listeners: Sequence[Listener] | Listener, timeout_ms: int, subscriber: str
    ) -> None:
        self._timeout_ms = timeout_ms
        self._subscriber = subscriber
        self._consume = functions_of(listeners)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        """The event loop's. It enters itself, too: an interrupted `start` leaves none unknown."""
        self._stopping = self._closing = False
        self._lock = threading.RLock()
        self._behind: dict[object, list[Callable[[], object]]] = {}
        """What is left to be done behind each call that is under way."""

    def start(self) -> None:
        """Get ready to be called."""
        if any(is_async(consume) for consume in self._consume):
            self._loop = asyncio.new_event_loop()
            self._thread = start(self._run, self._loop, name="hqueue-listeners")

    def is_caller(self) -> bool:
        """Whether these call the caller, who would wait for itself if it waited for them."""
        return current_call.get() in self._behind or threading.current_thread() is self._thread

    def leave_behind(self, work: Callable[[], object]) -> bool:
        """If a listener is the caller, run work that waits for the listeners' calls soon after this
        call has ended, and return True at once. Otherwise return False, and don't run it.
        """
        with self._lock:
            behind = self._behind.get(current_call.get())
            if behind is not None:
                behind.append(work)
                return True
        if self.is_caller():  # In a task that outlived its call.
            _do(work)
            return True
        return False

    def close(self) -> None:
        """End the event loop, and cancel all that still runs in it. One thread at a time may call
        this.
        """
        with self._lock:
            loop = self._loop
            if loop is None or self._closing:
                return
            self._closing = True
        try:
            if self._thread is not None:
                with contextlib.suppress(TimeoutError, concurrent.futures.TimeoutError):
                    asyncio.run_coroutine_threadsafe(_cancel_all(), loop).result(
                        self._timeout_ms / 1e3
                    )
            self._stopping = True
            loop.call_soon_threadsafe(loop.stop)
            if self._thread is not None:
                self._thread.join(self._timeout_ms / 1e3)
            if not loop.is_running():
                loop.close()
            self._loop = None
        finally:
            self._closing = False  # Where it was interrupted it can be closed again.

    def consume(self, messages: Sequence[ReceivedMessage]) -> Answer:
        """Call the listeners in turn, each with the messages that are done for those before it, and
        return their `CombinedAnswer`.

        Never raises: a listener's error is logged, and the messages are delivered again. The
        listeners before it get them again, too.
        """
        call = object()
        self._behind[call] = []
        within = current_call.set(call)
        try:
            what = named_listener(self._subscriber, messages)
            combined = CombinedAnswer(messages)
            with processing(self._subscriber, messages):
                for consume in self._consume:
                    goes_on, error = call_foreign(what, self._call, consume, combined)
                    if error is not None:
                        combined.failed(error)
                    if not goes_on:
                        break
            return combined.result()
        finally:
            current_call.reset(within)
            with self._lock:
                behind = self._behind.pop(call)
            for work in behind:
                _do(work)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run the event loop, and run it again when a task that a listener left in it stops it:
        `SystemExit` does that.
        """
        self._thread = threading.current_thread()
        while not self._stopping:
            call_foreign("a task of a listener", loop.run_forever)

    def _call(self, consume: _Consume, combined: CombinedAnswer) -> bool:
        """Call a listener, and add its answer. Returns whether another listener must be called."""
        answer = consume(combined.left)
        if inspect.isawaitable(answer):
            if self._loop is None:
                raise InvalidInputError(
                    "a listener returned an awaitable, but is not an async function"
                )
            running = asyncio.run_coroutine_threadsafe(_awaited(answer), self._loop)
            try:
                answer, error = running.result(self._timeout_ms / 1e3)
            finally:
                running.cancel()
            if error is not None:
                raise error
        return combined.add(answer)


def functions_of(listeners: Sequence[Listener] | Listener) -> list[_Consume]:
    """The functions of one listener, or of several.

    Raises:
        InvalidInputError: one is not a listener, or there are none.
    """
    found: list[_Consume] = []
    for listener in listeners if isinstance(listeners, Sequence) else [listeners]:
        if _is_class(listener):
            raise InvalidInputError(
                "a listener is a class: give an object of it", listener=repr(listener)
            )
        consume = listener.consume if isinstance(listener, MessageListener) else listener
        if not callable(consume):
            raise InvalidInputError(
                "a listener must be a MessageListener or a function",
                type=type(listener).__name__,
            )
        found.append(consume)
    if not found:
        raise InvalidInputError("a subscriber needs at least one listener: give one")
    return found


def named_listener(subscriber: str, messages: Sequence[ReceivedMessage]) -> str:
    """A text for the log about a listener that gets these messages."""
    topic = f" of topic {messages[0].topic!r}" if messages else ""
    return f"a listener of subscriber {subscriber!r}{topic}"


def _is_class(listener: object) -> bool:
    return isinstance(listener, type) and issubclass(listener, MessageListener)


def _do(work: Callable[[], object]) -> None:
    """Have something done that blocks, or do it where the program ends."""
    loop = background()
    if loop is not None:
        loop.start(_done, work)
    else:
        call_foreign(LEFT, work)


async def _done(work: Callable[[], object]) -> None:
    """Have a thread do something, as soon as one is free: nobody else would."""
    while True:
        try:
            await in_thread(call_foreign, LEFT, work)
            return
        except HQueueError:  # It was not begun.
            await asyncio.sleep(RETRY_S)


async def _awaited(
    answer: Awaitable[_Returned],
) -> tuple[_Returned, BaseException | None]:
    try:
        return await answer, None
    except BaseException as exc:  # `SystemExit` out of a task would stop the event loop.
        return None, exc


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
