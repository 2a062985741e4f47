"""Requests of many callers that go to a store together: those of threads, and those of an event
loop.
"""

from __future__ import annotations

import asyncio
import collections
import threading
from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from hqueue.errors import BufferFullError, ClosedError, HQueueError
from hqueue.metadata.managers.following import Following
from hqueue.runtime.foreign import call_foreign
from hqueue.runtime.program_loop import ProgramLoop
from hqueue.runtime.stepwise import BoundWork
from hqueue.runtime.threads import start
from hqueue.runtime.waiting import Condition

__all__ = [
    "ASKING_MAX",
    "THREADS_MAX",
    "TOGETHER_MAX",
    "Batcher",
    "Failed",
    "LoopBatcher",
    "closed",
]

TOGETHER_MAX = 256

ASKING_MAX = 2
"""The requests under way at a time: one batch is on its way while the next one is put together."""

THREADS_MAX = 16
"""The threads for each kind of request. Threads without a request call callbacks."""

IDLE_S = 0.25
"""How long an idle thread waits for requests before it ends: starting one takes longer than a
request."""

Input = TypeVar("Input")


class Failed:
    """An answer that is an error."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Caller(Protocol):
    """What waits for an answer: see `Following`."""

    def begins(self) -> bool: ...

    def go_on(self, answer: object = None, error: BaseException | None = None) -> None: ...


class _Request(NamedTuple):
    """What waits to be asked, or was asked."""

    key: str
    what: Any
    caller: _Caller


class _Requests:
    """Requests that wait, and the keys of those under way."""

    def __init__(self) -> None:
        self.waiting: collections.deque[_Request] = collections.deque()
        self.under_way: set[str] = set()

    def next_batch(self) -> dict[str, _Request]:
        """What goes next: no key twice, nor one that is under way, nor one before its elder."""
        batch: dict[str, _Request] = {}
        passed: list[_Request] = []
        held: set[str] = set(self.under_way)
        while self.waiting and len(batch) < TOGETHER_MAX and len(passed) < TOGETHER_MAX:
            request = self.waiting.popleft()
            if request.key in held:
                passed.append(request)
            elif request.caller.begins():
                batch[request.key] = request
                held.add(request.key)
        self.waiting.extendleft(reversed(passed))
        self.under_way |= batch.keys()
        return batch


class Batcher(Generic[Input]):
    """Asks a store for many callers' requests of one kind, batch by batch."""

    def __init__(
        self,
        ask: Callable[[dict[str, Input]], Mapping[str, Any]],
        wait_s: float,
        waiting_max: int,
    ) -> None:
        self._ask = ask
        self._waiting_max = waiting_max
        self._wait_s = wait_s
        self._lock = threading.RLock()
        self._work = Condition(self._lock)
        self._requests = _Requests()
        self._idle_work = Condition(self._lock)
        self._asking = 0
        self._threads = 0
        self._idle = 0
        self._called = 0
        """How many of the idle threads must ask."""
        self._closed = False

    def submit(self, key: str, what: Input, work: Following[Any]) -> None:
        with self._lock:
            roomy = self._work.wait_for(
                lambda: self._closed or len(self._requests.waiting) < self._waiting_max,
                self._wait_s,
            )
            if self._closed:
                raise closed()
            if not roomy:
                raise BufferFullError(
                    "too many requests are waiting: send fewer at a time", waiting=self._waiting_max
                )
            self._requests.waiting.append(_Request(key, what, work))
            if key not in self._requests.under_way:
                self._start()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._work.notify_all()

    def _start(self) -> None:
        """Let a further thread ask, if there may be one."""
        if not self._requests.waiting or self._asking >= ASKING_MAX:
            return
        if self._called < self._idle:
            self._asking += 1
            self._called += 1
            self._idle_work.notify()
        elif self._threads < THREADS_MAX:
            try:
                start(self._run, name="hqueue-metadata")  # It begins when the lock is free.
            except HQueueError:
                if self._threads:
                    return  # One of these asks in the end.
                self._requests.waiting.pop()  # What has just come; before it there was nothing.
                raise
            self._asking += 1
            self._threads += 1

    def _run(self) -> None:
        asks = True
        while asks:
            with self._lock:
                batch = self._requests.next_batch()
            answers = self._ask({key: each.what for key, each in batch.items()})
            with self._lock:
                self._requests.under_way -= batch.keys()
                self._asking -= 1
                if batch:
                    # Another asks while this one calls callbacks, which may wait for its answers.
                    self._start()
                self._work.notify_all()
            for key, each in batch.items():
                call_foreign("a callback of a metadata request", _answer, each.caller, answers[key])
            with self._lock:
                asks = bool(batch and self._requests.waiting) and self._asking < ASKING_MAX
                if asks:
                    self._asking += 1
                else:
                    asks = self._is_called()
                if not asks:
                    self._threads -= 1

    def _is_called(self) -> bool:
        """Wait for more to ask, but not for long."""
        self._idle += 1
        called = self._idle_work.wait_for(lambda: self._called, IDLE_S)
        self._idle -= 1
        if called:
            self._called -= 1
        return bool(called)


class LoopBatcher:
    """Asks a store for what the tasks of an event loop ask for, batch by batch, in tasks of their
    own: a caller that is cancelled takes back what is not under way yet.

    Args:
        ask: asks; given each key's input, it has each key's answer, or `Failed`.
        tasks: the event loop.
    """

    def __init__(self, ask: BoundWork[[Any], Mapping[str, Any]], tasks: ProgramLoop) -> None:
        self._ask = ask
        self._tasks = tasks
        self._requests = _Requests()
        self._asking = 0

    async def ask(self, key: str, what: object) -> object:
        """Ask for something.

        Raises:
            BaseException: what the store raised for it.
        """
        caller = _Awaited()
        self._requests.waiting.append(_Request(key, what, caller))
        self._begin()
        return await caller.answer

    def _begin(self) -> None:
        """Ask for what waits, as far as that may be asked for now."""
        while self._asking < ASKING_MAX and (batch := self._requests.next_batch()):
            self._asking += 1
            self._tasks.start(self._run, batch)

    async def _run(self, batch: Mapping[str, _Request]) -> None:
        try:
            answers = await self._ask.in_loop({key: each.what for key, each in batch.items()})
        except BaseException as exc:  # The loop ends: errors of the store are answers.
            for each in batch.values():
                each.caller.go_on(error=exc)
            raise
        finally:
            self._requests.under_way -= batch.keys()
            self._asking -= 1
        for key, each in batch.items():
            _answer(each.caller, answers[key])
        self._begin()


class _Awaited:
    """The answer that a task awaits."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def begins(self) -> bool:
        return not self.answer.done()

    def go_on(self, answer: object = None, error: BaseException | None = None) -> None:
        if self.answer.done():  # The task was cancelled.
            return
        if isinstance(error, asyncio.CancelledError):
            self.answer.cancel()
        elif error is not None:
            self.answer.set_exception(error)
        else:
            self.answer.set_result(answer)


def _answer(caller: _Caller, answer: object) -> None:
    """Let a caller go on with the answer to its request."""
    if isinstance(answer, Failed):
        caller.go_on(error=answer.error)
    else:
        caller.go_on(answer)


def closed() -> ClosedError:
    """The error of a request after the end."""
    return ClosedError("the access to topics' metadata was closed")
