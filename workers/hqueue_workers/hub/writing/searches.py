"""What publishers have numbered before a topic came to this hub is learned from the log."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager

from hqueue import HQueueError, Outcome, ReceivedMessage, StoreUnavailableError
from hqueue_workers.hub.writing.gathering import fenced
from hqueue_workers.hub.writing.numbers import Numbers, newest_of
from hqueue_workers.hub.writing.owned import OwnedTopic

__all__ = ["Searches"]

THREADS = 2

Scan = Callable[[str, int, int], AbstractContextManager[Iterable[ReceivedMessage]]]


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
        self._under_way: dict[tuple[OwnedTopic, int], Future[None]] = {}
        self._pool = ThreadPoolExecutor(THREADS, "hqueue-hub-search")
        self._closed = False

    def learn(self, owned: OwnedTopic, numbers: Numbers, since: int) -> Future[None]:
        """Have it known what was numbered in a topic from an ID on.

        The future's errors are `FencedTopicError`, `BufferFullError` where there are too many
        publishers, and the store's.
        """
        key = owned, since
        with self._lock:
            under_way = self._under_way.get(key)
            if under_way is None:
                if self._closed:
                    raise StoreUnavailableError("the hub is ending")
                under_way = self._under_way[key] = Future()
                self._pool.submit(self._search, key, numbers, under_way)
            return under_way

    def close(self) -> None:
        """Begin no other one, and end those under way."""
        with self._lock:
            self._closed = True
        self._pool.shutdown(wait=False)

    def _search(self, key: tuple[OwnedTopic, int], numbers: Numbers, done: Future[None]) -> None:
        owned, since = key
        error: BaseException | None = None
        try:
            until = owned.known_from
            if since < until:
                with self._scan(owned.name, since, until) as messages:
                    found = newest_of(self._while_owned(owned, messages))
                numbers.learn(owned, since, until, found)
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

    def _while_owned(
        self, owned: OwnedTopic, messages: Iterable[ReceivedMessage]
    ) -> Iterable[ReceivedMessage]:
        for message in messages:
            if owned.fenced or owned.left:
                raise fenced(owned)
            if self._closed:
                raise StoreUnavailableError("the hub is ending")
            yield message
