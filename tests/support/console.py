"""A console that runs beside a test, in an event loop of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Coroutine, Iterator
from typing import Any, NamedTuple, TypeVar

import httpx

import hqueue
from hqueue_workers.console.console import Console
from hqueue_workers.console.settings import ConsoleSettings

__all__ = ["Event", "RunningConsole", "events_of", "running_console"]

DEADLINE_S = 60.0
_Result = TypeVar("_Result")


class RunningConsole:
    """A console, its address, and its loop."""

    def __init__(
        self, console: Console, client: hqueue.Client, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.console = console
        self.client = client
        self._loop = loop

    @property
    def address(self) -> str:
        """What a browser opens, without a slash at its end."""
        return self.console.address.rstrip("/")

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def do(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Do something in the console's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(DEADLINE_S)

    def measure(self) -> None:
        """Have the history measure once."""
        self.do(self.console.history.measure())


@contextlib.contextmanager
def running_console(client: hqueue.Client, **settings: Any) -> Iterator[RunningConsole]:
    """Run a console over a client, at a free port."""
    begun: list[RunningConsole] = []
    failed: list[BaseException] = []
    ready, stop = threading.Event(), []

    async def run() -> None:
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        stop.append(lambda: loop.call_soon_threadsafe(stopping.set))
        # Tests measure when they want to.
        own = {"port": 0, "metrics_port": 0, "history_ms": 3_600_000}
        chosen = ConsoleSettings(**{**own, **settings})
        console = Console(client, chosen)
        begun.append(RunningConsole(console, client, loop))
        await console.run(stopping, on_ready=lambda address: ready.set())

    def in_thread() -> None:
        try:
            asyncio.run(run())
        except BaseException as exc:
            failed.append(exc)
        finally:
            ready.set()

    thread = threading.Thread(target=in_thread)
    thread.start()
    try:
        assert ready.wait(DEADLINE_S)
        if failed:
            raise failed[0]
        yield begun[0]
    finally:
        if stop and thread.is_alive():
            with contextlib.suppress(RuntimeError):  # Its loop has just ended.
                stop[0]()
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
    if failed:
        raise failed[0]


class Event(NamedTuple):
    """A server-sent event."""

    name: str
    data: str
    id: str
    """The last one that the stream has given."""


def events_of(stream: httpx.Response) -> Iterator[Event]:
    """The events of a stream that have data, as they come. The whole stream has a deadline."""
    name, data, last = "", "", ""
    ends_s = time.monotonic() + DEADLINE_S
    for line in stream.iter_lines():  # The console sends a comment when nothing happens.
        assert time.monotonic() < ends_s, "the event did not come in time"
        field, _, text = line.partition(": ")
        if field == "id":
            last = text
        elif field == "event":
            name = text
        elif field == "data":
            data += text
        elif not line:
            if data:
                yield Event(name, data, last)
            name, data = "", ""
