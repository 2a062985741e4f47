"""An event loop in a thread of its own, and asyncio's transport behind the blocking one's face: so
what is promised of both is tested by the same tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any, TypeVar

from hqueue import Settings
from hqueue.errors import HQueueError
from hqueue.hbase.native.async_connection import AsyncConnection
from hqueue.hbase.native.async_servers import AsyncServers
from hqueue.hbase.native.calls import REQUESTS_MAX
from hqueue.hbase.native.connection import Connection
from hqueue.hbase.native.exchanges import Request
from hqueue.hbase.native.opening import Opener
from hqueue.hbase.native.security import OPEN, Security
from hqueue.hbase.native.servers import Servers
from hqueue.hbase.native.wire import Answer
from hqueue.log.table_ports import AsyncLogPort, LogPort
from hqueue.runtime.loop import background
from tests.support.waiting import wait_for

__all__ = ["BlockingServers", "LoopThread", "LoopedServers", "looped", "settled"]

Result = TypeVar("Result")


class LoopThread:
    """Runs an event loop. Close it at the end."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Await something there."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def call(self, function: Callable[[], Result]) -> Result:
        """Call something there."""

        async def called() -> Result:
            return function()

        return self.run(called())

    def close(self) -> None:
        """End it, when all that is due has run. What is awaited there still is an error."""

        async def left() -> int:
            for _ in range(3):
                await asyncio.sleep(0)
            return len(asyncio.all_tasks()) - 1

        tasks = self.run(left())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
        assert not tasks, "something is awaited that nobody waits for"


@contextlib.contextmanager
def settled() -> Iterator[None]:
    """Wait until what is begun within, and goes on in the process's loop, is done."""
    loop = background()
    assert loop is not None
    loop.start(asyncio.sleep, 0).result()  # What was begun before is there then.
    before = loop.tasks
    yield
    loop.start(asyncio.sleep, 0).result()
    wait_for(lambda: loop.tasks <= before, "what was begun in the background is done")


def looped(port: AsyncLogPort, thread: LoopThread) -> LogPort:
    """A port for event loops behind the face of the one that blocks: its coroutines go on in a
    loop's thread.
    """
    return _Looped(port, thread)  # type: ignore[return-value]


class _Looped:
    def __init__(self, awaited: object, thread: LoopThread) -> None:
        self._awaited = awaited
        self._thread = thread

    def __getattr__(self, name: str) -> Callable[..., object]:
        method = getattr(self._awaited, name)

        def call(*args: object) -> object:
            answer = self._thread.run(method(*args))
            return _Looped(answer, self._thread) if name == "open" else answer

        return call


class BlockingServers(Servers):
    """The blocking transport, and a look at its only connection."""

    def __init__(self, settings: Settings, security: Security = OPEN) -> None:
        super().__init__(settings, Opener(security).open)

    def connection(self) -> Connection:
        (found,) = (each.connection for each in self._servers.values())
        assert found is not None
        return found

    def is_usable(self) -> bool:
        return self.connection().usable

    def held_bytes(self) -> int:
        return self.connection()._receiver._frames.held_bytes

    def descriptor(self) -> int:
        return self.connection()._socket.fileno()


class LoopedServers:
    """As `BlockingServers`, of asyncio's transport."""

    def __init__(self, settings: Settings, security: Security = OPEN) -> None:
        self.thread = LoopThread()
        self.servers = AsyncServers(settings, Opener(security).open_in_loop)

    def ask(self, request: Request, table: str, timeout_ms: float | None = None) -> Answer:
        return self.thread.run(self.servers.ask(request, table, timeout_ms))

    def ask_all(
        self,
        requests: Iterable[Request],
        table: str,
        timeout_ms: float | None = None,
        together_max: int = REQUESTS_MAX,
    ) -> list[Answer | HQueueError]:
        return self.thread.run(self.servers.ask_all(requests, table, timeout_ms, together_max))

    def close(self) -> None:
        """Close the connections. The loop runs on, until `end`."""
        self.thread.call(self.servers.close)

    def end(self) -> None:
        self.close()
        self.thread.close()

    def connection(self) -> AsyncConnection:
        (there,) = self.servers._connected.items.values()
        (found,) = (each.connection for each in there.values())
        assert found is not None
        return found

    def is_usable(self) -> bool:
        return self.thread.call(lambda: self.connection().usable)

    def held_bytes(self) -> int:
        return self.thread.call(lambda: self.connection()._frames.held_bytes)

    def descriptor(self) -> int:
        return self.thread.call(self.connection()._socket.fileno)
