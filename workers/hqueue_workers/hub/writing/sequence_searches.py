"""Learns from the log the sequence numbers that a topic had before this hub owned it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from concurrent.futures import Future
from contextlib import AbstractContextManager

from hqueue import BufferFullError, HQueueError, Outcome, ReceivedMessage, StoreUnavailableError
from hqueue.runtime.thread_pool import ThreadPool
from hqueue_workers.hub.writing.gathering import fenced
from hqueue_workers.hub.writing.owned_topic import OwnedTopic
from hqueue_workers.hub.writing.sequence_numbers import SequenceNumbers, last_messages_of

__all__ = ["THREADS", "SequenceSearches"]

THREADS = 2

Scan = Callable[[str, int, int], AbstractContextManager[Iterable[ReceivedMessage]]]

_Key = tuple[OwnedTopic, int]


class SequenceSearches:
    """Reads topics for sequence numbers, each part once for all calls that wait for it.
    Thread-safe.

    If a topic has more publishers than can be remembered, one search looks for all those whose
    calls came before it began. So the more calls there are, the less each costs.

    A search has no time limit, because it may have much to read. It ends when the topic is
    released, or when another hub owns it. A caller that gave up waiting finds the search under way,
    or done.

    Args:
        scan: gives the messages of a topic between two IDs.
    """

    def __init__(self, scan: Scan) -> None:
        self._scan = scan
        self._lock = threading.Lock()
        self._under_way: dict[_Key, Future[None]] = {}
        self._asked_for: dict[_Key, dict[str, Future[None]]] = {}
        """In crowded topics: whom the next search looks for."""
        self._pool = ThreadPool(THREADS, "hqueue-hub-search")
        self._closed = False

    def learn(
        self, owned: OwnedTopic, sequence_numbers: SequenceNumbers, publisher: str, since: int
    ) -> Future[None]:
        """Learn the sequence numbers in a topic from an ID on: of all its publishers, or only of
        the calling one if the topic has more than can be remembered.

        The future's errors are `FencedTopicError`, and those of the store.
        """
        key = owned, since
        with self._lock:
            if self._closed:
                raise StoreUnavailableError("the hub is shutting down", outcome=Outcome.NOT_APPLIED)
            if owned.crowded:
                return self._ask_for(key, sequence_numbers, publisher)
            under_way = self._under_way.get(key)
            if under_way is None:
                under_way = Future()
                # It ends when the lock is free.
                self._pool.submit(self._search, key, sequence_numbers, publisher, under_way)
                self._under_way[key] = under_way
            return under_way

    def _ask_for(
        self, key: _Key, sequence_numbers: SequenceNumbers, publisher: str
    ) -> Future[None]:
        """Make the next search look for one publisher, too. The lock is held."""
        asked_for = self._asked_for.get(key)
        if asked_for is None:
            # It begins when the lock is free.
            self._pool.submit(self._search_for, key, sequence_numbers)
            asked_for = self._asked_for[key] = {}
        return asked_for.setdefault(publisher, Future())

    def close(self) -> None:
        """Begin no more searches, and end those under way."""
        with self._lock:
            self._closed = True
        self._pool.shutdown(wait=False)

    def _search(
        self, key: _Key, sequence_numbers: SequenceNumbers, publisher: str, done: Future[None]
    ) -> None:
        owned, since = key
        error: BaseException | None = None
        try:
            try:
                self._learn_all(owned, sequence_numbers, since)
            except BufferFullError:
                owned.crowded = True
                self._learn_some(owned, sequence_numbers, {publisher}, since)
        except BaseException as exc:
            error = exc
        with self._lock:
            del self._under_way[key]
        _end(done, error)

    def _search_for(self, key: _Key, sequence_numbers: SequenceNumbers) -> None:
        owned, since = key
        with self._lock:
            asked_for = self._asked_for.pop(key)
        error: BaseException | None = None
        try:
            self._learn_some(owned, sequence_numbers, asked_for.keys(), since)
        except BaseException as exc:
            error = exc
        for done in asked_for.values():
            _end(done, error)

    def _learn_all(self, owned: OwnedTopic, sequence_numbers: SequenceNumbers, since: int) -> None:
        until = owned.known_from
        if since < until:
            with self._scan(owned.name, since, until) as messages:
                read = self._while_owned(owned, messages)
                found = last_messages_of(read, publishers_max=sequence_numbers.publishers_max)
            sequence_numbers.learn(owned, since, until, found)

    def _learn_some(
        self,
        owned: OwnedTopic,
        sequence_numbers: SequenceNumbers,
        publishers: AbstractSet[str],
        since: int,
    ) -> None:
        until = owned.known_from
        if since < until:
            with self._scan(owned.name, since, until) as messages:
                found = last_messages_of(self._while_owned(owned, messages), only=publishers)
            for publisher in publishers:
                sequence_numbers.learn_alone(owned, publisher, since, until, found.get(publisher))

    def _while_owned(
        self, owned: OwnedTopic, messages: Iterable[ReceivedMessage]
    ) -> Iterable[ReceivedMessage]:
        for message in messages:
            if owned.fenced or owned.left:
                raise fenced(owned)
            if self._closed:
                raise StoreUnavailableError("the hub is shutting down", outcome=Outcome.NOT_APPLIED)
            yield message


def _end(done: Future[None], error: BaseException | None) -> None:
    """Give the calls that wait the result of a search."""
    if error is None:
        done.set_result(None)
        return
    if isinstance(error, HQueueError):  # Whatever came of it, nothing was published.
        error.outcome = Outcome.NOT_APPLIED
    done.set_exception(error)
