"""Listeners in an event loop, and the subscriber's side of ``HQueueSubscriberService`` there."""

from __future__ import annotations

import abc
import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Protocol

from hqueue.message import ReceivedMessage
from hqueue.push.answers import Answer, CombinedAnswer, Status
from hqueue.push.listener import (
    Listener,
    ListenerAnswer,
    current_call,
    functions_of,
    named_listener,
)
from hqueue.push.service import NOT_ADMITTED, Admit, admit_all, received_messages, reply_of
from hqueue.rpc.messages import Reasoned, RefusedCallError
from hqueue.runtime.held import NotHeldError
from hqueue.runtime.interrupts import is_interruption
from hqueue.runtime.logs import Log
from hqueue.runtime.steps import Wait, Work
from hqueue.runtime.stepwise import Stepwise, stepwise
from hqueue.runtime.turn import Turn
from hqueue.watching.observers import processing

__all__ = ["LoopConsumption", "LoopListeners", "LoopSubscriberHandler"]

logger = Log(__name__)


class Tasks(Protocol):
    """The tasks of the listeners' owner. The owner ends them."""

    def start(self, function: Callable[..., Coroutine[Any, Any, Any]], /, *args: Any) -> object:
        """Have a coroutine go on by itself."""

    def own(self, task: asyncio.Future[Any]) -> None:
        """Take in a task that goes on."""


class LoopListeners:
    """Calls a subscriber's listeners in turn in one event loop. A plain listener runs in the loop,
    and must not block it; the result of an async one is awaited.

    Args:
        listeners: one listener, or several.
        timeout_ms: how long an async listener may take before it is cancelled.
        tasks: the owner's tasks.
        subscriber: the subscriber's name, for the log.
    """

    def __init__(
        self,
        listeners: Sequence[Listener] | Listener,
        timeout_ms: int,
        tasks: Tasks,
        subscriber: str,
    ) -> None:
        self._subscriber = subscriber
        self._consume = functions_of(listeners)
        self._timeout_s = timeout_ms / 1e3
        self._owner = tasks
        self._awaited: set[asyncio.Future[Any]] = set()
        """What async listeners do now."""
        self._behind: dict[object, list[Callable[[], Any]]] = {}
        """What is left to be done behind each call that is under way."""

    def start(self) -> None:
        """Get ready to be called."""

    def is_caller(self) -> bool:
        """Whether these call the caller, who would wait for itself if it waited for them."""
        return current_call.get() in self._behind

    def leave_behind(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> bool:
        """If a listener is the caller, run a coroutine when this call has ended, and return True at
        once. Otherwise return False, and don't run it.
        """
        behind = self._behind.get(current_call.get())
        if behind is None:
            return False
        behind.append(work)
        return True

    def close(self) -> None:
        """Cancel what async listeners still do."""
        for task in self._awaited:
            task.cancel()

    async def consume(self, messages: Sequence[ReceivedMessage]) -> Answer:
        """Call the listeners in turn, each with the messages that are done for those before it, and
        return their `CombinedAnswer`. A listener's error is logged, and the messages are delivered
        again. The listeners before it get them again, too.
        """
        call = object()
        self._behind[call] = []
        within = current_call.set(call)
        try:
            combined = CombinedAnswer(messages)
            with processing(self._subscriber, messages):
                for consume in self._consume:
                    if not await self._call(consume, combined):
                        break
            return combined.result()
        finally:
            with contextlib.suppress(ValueError):  # Left in its middle, it may end anywhere.
                current_call.reset(within)
            for work in self._behind.pop(call):
                self._owner.start(work)

    async def _call(
        self,
        consume: Callable[[Sequence[ReceivedMessage]], ListenerAnswer],
        combined: CombinedAnswer,
    ) -> bool:
        """Call a listener, and add its answer. Returns whether another listener must be called."""
        try:
            answer: Any = consume(combined.left)
            if inspect.isawaitable(answer):
                answer = await self._result_of(answer)
            return combined.add(answer)
        except Exception as exc:
            if is_interruption(exc):
                raise
            logger.exception("%s failed", named_listener(self._subscriber, combined.left))
            combined.failed(exc)
            return False

    async def _result_of(self, awaitable: Awaitable[Any]) -> Any:
        """What an async listener returns.

        Raises:
            TimeoutError: the listener was not done in time, and is cancelled.
            Exception: what the listener raises.
        """
        task = asyncio.ensure_future(awaitable)
        self._owner.own(task)
        self._awaited.add(task)
        task.add_done_callback(self._awaited.discard)
        try:
            await asyncio.wait([task], timeout=self._timeout_s)
            if not task.done():
                raise TimeoutError(f"the listener was not done in {self._timeout_s:g} s")
            if task.cancelled():
                raise _CancelledError("the listener was cancelled")
            return task.result()
        finally:
            if not task.get_loop().is_closed():
                task.cancel()


class _CancelledError(Exception):
    """A listener was cancelled, or cancelled itself."""


class LoopSubscriberHandler(abc.ABC):
    """The service's handler in an event loop. It converts the messages of a call for `consume`."""

    def consumeMessages(  # noqa: N802  (the IDL's)
        self, messages: Sequence[Any] | None
    ) -> Coroutine[Any, Any, Reasoned]:
        """Like `SubscriberHandler.consumeMessages`.

        Raises:
            RefusedCallError, TDeliveryAnswer: as there.
        """
        return self._answered(received_messages(messages))

    async def _answered(self, messages: Sequence[ReceivedMessage]) -> Reasoned:
        return reply_of(await self.consume(messages))

    @abc.abstractmethod
    async def consume(self, messages: Sequence[ReceivedMessage]) -> Answer:
        """Like `SubscriberHandler.consume`."""


class LoopConsumption(LoopSubscriberHandler, Stepwise):
    """Like `Consumption`, in an event loop.

    Args:
        listeners, calls_max, timeout_ms, admit: as for `Consumption`.
    """

    def __init__(
        self,
        listeners: LoopListeners,
        calls_max: int,
        timeout_ms: int,
        admit: Admit | None = None,
    ) -> None:
        self._listeners = listeners
        self._admit = admit or admit_all
        self._timeout_s = timeout_ms / 1e3
        self._turn = asyncio.Semaphore(calls_max)
        self._partitions: dict[int, Turn] = {}

    async def consume(self, messages: Sequence[ReceivedMessage]) -> Answer:
        """Give messages of one partition to the listeners, when it is their turn.

        Raises:
            RefusedCallError: as `Consumption.consume`.
        """
        if not messages:
            return Answer(Status.DONE)
        number = messages[0].partition
        with self._admit(number) as asked:  # A call for another member's partition needs not wait.
            if not await asked.in_loop():
                raise RefusedCallError(NOT_ADMITTED)
        try:
            return await self._in_turn.in_loop(number, messages)
        except NotHeldError:
            return Answer(Status.RETRY)

    @stepwise
    def _in_turn(self, number: int, messages: Sequence[ReceivedMessage]) -> Work[Any, Answer]:
        partition = self._partitions.setdefault(number, Turn())
        return (yield from partition.take(self._given(number, messages), self._timeout_s))

    def _given(self, number: int, messages: Sequence[ReceivedMessage]) -> Work[Any, Answer]:
        answer: Answer = yield Wait(lambda: None, partial(self._handle, number, messages))
        return answer

    async def _handle(self, number: int, messages: Sequence[ReceivedMessage]) -> Answer:
        async with _held(self._turn, self._timeout_s):
            with self._admit(number) as asked:
                if not await asked.in_loop():
                    raise RefusedCallError(NOT_ADMITTED)
                return await self._listeners.consume(messages)


@contextlib.asynccontextmanager
async def _held(semaphore: asyncio.Semaphore, timeout_s: float) -> AsyncIterator[None]:
    """Hold a semaphore for a block.

    Raises:
        NotHeldError: it was not free in time.
    """
    acquiring = asyncio.ensure_future(semaphore.acquire())
    try:
        await asyncio.wait([acquiring], timeout=timeout_s)
        if not acquiring.done():
            raise NotHeldError
        yield
    finally:
        if acquiring.done() and not acquiring.cancelled():
            semaphore.release()
        acquiring.cancel()
