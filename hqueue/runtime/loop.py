"""The event loop of a process's background work, in the one thread that carries all of it."""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import contextlib
import contextvars
import itertools
import socket
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, ParamSpec, Protocol, TypeVar

from hqueue.errors import ClosedError, HQueueError, Outcome, StoreUnavailableError
from hqueue.runtime.clock import bounded_ms
from hqueue.runtime.foreign import call_foreign
from hqueue.runtime.fork import register
from hqueue.runtime.interrupts import is_interruption
from hqueue.runtime.logs import Log
from hqueue.runtime.steps import Wait
from hqueue.runtime.switch_interval import short_turns
from hqueue.runtime.thread_pool import ThreadPool
from hqueue.runtime.threads import START_S, try_start
from hqueue.runtime.waiting import Event, InterruptibleFuture, carrying

__all__ = [
    "HERE_BYTES",
    "BackgroundLoop",
    "LoopThread",
    "ProcessLoop",
    "background",
    "blocking",
    "by_threads",
    "call_later",
    "compute",
    "computed",
    "computing",
    "in_thread",
    "is_much",
    "program_loop",
]

logger = Log(__name__)

NAME = "hqueue-loop"
BLOCKING_MAX = 16
"""This many calls that block are under way at a time."""
BLOCKING_WAIT_MS = 60_000.0
"""How long a call waits for a thread, while this many are under way."""
TIMELY_MAX = 4
HERE_ITEMS, HERE_BYTES = 100, 64 * 1024
"""What is encoded or decoded in a loop, at most: in a millisecond."""
RETRY_S = 0.25
"""When what is due is tried again that no thread could be had for."""
BROKEN_S = 1.0
"""How long the thread pauses when the loop itself fails: a program may have closed what it polls
with."""

WAKES_MAX = 64 * 1024
_ONCE = (b"\0",)

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_Call = tuple[Callable[..., object], tuple[object, ...]]


class BackgroundLoop(Protocol):
    """A loop that carries tasks which belong to no caller: the process's, or a program's."""

    def start(
        self, function: Callable[..., Coroutine[Any, Any, Any]], /, *args: Any
    ) -> InterruptibleFuture[Any]:
        """Have a coroutine go on by itself. From any thread. Like `LoopThread.start`."""

    def call(self, function: Callable[..., object], /, *args: Any) -> None:
        """Have something called by the loop, soon. From any thread."""

    async def notify(self, what: str, function: Callable[..., object], /, *args: Any) -> None:
        """Call a listener; what it raises is logged. In the loop.

        Args:
            what: what is called, for the log.
            function, args: the listener, and what it gets.

        Raises:
            HQueueError: no thread is free for it. It was not called.
        """


class LoopThread:
    """An event loop and the thread that runs it, for tasks that belong to no caller. Thread-safe.

    No task may block it: what does goes by `in_thread`. Whatever a task raises, the others go on.
    They go on while the process ends, too, until its last handler of `atexit` has returned, and are
    left where they are then. In a forked child there are none of them.

    Made by `background`, in its thread.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.current_thread()
        self._tasks: set[asyncio.Task[None]] = set()
        """Loops keep no task."""
        self._calls: collections.deque[_Call] = collections.deque()
        self._woken, self._wake = socket.socketpair()
        for each in (self._woken, self._wake):
            each.setblocking(False)
        self._loop.add_reader(self._woken, self._take_calls)

    @property
    def in_loop(self) -> bool:
        """Whether the caller runs in it, and must not block."""
        return threading.current_thread() is self._thread

    @property
    def tasks(self) -> set[asyncio.Task[None]]:
        """The tasks that go on at this moment. From any thread."""
        return self._tasks.copy()

    def start(
        self,
        function: Callable[Parameters, Coroutine[Any, Any, Result]],
        *args: Parameters.args,
        **named: Parameters.kwargs,
    ) -> InterruptibleFuture[Result]:
        """Have a coroutine go on by itself.

        It has none of the caller's context variables: a bound on what the caller does is not a
        bound on this.

        Returns:
            What comes of it, for another thread to wait for. `cancel` cancels it. An error that is
            no `HQueueError` is logged, too: perhaps nobody looks.
        """
        future: InterruptibleFuture[Result] = InterruptibleFuture(carried=True)
        if self.in_loop:
            contextvars.Context().run(self._begin, future, function, args, named)
        else:
            self.call(self._begin, future, function, args, named)
        return future

    def call(self, function: Callable[..., object], *args: object) -> None:
        """Have something called by the loop, soon. What it raises is logged."""
        # One step, for asyncio takes an `OSError` of a handler of a signal for its own.
        note = map(self._calls.append, ((function, args),))
        try:
            collections.deque(itertools.chain(note, map(self._wake.send, _ONCE)), maxlen=0)
        except BlockingIOError as exc:  # It is woken already.
            if is_interruption(exc):
                raise

    async def notify(self, what: str, function: Callable[..., object], /, *args: Any) -> None:
        """Like `BackgroundLoop.notify`. A thread calls the listener, which may block."""
        await in_thread(call_foreign, what, function, *args)

    def _take_calls(self) -> None:
        self._woken.recv(WAKES_MAX)
        while self._calls:
            function, args = self._calls.popleft()
            self._loop.call_soon(function, *args, context=contextvars.Context())

    def _begin(
        self,
        future: InterruptibleFuture[Any],
        function: Callable[..., Coroutine[Any, Any, Any]],
        args: tuple[object, ...],
        named: dict[str, object],
    ) -> None:
        if future.cancelled():
            future.set_running_or_notify_cancel()
            return
        task = self._loop.create_task(_carry(future, function, args, named))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        future.add_done_callback(partial(self._cancel, weakref.ref(task)))

    def _cancel(
        self, kept: weakref.ref[asyncio.Task[None]], future: concurrent.futures.Future[Any]
    ) -> None:
        task = kept()  # The future keeps its callbacks.
        if future.cancelled() and task is not None:
            self.call(task.cancel)

    def _run(self) -> None:
        """Run the loop, and run it again when something in it stops it: `SystemExit` does that."""
        with carrying():
            while True:
                _, error = call_foreign("a task in the background", self._loop.run_forever)
                if isinstance(error, Exception):
                    time.sleep(BROKEN_S)


async def _carry(
    future: InterruptibleFuture[Any],
    function: Callable[..., Coroutine[Any, Any, Any]],
    args: tuple[object, ...],
    named: dict[str, object],
) -> None:
    try:
        result = await function(*args, **named)
    except asyncio.CancelledError:
        future.cancel()
        future.set_running_or_notify_cancel()
    except BaseException as exc:
        if not isinstance(exc, HQueueError):
            logger.exception("a task in the background failed")
        if future.set_running_or_notify_cancel():
            future.set_exception(exc)
    else:
        if future.set_running_or_notify_cancel():
            future.set_result(result)


async def in_thread(
    function: Callable[Parameters, Result], *args: Parameters.args, **named: Parameters.kwargs
) -> Result:
    """Have one of the process's few threads call something that blocks, and is bounded by itself.
    It has the caller's context variables. Cancelled, it is not called, or nobody learns what came
    of it.

    Raises:
        StoreUnavailableError: no thread was free in time. It was not called.
        HQueueError: no thread runs, and the system starts none. It was not called.
    """
    return await by_threads(_blocking, BLOCKING_WAIT_MS, partial(function, *args, **named))


def blocking(function: Callable[[], object]) -> Wait:
    """Asks for a call that blocks, and is bounded by itself: in a loop a thread makes it."""
    return Wait(function, partial(in_thread, function))


def is_much(items: int, size: Callable[[], int], bytes_max: int = HERE_BYTES) -> bool:
    """Whether this many items, of this many bytes, are encoded or decoded beside a loop. Their size
    is asked for only where they are few.
    """
    return items > HERE_ITEMS or size() > bytes_max


def computing(function: Callable[[], object]) -> Wait:
    """Asks for a call that takes a processor, waits for nothing and changes nothing: in a loop it
    is made as `computed` makes it.
    """
    return Wait(function, partial(computed, function))


def compute(function: Callable[[], Result]) -> concurrent.futures.Future[Result]:
    """Have something computed that takes more than a moment, and waits for nothing, beside a loop:
    one at a time in a process, for more would keep Python's lock from the loop, and be no faster.
    The caller cuts what takes long in one call of Python's into pieces: others have turns between.

    Raises:
        HQueueError: no thread runs, and the system starts none.
    """
    return _computing.submit(partial(_in_short_turns, function))


async def computed(
    function: Callable[Parameters, Result], *args: Parameters.args, **named: Parameters.kwargs
) -> Result:
    """What comes of computing something as `compute` does, with the caller's context variables; in
    the loop itself where no thread can be had for it. Cancelled, it is not begun, or nobody learns
    what came of it.

    Raises:
        As the function.
    """
    is_begun = False

    def call() -> Result:
        nonlocal is_begun
        is_begun = True
        return _in_short_turns(partial(function, *args, **named))

    try:
        return await by_threads(_computing, BLOCKING_WAIT_MS, call)
    except HQueueError:
        if is_begun:
            raise
        return function(*args, **named)


def _in_short_turns(function: Callable[[], Result]) -> Result:
    with short_turns(), carrying():
        return function()


async def by_threads(
    threads: ThreadPool, wait_ms: float, function: Callable[[], Result], /
) -> Result:
    """Like `in_thread`, by threads of one's own. Where the system starts none, as when the process
    ends, the one does it that the loop keeps.

    Args:
        threads: they call it.
        wait_ms: how long to wait for a free one; not more than is left of the caller's operation.
        function: what is called.
    """
    work = partial(contextvars.copy_context().run, function)
    try:
        begun = threads.submit(work)
    except HQueueError as exc:
        if threads is _blocking or not isinstance(exc.__cause__, RuntimeError):
            raise
        begun = _blocking.submit(work)
    called = asyncio.wrap_future(begun)
    try:
        await asyncio.wait([called], timeout=bounded_ms(wait_ms) / 1e3)
        if not called.done() and begun.cancel():
            raise StoreUnavailableError(
                "no thread for waiting became free in time: try again with fewer calls at a time",
                outcome=Outcome.NOT_APPLIED,
                wait_ms=wait_ms,
            )
        return await called
    finally:
        called.cancel()


_blocking = ThreadPool(BLOCKING_MAX, "hqueue-loop-call", kept=1)
_computing = ThreadPool(1, "hqueue-loop-compute")
_timely = ThreadPool(TIMELY_MAX, "hqueue-loop-timer")
"""What is due waits for nothing that blocks."""


class ProcessLoop:
    """The loop thread of this process, if it has one."""

    def __init__(self) -> None:
        self.loop: LoopThread | None = None
        self._inherited: list[LoopThread] = []
        """The parent process's. To let go of one would end its tasks here, and unregister what it
        polls for there.
        """
        self.after_fork_in_child()
        register(self)

    def after_fork_in_child(self) -> None:
        if self.loop is not None:
            self._inherited.append(self.loop)
        self.loop = None
        self._lock = threading.RLock()
        self._begun: Event | None = None
        """Set when the thread that was started last has made the loop, or failed to."""

    def background(self) -> LoopThread | None:
        if self.loop is None:
            begun = self._begin()
            if begun is not None:
                begun.wait(START_S)
        return self.loop

    def _begin(self) -> Event | None:
        """Start the thread, unless one was started; what to wait for."""
        with self._lock:
            if self.loop is None and (self._begun is None or self._begun.is_set()):
                begun = Event()
                if try_start(self._run, begun, name=NAME) is None:  # It waits for the lock.
                    return None
                self._begun = begun
            return self._begun

    def _run(self, begun: Event) -> None:
        try:
            with self._lock:
                if self.loop is not None:  # That of a caller who was interrupted.
                    return
                self.loop = loop = LoopThread()
        except OSError as exc:
            logger.warning("there is no event loop for work in the background: %s", exc)
            return
        finally:
            begun.set()
        with contextlib.suppress(HQueueError):
            _blocking.submit(int)  # One is there when the process ends.
        loop._run()


_process = ProcessLoop()


def background() -> LoopThread | None:
    """The loop thread of this process, which is started when it is asked for first. None if there
    can be none now: the caller does the work itself, or does without.
    """
    return _process.background()


def program_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop in which the caller runs, if it is one of the program: None in a thread
    without one, and in the process's own.
    """
    running = asyncio._get_running_loop()
    own = _process.loop
    return None if own is not None and running is own._loop else running


def call_later(
    delay_ms: float, function: Callable[..., object], *args: object
) -> InterruptibleFuture[None] | None:
    """Have something that may block called later, in a thread; `cancel` prevents that. None if
    there is no loop thread for it.
    """
    loop = background()
    return None if loop is None else loop.start(_call_later, delay_ms, function, args)


async def _call_later(
    delay_ms: float, function: Callable[..., object], args: tuple[object, ...]
) -> None:
    await asyncio.sleep(delay_ms / 1e3)
    while True:
        try:
            called = _timely.submit(function, *args)
        except ClosedError:
            raise
        except HQueueError as exc:  # The system starts no thread for now.
            logger.debug("can't start a thread for callbacks that are due; trying again: %s", exc)
            await asyncio.sleep(RETRY_S)
        else:
            await asyncio.wrap_future(called)
            return
