"""Publishes to the topics of a queue, even if they move to other hubs meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from hqueue import Message, Outcome, StoreUnavailableError
from hqueue_workers.hub.authorizer import Operation
from hqueue_workers.hub.owning.queue_topics import QueueTopics
from hqueue_workers.hub.serving.callers import Named
from hqueue_workers.hub.writing.gathering import fenced
from hqueue_workers.hub.writing.owned_topic import (
    FencedTopicError,
    OwnedTopic,
    Published,
    PublishSequence,
    UnknownSequenceNumbersError,
)
from hqueue_workers.hub.writing.sequence_numbers import LastMessage
from hqueue_workers.hub.writing.sequence_searches import SequenceSearches

__all__ = ["Publishing"]

RETRIES_MAX = 3
"""How often a call is retried whose topic was fenced meanwhile."""


class _Call(NamedTuple):
    """A call, and the function that carries it out for a topic that this hub owns."""

    by: Named
    """Who calls, and whose sequence numbers they are."""
    topic: str
    create: bool
    since: int | None
    """The ID from which on sequence numbers must be known; None if they need not be."""
    act: Callable[[OwnedTopic], Future[Any]]


class Publishing:
    """Publishes to the topics of a queue. Thread-safe.

    A publish to a topic that this hub owns needs no other process: it waits only for the log, and
    holds no thread. Before the first message with a sequence number is appended, the topic is read
    once for the sequence numbers that it has.

    Args:
        topics: the queue's topics that this hub owns.
        searches: learn sequence numbers.
    """

    def __init__(self, topics: QueueTopics, searches: SequenceSearches) -> None:
        self._topics = topics
        self._searches = searches

    def publish(
        self,
        by: Named,
        topic: str,
        messages: Sequence[Message],
        size: int,
        *,
        redirected: bool,
        sequence: PublishSequence | None = None,
    ) -> Future[Published]:
        """Append messages of a topic, all together, once this hub owns it. Messages with sequence
        numbers are appended only if the topic does not have them.

        The future's errors are those of `QueueTopics.serve`, `NotAllowedError`, and those of the
        log.
        """

        def submit(owned: OwnedTopic) -> Future[Published]:
            committer = self._topics.committers.of(owned.partition)
            return committer.submit(owned, messages, size, sequence)

        since = None if sequence is None else sequence.since
        return self._served(_Call(by, topic, True, since, submit), redirected=redirected)

    def last_message(
        self, by: Named, topic: str, since: int, *, redirected: bool
    ) -> Future[LastMessage | None]:
        """Find a publisher's last message with a sequence number from an ID on; it may be an older
        one.

        The future's errors are those of `QueueTopics.serve`, `NotAllowedError`, and those of the
        log.
        """

        def look(owned: OwnedTopic) -> Future[LastMessage | None]:
            found: Future[LastMessage | None] = Future()
            sequence_numbers = self._topics.committers.of(owned.partition).sequence_numbers
            last_message = sequence_numbers.last_message(owned, by.name, since)
            if owned.fenced or owned.left:  # It may have been forgotten before it was looked up.
                raise fenced(owned)
            found.set_result(last_message)
            return found

        return self._served(_Call(by, topic, False, since, look), redirected=redirected)

    def close(self) -> None:
        """Stop reading logs for sequence numbers."""
        self._searches.close()

    def _served(self, call: _Call, *, redirected: bool) -> Future[Any]:
        done: Future[Any] = Future()
        self._begin(done, call, redirected=redirected, retries=RETRIES_MAX)
        return done

    def _begin(self, done: Future[Any], call: _Call, *, redirected: bool, retries: int) -> None:
        """Find the owner, check that the caller may do it, learn the sequence numbers, and act:
        each step when the one before is done.
        """

        def failed(error: BaseException) -> None:
            if isinstance(error, (FencedTopicError, UnknownSequenceNumbersError)) and retries:
                self._begin(done, call, redirected=False, retries=retries - 1)
            else:
                done.set_exception(_plain(error))

        def then(step: Callable[[Any], object]) -> Callable[[Future[Any]], None]:
            def taken(ended: Future[Any]) -> None:
                error = ended.exception()
                if error is not None:
                    failed(error)
                    return
                try:
                    step(ended.result())
                except BaseException as exc:  # Its caller must learn it.
                    failed(exc)

            return taken

        def act(owned: OwnedTopic) -> None:
            call.act(owned).add_done_callback(then(done.set_result))

        def learn(owned: OwnedTopic) -> None:
            self._topics.check_allowed(call.by.caller, Operation.PUBLISH, owned)
            if call.since is None:
                act(owned)
                return
            sequence_numbers = self._topics.committers.of(owned.partition).sequence_numbers
            if sequence_numbers.knows(owned, call.by.name, call.since):
                act(owned)
                return
            learning = self._searches.learn(owned, sequence_numbers, call.by.name, call.since)
            learning.add_done_callback(then(lambda _: act(owned)))

        try:
            owned = self._topics.serving(call.topic)
            if owned is not None:
                learn(owned)
                return
            self._topics.serve(
                call.by.caller,
                Operation.PUBLISH,
                call.topic,
                redirected=redirected,
                create=call.create,
            ).add_done_callback(then(learn))
        except BaseException as exc:  # Its caller must learn it.
            failed(exc)


def _plain(error: BaseException) -> BaseException:
    """Convert the error of a topic that keeps changing hands: it is unavailable now."""
    if isinstance(error, (FencedTopicError, UnknownSequenceNumbersError)):
        return StoreUnavailableError(
            "the topic is moving to another hub", outcome=Outcome.NOT_APPLIED, topic=error.topic
        )
    return error
