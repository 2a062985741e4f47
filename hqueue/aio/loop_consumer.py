"""The base of both kinds of consumers in an event loop: a connection, turns of tasks, an end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from hqueue.aio.client import Client, blocking_client, connect
from hqueue.aio.loops import check_loop, own_loop
from hqueue.client import cluster_of
from hqueue.errors import ClosedError, InvalidInputError
from hqueue.group_consumer import release
from hqueue.handle import Cluster
from hqueue.runtime.forgotten import Watched
from hqueue.runtime.fork import OwnProcess
from hqueue.runtime.loop import in_thread
from hqueue.runtime.program_loop import ProgramLoop
from hqueue.settings.kinds import check_kind

__all__ = ["LoopConsumer"]


class Consuming(Protocol):
    """The consumption behind a consumer."""

    process: OwnProcess

    @property
    def release(self) -> Any:
        """Free everything, in the caller's thread."""

    def request_stop(self) -> None: ...


ConsumingT = TypeVar("ConsumingT", bound=Consuming)


class LoopConsumer(Generic[ConsumingT]):
    """What the consumers have in common. Its subclasses hand out the messages.

    Args:
        client: the client that the program gave to the consumer, or None.
        what: the kind of consumer, for the warning if it is never closed.
        consume: makes the consumption, of a cluster and in the program's loop.
        others_call: the methods that other tasks may call, for errors.

    Raises:
        InvalidInputError: an argument is out of range, or no event loop runs.
        SettingsError: no client is given, and a setting is wrong.
    """

    def __init__(
        self,
        client: Client | None,
        what: str,
        consume: Callable[[Cluster, ProgramLoop], ConsumingT],
        others_call: str,
    ) -> None:
        if client is not None:
            check_kind(client, Client, "client")
        self._background = own_loop("consumer")
        self._others_call = others_call
        self._task: asyncio.Task[object] | None = None
        """The task that is in the middle of a call."""
        self._closed = False
        self._own_client = connect() if client is None else None
        used = self._own_client if client is None else client
        assert used is not None
        own = None if self._own_client is None else blocking_client(self._own_client)
        try:
            self._consumption = consume(cluster_of(blocking_client(used)), self._background)
        except BaseException:
            if own is not None:
                own.close()
            raise
        self._release = partial(release, self._consumption.release, own)
        self._watched = Watched(self, what, self._release)

    def request_stop(self) -> None:
        """Make `poll` return nothing from now on, and end iterations, so that the task that uses
        the consumer can close it. Other tasks, other threads and signal handlers may call it.
        """
        self._consumption.request_stop()

    @contextmanager
    def _turn(self, *, closing: bool = False) -> Iterator[None]:
        """A block in which no other task may use the consumer, except callbacks."""
        if not closing:
            self._check_usable()
        check_loop(self._background.loop, "a consumer")
        before, task = self._task, asyncio.current_task()
        if before not in (None, task) and not self._calls_back():
            raise InvalidInputError(
                "another task is in the middle of a call to this consumer: use a consumer in one "
                f"task at a time; other tasks may call {self._others_call}"
            )
        self._task = task
        try:
            yield
        finally:
            self._task = before

    def _calls_back(self) -> bool:
        """Whether a callback of the program, which may use the consumer, is under way."""
        return False

    def _check_usable(self) -> None:
        self._consumption.process.check()
        if self._closed:
            raise ClosedError("the consumer was closed")

    async def _end_without_loop(self) -> bool:
        """Free everything if the consumer's event loop was closed. Returns whether it was."""
        if not self._background.loop.is_closed():
            return False
        await in_thread(self._release)
        self._watched.closed()
        return True

    async def _close_connection(self) -> None:
        """End the work in the background, and close the connection if the consumer opened it."""
        await self._background.close()
        if self._own_client is not None:
            await self._own_client.close()
