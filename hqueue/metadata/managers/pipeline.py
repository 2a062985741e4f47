"""Many requests under way at once, with few threads: those that wait go together."""

from __future__ import annotations

import asyncio
import collections
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from hqueue.errors import BufferFullError, ClosedError, HQueueError
from hqueue.metadata.fields import FieldChange, FieldRecords
from hqueue.metadata.managers.following import Asked, Following
from hqueue.metadata.outcomes import PartlyDoneError, own_copy
from hqueue.metadata.ports import Version
from hqueue.runtime.foreign import call_foreign
from hqueue.runtime.fork import register
from hqueue.runtime.program_loop import ProgramLoop
from hqueue.runtime.steps import Wait, Work
from hqueue.runtime.stepwise import Stepwise, asked, stepwise
from hqueue.runtime.thread_pool import ThreadPool
from hqueue.runtime.threads import start
from hqueue.runtime.waiting import Condition

__all__ = ["Pipeline"]

TOGETHER_MAX = 256
WAITING_MAX = 10_000
SCANS_MAX = 4

ASKING_MAX = 2
"""The requests under way at a time: one batch is on its way while the next one is put together."""

THREADS_MAX = 16
"""The threads for each kind of request. Threads without a request call callbacks."""

IDLE_S = 0.25
"""How long an idle thread waits for requests before it ends: starting one takes longer than a
request."""

Input = TypeVar("Input")
Result = TypeVar("Result")


class Pipeline(Stepwise):
    """Reads and changes records of a store, for work that is followed: see
    `hqueue.metadata.managers.following`. Thread-safe.

    What is asked for while requests are under way goes together with the next request, up to
    `TOGETHER_MAX` in one; so each store does many at once in its own way. Threads end soon after
    the requests, except for `SCANS_MAX`. Changes of the same record are made in the order in which
    they are asked for. Reads and changes have no order between them: a read that must follow a
    change is asked for when the change is done.

    The future of work can be cancelled until its first request is sent. Its callbacks run in the
    threads of the pipeline, and should return soon. They may make more calls and wait for these.
    They must not wait for earlier calls, whose answers they may be holding up.

    In a forked child the pipeline starts empty, and the parent's futures never end there.

    In an event loop each request is made for itself, and no thread is used. A change of a caller
    that is cancelled goes on to its end in a task.

    Args:
        store: the store.
        wait_s: how long a call waits for room.
        waiting_max: how many calls may wait at a time.
        tasks: the event loop that makes requests, if one does, for its changes.
    """

    def __init__(
        self,
        store: FieldRecords,
        wait_s: float,
        waiting_max: int = WAITING_MAX,
        tasks: ProgramLoop | None = None,
    ) -> None:
        self.store = store
        self._tasks = tasks
        self._waiting_max = waiting_max
        self._wait_s = wait_s
        self._closed = False
        self._pool = ThreadPool(
            SCANS_MAX, "hqueue-metadata-scan", unfinished_max=waiting_max, wait_s=wait_s
        )
        self._begin()
        register(self)

    def _begin(self) -> None:
        room = self._wait_s, self._waiting_max
        self._reads: _Batcher[None] = _Batcher(self._read, *room)
        self._changes: _Batcher[FieldChange | Version] = _Batcher(self._change, *room)

    def after_fork_in_child(self) -> None:
        self._begin()
        if self._closed:
            self.close()

    def read(self, key: str) -> Asked:
        """Asks for what `FieldRecords.read` returns; None if there is no such record."""
        return Asked(
            partial(self._reads.submit, key, None), partial(self._in_loop, self._read, key, None)
        )

    def write(self, key: str, change: FieldChange) -> Asked:
        """Asks for what `FieldRecords.write` returns."""
        return self._changing(key, change)

    def delete(self, key: str, version: Version) -> Asked:
        """Asks for what `FieldRecords.delete` returns."""
        return self._changing(key, version)

    def apart(self, wait: Wait) -> Asked:
        """Asks for the same, which takes several requests, as `run` does it."""
        return Asked(
            lambda work: self.run(partial(_follow_apart, work, wait)),
            partial(self._wait_in_loop, wait),
        )

    def run(self, work: Callable[[], Result]) -> Future[Result]:
        """Do work that takes several requests, in one of `SCANS_MAX` threads, or wait for one."""
        return self._pool.submit(work)

    def close(self) -> None:
        """Refuse further requests, and finish those that were made."""
        self._closed = True
        self._reads.close()
        self._changes.close()
        self._pool.shutdown(wait=False)

    def _changing(self, key: str, change: FieldChange | Version) -> Asked:
        def in_loop() -> Awaitable[object]:
            made = self._in_loop(self._change, key, change)
            return made if self._tasks is None else self._tasks.run(made)

        return Asked(partial(self._changes.submit, key, change), in_loop)

    async def _wait_in_loop(self, wait: Wait) -> object:
        self._check_open()
        return await wait.in_loop()

    def _check_open(self) -> None:
        if self._closed:
            raise _closed()

    async def _in_loop(self, ask: Any, key: str, what: Any) -> object:
        self._check_open()
        answer = (await ask.in_loop({key: what}))[key]
        if isinstance(answer, _Failed):
            raise answer.error
        return answer

    @stepwise
    def _read(self, wanted: Mapping[str, None]) -> Work[Any, dict[str, Any]]:
        return (yield from _answers(self._find, wanted))

    @stepwise
    def _find(self, wanted: Mapping[str, None]) -> Work[Any, dict[str, Any]]:
        found = yield asked(self.store.read, wanted)
        return {key: found.get(key) for key in wanted}

    @stepwise
    def _change(self, wanted: Mapping[str, FieldChange | Version]) -> Work[Any, dict[str, Any]]:
        writes = {key: each for key, each in wanted.items() if isinstance(each, FieldChange)}
        deletes = {key: each for key, each in wanted.items() if not isinstance(each, FieldChange)}
        return {
            **(yield from _answers(self.store.write, writes)),
            **(yield from _answers(self.store.delete, deletes)),
        }


def _follow_apart(work: Following[Any], wait: Wait) -> None:
    if not work.begins():
        return
    try:
        answer = wait.here()
    except BaseException as exc:  # The work decides what it means.
        work.go_on(error=exc)
    else:
        work.go_on(answer)


class _Failed:
    """An answer that is an error."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def _answers(
    ask: Callable[[Mapping[str, Any]], object], wanted: Mapping[str, Any]
) -> Work[Any, dict[str, Any]]:
    """Ask the store. An error is the answer to each, and an object of its own for each: of those
    that a store changed together, each gets the outcome of its own.
    """
    try:
        answers = (yield asked(ask, wanted)) if wanted else {}
        return {key: answers[key] for key in wanted}
    except PartlyDoneError as exc:
        answers = exc.answers
        return {
            key: _Failed(answer) if isinstance(answer, BaseException) else answer
            for key, answer in answers.items()
        }
    except (asyncio.CancelledError, GeneratorExit):  # There is no caller any more.
        raise
    except BaseException as exc:  # Whatever it is, the waiting callers must get it.
        return {key: _Failed(own_copy(exc)) for key in wanted}


class _Request(NamedTuple):
    """What waits to be asked, or was asked."""

    key: str
    what: Any
    work: Following[Any]


class _Batcher(Generic[Input]):
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
        self._waiting: collections.deque[_Request] = collections.deque()
        self._under_way: set[str] = set()
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
                lambda: self._closed or len(self._waiting) < self._waiting_max, self._wait_s
            )
            if self._closed:
                raise _closed()
            if not roomy:
                raise BufferFullError(
                    "too many requests are waiting: send fewer at a time", waiting=self._waiting_max
                )
            self._waiting.append(_Request(key, what, work))
            if key not in self._under_way:
                self._start()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._work.notify_all()

    def _start(self) -> None:
        """Let a further thread ask, if there may be one."""
        if not self._waiting or self._asking >= ASKING_MAX:
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
                self._waiting.pop()  # What has just come; before it there was nothing.
                raise
            self._asking += 1
            self._threads += 1

    def _run(self) -> None:
        asks = True
        while asks:
            with self._lock:
                batch = self._next_batch()
            answers = self._ask({key: each.what for key, each in batch.items()})
            with self._lock:
                self._under_way -= batch.keys()
                self._asking -= 1
                if batch:
                    # Another asks while this one calls callbacks, which may wait for its answers.
                    self._start()
                self._work.notify_all()
            for key, each in batch.items():
                call_foreign("a callback of a metadata request", _answer, each.work, answers[key])
            with self._lock:
                asks = bool(batch and self._waiting) and self._asking < ASKING_MAX
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

    def _next_batch(self) -> dict[str, _Request]:
        """What goes next: no key twice, nor one that is under way, nor one before its elder."""
        batch: dict[str, _Request] = {}
        passed: list[_Request] = []
        held: set[str] = set(self._under_way)
        while self._waiting and len(batch) < TOGETHER_MAX and len(passed) < TOGETHER_MAX:
            request = self._waiting.popleft()
            if request.key in held:
                passed.append(request)
            elif request.work.begins():
                batch[request.key] = request
                held.add(request.key)
        self._waiting.extendleft(reversed(passed))
        self._under_way |= batch.keys()
        return batch


def _answer(work: Following[Any], answer: object) -> None:
    """Let work go on with the answer to its request."""
    if isinstance(answer, _Failed):
        work.go_on(error=answer.error)
    else:
        work.go_on(answer)


def _closed() -> ClosedError:
    return ClosedError("the access to topics' metadata was closed")
