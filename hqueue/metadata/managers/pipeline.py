"""Many requests under way at once, with few threads: those that wait go together."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, Generic, NamedTuple, TypeVar

from hqueue.errors import BufferFullError, ClosedError, HQueueError
from hqueue.metadata.fields import FieldChange, FieldRecords, Found
from hqueue.metadata.outcomes import PartlyDoneError, own_copy
from hqueue.metadata.ports import Version
from hqueue.runtime.foreign import call_foreign
from hqueue.runtime.fork import register
from hqueue.runtime.thread_pool import ThreadPool
from hqueue.runtime.threads import start
from hqueue.runtime.waiting import Condition, InterruptibleFuture

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
Answer = TypeVar("Answer")
Result = TypeVar("Result")

Then = Callable[[Answer], Result | Future[Result]]
"""Turns an answer into the caller's result, in a thread of the pipeline: returns the result or the
future of another request, or raises an error."""


class Pipeline:
    """Reads and changes records of a store, and returns a future for each. Thread-safe.

    Calls that are made while requests are under way go together with the next request, up to
    `TOGETHER_MAX` in one; so each store does many at once in its own way. Threads end soon after
    the requests, except for `SCANS_MAX`. Changes of the same record are made in the order of the
    calls. Reads and changes have no order between them: a read that must follow a change is called
    when the change is done.

    A future can be cancelled until its request is sent. Its callbacks run in the threads of the
    pipeline, and should return soon. They may make more calls and wait for these. They must not
    wait for earlier calls, whose answers they may be holding up.

    In a forked child the pipeline starts empty, and the parent's futures never end there.

    Args:
        store: the store.
        wait_s: how long a call waits for room.
        waiting_max: how many calls may wait at a time.
    """

    def __init__(self, store: FieldRecords, wait_s: float, waiting_max: int = WAITING_MAX) -> None:
        self.store = store
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

    def read(self, key: str, then: Then[Found | None, Result]) -> Future[Result]:
        """Like `FieldRecords.read`; None if there is no such record."""
        return self._reads.submit(key, None, then)

    def write(
        self, key: str, change: FieldChange, then: Then[Version | None, Result]
    ) -> Future[Result]:
        """Like `FieldRecords.write`."""
        return self._changes.submit(key, change, then)

    def delete(self, key: str, version: Version, then: Then[bool, Result]) -> Future[Result]:
        """Like `FieldRecords.delete`."""
        return self._changes.submit(key, version, then)

    def run(self, work: Callable[[], Result]) -> Future[Result]:
        """Do work that takes several requests, in one of `SCANS_MAX` threads, or wait for one."""
        return self._pool.submit(work)

    def scan(self, prefix: str, depth: int) -> Iterator[tuple[str, Found]]:
        """Like `FieldRecords.scan`, by the thread that iterates."""
        return self.store.scan(prefix, depth)

    def close(self) -> None:
        """Refuse further calls, and finish those that were made."""
        self._closed = True
        self._reads.close()
        self._changes.close()
        self._pool.shutdown(wait=False)

    def _read(self, asked: Mapping[str, None]) -> dict[str, Any]:
        found = self.store.read(asked)
        return {key: found.get(key) for key in asked}

    def _change(self, asked: Mapping[str, FieldChange | Version]) -> dict[str, Any]:
        writes = {key: each for key, each in asked.items() if isinstance(each, FieldChange)}
        deletes = {key: each for key, each in asked.items() if not isinstance(each, FieldChange)}
        return {
            **_answers(self.store.write, writes),
            **_answers(self.store.delete, deletes),
        }


class _Failed:
    """An answer that is an error."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def _answers(
    ask: Callable[[dict[str, Input]], Mapping[str, Answer]], asked: dict[str, Input]
) -> dict[str, Answer | _Failed]:
    """Ask the store. An error is the answer to each, and an object of its own for each: of those
    that a store changed together, each gets the outcome of its own.
    """
    try:
        answers = ask(asked) if asked else {}
        return {key: answers[key] for key in asked}
    except PartlyDoneError as exc:
        answers = exc.answers
        return {
            key: _Failed(answer) if isinstance(answer, BaseException) else answer
            for key, answer in answers.items()
        }
    except BaseException as exc:  # Whatever it is, the waiting callers must get it.
        return {key: _Failed(own_copy(exc)) for key in asked}


class _Request(NamedTuple):
    """What waits to be asked, or was asked."""

    key: str
    what: Any
    then: Callable[[Any], Any]
    future: Future[Any]


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

    def submit(self, key: str, what: Input, then: Callable[[Any], Any]) -> Future[Any]:
        future: Future[Any] = InterruptibleFuture()
        with self._lock:
            roomy = self._work.wait_for(
                lambda: self._closed or len(self._waiting) < self._waiting_max, self._wait_s
            )
            if self._closed:
                raise ClosedError("the access to topics' metadata was closed")
            if not roomy:
                raise BufferFullError(
                    "too many requests are waiting: send fewer at a time", waiting=self._waiting_max
                )
            self._waiting.append(_Request(key, what, then, future))
            if key not in self._under_way:
                self._start()
        return future

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
            answers = _answers(self._ask, {key: each.what for key, each in batch.items()})
            with self._lock:
                self._under_way -= batch.keys()
                self._asking -= 1
                if batch:
                    # Another asks while this one calls callbacks, which may wait for its answers.
                    self._start()
                self._work.notify_all()
            for key, each in batch.items():
                call_foreign("a callback of a metadata request", _settle, each, answers[key])
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
            elif request.future.set_running_or_notify_cancel():
                batch[request.key] = request
                held.add(request.key)
        self._waiting.extendleft(reversed(passed))
        self._under_way |= batch.keys()
        return batch


def _settle(request: _Request, answer: object) -> None:
    """Let a future have what its caller makes of the answer."""
    future = request.future
    if isinstance(answer, _Failed):
        future.set_exception(answer.error)
        return
    try:
        made = request.then(answer)
    except BaseException as exc:  # Whatever it is, the waiting caller must get it.
        future.set_exception(exc)
        return
    if not isinstance(made, Future):
        future.set_result(made)
        return

    def pass_on(done: Future[Any]) -> None:
        error = done.exception()
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(done.result())

    made.add_done_callback(pass_on)
