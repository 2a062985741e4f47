"""Many requests under way at once, with few threads: those that wait go together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from hqueue.metadata.fields import FieldChange, FieldRecords
from hqueue.metadata.managers.batching import Batcher, Failed, LoopBatcher, closed
from hqueue.metadata.managers.following import Asked, Following
from hqueue.metadata.outcomes import PartlyDoneError, own_copy
from hqueue.metadata.ports import Version
from hqueue.runtime.fork import register
from hqueue.runtime.program_loop import ProgramLoop
from hqueue.runtime.steps import Wait, Work
from hqueue.runtime.stepwise import Stepwise, asked, stepwise
from hqueue.runtime.thread_pool import ThreadPool

__all__ = ["Pipeline"]

WAITING_MAX = 10_000
SCANS_MAX = 4

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

    In an event loop, tasks send the requests together in the same way. A caller that is cancelled
    takes back what is not sent yet, and leaves the rest to its end.

    Args:
        store: the store.
        wait_s: how long a call waits for room.
        waiting_max: how many calls may wait at a time.
        tasks: the event loop that makes requests, if one does.
    """

    def __init__(
        self,
        store: FieldRecords,
        wait_s: float,
        waiting_max: int = WAITING_MAX,
        tasks: ProgramLoop | None = None,
    ) -> None:
        self.store = store
        self._waiting_max = waiting_max
        self._wait_s = wait_s
        self._closed = False
        self._pool = ThreadPool(
            SCANS_MAX, "hqueue-metadata-scan", unfinished_max=waiting_max, wait_s=wait_s
        )
        if tasks is not None:
            self._loop_reads = LoopBatcher(self._read, tasks)
            self._loop_changes = LoopBatcher(self._change, tasks)
        self._begin()
        register(self)

    def _begin(self) -> None:
        room = self._wait_s, self._waiting_max
        self._reads: Batcher[None] = Batcher(self._read, *room)
        self._changes: Batcher[FieldChange | Version] = Batcher(self._change, *room)

    def after_fork_in_child(self) -> None:
        self._begin()
        if self._closed:
            self.close()

    def read(self, key: str) -> Asked:
        """Asks for what `FieldRecords.read` returns; None if there is no such record."""
        return Asked(
            partial(self._reads.submit, key, None),
            lambda: self._in_loop(self._loop_reads, key, None),
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
        return Asked(
            partial(self._changes.submit, key, change),
            lambda: self._in_loop(self._loop_changes, key, change),
        )

    async def _in_loop(self, batcher: LoopBatcher, key: str, what: object) -> object:
        self._check_open()
        return await batcher.ask(key, what)

    async def _wait_in_loop(self, wait: Wait) -> object:
        self._check_open()
        return await wait.in_loop()

    def _check_open(self) -> None:
        if self._closed:
            raise closed()

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
            key: Failed(answer) if isinstance(answer, BaseException) else answer
            for key, answer in answers.items()
        }
    except (asyncio.CancelledError, GeneratorExit):  # There is no caller any more.
        raise
    except BaseException as exc:  # Whatever it is, the waiting callers must get it.
        return {key: Failed(own_copy(exc)) for key in wanted}
