"""An asynchronous client behind the blocking one's face: so what is promised of both is tested by
the same tests.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import hqueue
import hqueue.aio
from tests.support.looped import LoopThread
from tests.support.metadata_faces import looped_metadata

__all__ = ["FACES", "client_by"]

FACES = ["threads", "asyncio"]


@contextlib.contextmanager
def client_by(face: str, client: hqueue.Client) -> Iterator[hqueue.Client]:
    """A client by one of `FACES`."""
    if face == "threads":
        yield client
    else:
        with contextlib.closing(LoopThread()) as thread:
            yield _LoopedClient(client, thread)


class _LoopedClient(hqueue.Client):
    """Has each administrative call, and those of topics' metadata, made in an event loop. All else
    is the client's own.
    """

    def __init__(self, client: hqueue.Client, thread: LoopThread) -> None:
        vars(self).update(vars(client))
        self._asynchronous = hqueue.aio.Client(client)
        self._thread = thread

    def create_queue(self, *args: Any, **named: Any) -> hqueue.Queue:
        made = self._thread.run(self._asynchronous.create_queue(*args, **named))
        return self.queue(made.name)

    def topic_metadata(self, *args: Any, **named: Any) -> Any:
        return looped_metadata(self._asynchronous.topic_metadata(*args, **named), self._thread)

    def metadata_migration(self, *args: Any) -> Any:
        return looped_metadata(self._asynchronous.metadata_migration(*args), self._thread)


def _in_loop(name: str) -> Callable[..., Any]:
    def call(self: _LoopedClient, *args: Any, **named: Any) -> Any:
        return self._thread.run(getattr(self._asynchronous, name)(*args, **named))

    return call


for _name, _call in inspect.getmembers(hqueue.aio.Client, inspect.iscoroutinefunction):
    if _name not in ("close", "create_queue", "queue") and not _name.startswith("_"):
        setattr(_LoopedClient, _name, _in_loop(_name))
