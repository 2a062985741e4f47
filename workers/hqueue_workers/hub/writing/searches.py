"""What publishers have numbered before a topic came to this hub is learned from the log."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import AbstractContextManager

from hqueue import BufferFullError, HQueueError, Outcome, ReceivedMessage, StoreUnavailableError
from hqueue.runtime.thread_pool import ThreadPool
from hqueue_workers.hub.writing.gathering import fenced
from hqueue_workers.hub.writing.numbers import Numbers, newest_of
from hqueue_workers.hub.writing.owned import OwnedTopic

__all__ = ["Searches"]

THREADS = 2

Scan = Callable[[str, int, int], AbstractContextManager[Iterable[ReceivedMessage]]]

_Key = tuple[OwnedTopic, int, str | None]


class Searches:
    """Reads topics for what was numbered, each part once for all that wait for it. Thread-safe.

    A search is not bounded in time, for it may have much to read; it ends when the topic is left,
    or another hub's. Who gave up waiting for it finds it under way, or done.

    Args:
        scan: the messages of a topic from one ID on, up to another.
    """

    def __init__(self, scan: Scan) -> None:
        self._scan = scan
        self._lock = threading.Lock()
        self._under_way: dict[_Key, Future[None]] = {}
        self._pool = ThreadPool(THREADS, "hqueue-hub-search")
        self._closed = False

    def learn(
        self, owned: OwnedTopic, numbers: Numbers, publisher: str, since: int
    ) -> Future[None]:
        """Have it known what was numbered in a topic from an ID on: by all its publishers, or by
        the one that asks, if the topic has more than can be remembered.

        The future's errors are `FencedTopicError`, and the store's.
        """
        key = owned, since, publisher if owned.crowded else None
        with self._lock:
            under_way = self._under_way.get(key)
            if under_way is None:
                if self._closed:
                    raise StoreUnavailableError("the hub is ending")
                under_way = Future()
                # It ends when the lock is free.
                self._pool.submit(self._search, key, numbers, publisher, under_way)
                self._under_way[key] = under_way
            return under_way

    def close(self) -> None:
        """Begin no other one, and end those under way."""
        with self._lock:
            self._closed = True
        self._pool.shutdown(wait=False)

    def _search(self, key: _Key, numbers: Numbers, publisher: str, done: Future[None]) -> None:
        owned, since, only = key
        error: BaseException | None = None
        try:
            if only is None:
                try:
                    self._learn_all(owned, numbers, since)
                except BufferFullError:
                    owned.crowded = True
                    only = publisher
            if only is not None:
                self._learn_one(owned, numbers, only, since)
        except BaseException as exc:
            error = exc
            if isinstance(exc, HQueueError):  # Whatever came of it, nothing was published.
                exc.outcome = Outcome.NOT_APPLIED
        with self._lock:
            del self._under_way[key]
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def _learn_all(self, owned: OwnedTopic, numbers: Numbers, since: int) -> None:
        until = owned.known_from
        if since < until:
            with self._scan(owned.name, since, until) as messages:
                read = self._while_owned(owned, messages)
                found = newest_of(read, publishers_max=numbers.publishers_max)
            numbers.learn(owned, since, until, found)

    def _learn_one(self, owned: OwnedTopic, numbers: Numbers, publisher: str, since: int) -> None:
        until = owned.known_from
        if since < until:
            with self._scan(owned.name, since, until) as messages:
                found = newest_of(self._while_owned(owned, messages), only=publisher)
            numbers.learn_alone(owned, publisher, since, until, found.get(publisher))

    def _while_owned(
        self, owned: OwnedTopic, messages: Iterable[ReceivedMessage]
    ) -> Iterable[ReceivedMessage]:
        for message in messages:
            if owned.fenced or owned.left:
                raise fenced(owned)
            if self._closed:
                raise StoreUnavailableError("the hub is ending")
            yield message
