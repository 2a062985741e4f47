"""The handler of ``HQueueHubService``."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from hqueue import (
    Address,
    BufferFullError,
    HQueueError,
    InvalidInputError,
    Message,
    MessageID,
    MessageTooLargeError,
)
from hqueue.errors import NoSubscriptionStateError
from hqueue.message import Headers, check_headers_of
from hqueue.rpc.services import load
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock
from hqueue.settings import reserved
from hqueue.settings.limits import BATCH_BYTES_MAX, BATCH_MESSAGES_MAX
from hqueue_workers.hub.authorizer import Operation
from hqueue_workers.hub.metrics import HubMetrics
from hqueue_workers.hub.serving.answers import (
    acl_lists_of,
    acl_struct,
    as_thrift,
    since_of,
    text_of,
    topic_of,
)
from hqueue_workers.hub.serving.callers import Named, audited, calling_by
from hqueue_workers.hub.serving.subscription_service import ServedQueue, SubscriptionService
from hqueue_workers.hub.writing.owned_topic import (
    Published,
    PublishSequence,
    RedirectedError,
    held_bytes,
)
from hqueue_workers.hub.writing.sequence_numbers import (
    SEQUENCE_NUMBER_MAX,
    LastMessage,
    with_sequence_numbers,
)
from hqueue_workers.node.networks import Networks
from hqueue_workers.node.runtime import Runtime

__all__ = ["HubService", "hub_service"]


def hub_service() -> Any:
    """Load the service of the IDL, which takes a while the first time."""
    return load("hub").HQueueHubService


def _counted(call: Callable[..., Future[Any]]) -> Callable[..., Future[Any]]:
    """Decorate a method of the service: count the errors that it raises at once, and convert them
    into those of the IDL.
    """

    @functools.wraps(call)
    def begun(self: HubService, *arguments: Any) -> Future[Any]:
        try:
            return call(self, *arguments)
        except HQueueError as exc:
            raise self._thrift(exc) from exc

    return begun


class HubService(SubscriptionService):
    """The service's handler. Each call is checked before anything happens, and its answer is a
    future. The bytes of calls that wait are bounded.

    Args:
        queues: the hub's objects for each queue, by its name.
        metrics: the hub's metrics.
        pending_bytes_max: the most bytes of messages that may wait in memory.
        runtime: the hub's runtime.
        session_ms: how long a subscriber's session may be silent.
        callbacks: the networks that may be called.
        api_address: the address of the Thrift API; empty if it is not served.
        clock: measures latencies.
    """

    def __init__(
        self,
        queues: Mapping[str, ServedQueue],
        metrics: HubMetrics,
        pending_bytes_max: int,
        *,
        runtime: Runtime,
        session_ms: int,
        callbacks: Networks,
        api_address: str = "",
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(queues, runtime, session_ms, callbacks)
        self._metrics = metrics
        self._pending_bytes_max = pending_bytes_max
        self._api_address = api_address
        self._clock = clock
        self._lock = threading.Lock()
        self.pending_bytes = 0

    # ruff: noqa: N802, PLR0917  (the IDL's)

    def publish(
        self, queue: Any, publisher: Any, topic: Any, message: Any, redirected: Any
    ) -> Future[Any]:
        """As the IDL has it."""
        messages = None if message is None else [message]
        return self.publishMessages(queue, publisher, topic, messages, redirected)

    def publishMessages(
        self, queue: Any, publisher: Any, topic: Any, messages: Any, redirected: Any
    ) -> Future[Any]:
        """As the IDL has it."""
        return self._publish(queue, publisher, topic, messages, redirected, None, self._published)

    def publishOnce(
        self,
        queue: Any,
        publisher: Any,
        topic: Any,
        messages: Any,
        number: Any,
        since: Any,
        redirected: Any,
    ) -> Future[Any]:
        """As the IDL has it."""
        given = (queue, publisher, topic, messages, redirected)
        return self._publish(*given, (number, since), self._published_once)

    @audited("publish")
    @_counted
    def newestNumber(
        self,
        queue: Any,
        publisher: Any,
        topic: Any,
        since: Any,
        redirected: Any,
    ) -> Future[Any]:
        """As the IDL has it."""
        at = self._queue(queue)
        by, name = calling_by(publisher, "publisher"), topic_of(topic)
        _check_publisher(at, by, name)
        found = at.publishing.last_message(by, name, since_of(since), redirected=bool(redirected))
        return self._said(found, self._last_message, absent=NoSubscriptionStateError)

    @audited("move", administers=True)
    @_counted
    def moveTopic(
        self,
        queue: Any,
        caller: Any,
        topic: Any,
        host: Any,
        port: Any,
        redirected: Any,
    ) -> Future[Any]:
        """As the IDL has it."""
        managing = self._queue(queue).managing
        name, of = self._who(caller, topic)
        to = Address.parse(f"{text_of(host, 'host')}:{port}")
        return self._said(managing.move(name, of, to, redirected=bool(redirected)))

    @audited("delete", administers=True)
    @_counted
    def deleteTopic(self, queue: Any, caller: Any, topic: Any, redirected: Any) -> Future[Any]:
        """As the IDL has it."""
        managing = self._queue(queue).managing
        name, of = self._who(caller, topic)
        return self._said(managing.delete(name, of, redirected=bool(redirected)))

    @audited("acl", administers=True)
    @_counted
    def changeAccess(
        self, queue: Any, caller: Any, topic: Any, rules: Any, redirected: Any
    ) -> Future[Any]:
        """As the IDL has it."""
        managing = self._queue(queue).managing
        name, of = self._who(caller, topic)
        given = acl_lists_of(rules)
        reserved.check_topic(of)  # It may be created by this.
        changed = managing.change_acl(name, of, given, redirected=bool(redirected))
        return self._said(changed, acl_struct)

    def apiAddress(self) -> str:
        """As the IDL has it."""
        return self._api_address

    @audited("publish")
    @_counted
    def _publish(
        self,
        queue: Any,
        publisher: Any,
        topic: Any,
        messages: Any,
        redirected: Any,
        sequence_numbers: tuple[Any, Any] | None,
        answered: Callable[[Published], Any],
    ) -> Future[Any]:
        at = self._queue(queue)
        by, sequence = calling_by(publisher, "publisher"), None
        name, given = _read(topic, messages)
        if sequence_numbers is not None:
            _check_publisher(at, by, name)
            sequence = _sequence(by.name, *sequence_numbers, len(given))
        read, size = with_sequence_numbers(given, sequence)
        if size > BATCH_BYTES_MAX:
            raise MessageTooLargeError(
                "the call's messages are larger than the maximum size of a batch",
                bytes=size,
                bytes_max=BATCH_BYTES_MAX,
            )
        held = size + held_bytes(read)
        self._make_room(held)
        began_ms = self._clock.monotonic_ms()

        def give_back(_: object) -> None:
            with self._lock:
                self.pending_bytes -= held

        def say(published: Published) -> Any:
            self._metrics.published.inc(published.count)
            self._metrics.latency.observe((self._clock.monotonic_ms() - began_ms) / 1e3)
            return answered(published)

        published = at.publishing.publish(
            by, name, read, size, redirected=bool(redirected), sequence=sequence
        )
        published.add_done_callback(give_back)
        return self._said(published, say)

    def _who(self, caller: Any, topic: Any) -> tuple[str, str]:
        name = topic_of(topic)
        return calling_by(caller, "caller").caller, name

    def _said(
        self,
        done: Future[Any],
        say: Callable[[Any], Any] = lambda done: done,
        absent: type[HQueueError] | tuple[()] = (),
    ) -> Future[Any]:
        """Make an answer from a result or an error; a result of None stands for `absent`."""
        answer: Future[Any] = Future()

        def ended(found: Future[Any]) -> None:
            try:
                is_absent = isinstance(found.exception(), absent)
                answer.set_result(say(None if is_absent else found.result()))
            except BaseException as exc:  # Its caller must learn it.
                answer.set_exception(self._thrift(exc))

        done.add_done_callback(ended)
        return answer

    def _make_room(self, size: int) -> None:
        with self._lock:
            # One that is larger than all of the room is taken when nothing else waits.
            if self.pending_bytes and self.pending_bytes + size > self._pending_bytes_max:
                raise BufferFullError(
                    "too many messages are waiting to be appended: try again later"
                )
            self.pending_bytes += size

    def _published(self, published: Published) -> Any:
        return self._idl.TPublished(self._id(published.id), published.partition, published.count)

    def _published_once(self, published: Published) -> Any:
        assert published.last_id is not None
        return self._idl.TPublishedOnce(
            published.duplicates,
            self._published(published) if published.count else None,
            self._id(published.last_id),
        )

    def _last_message(self, last_message: LastMessage | None) -> Any:
        if last_message is None:
            return self._idl.TNewestNumber()
        return self._idl.TNewestNumber(
            last_message.sequence_number, self._id(MessageID.from_int(last_message.id))
        )

    def _id(self, at: MessageID) -> Any:
        return self._message_id(at.timestamp, at.sequence)

    def _thrift(self, error: BaseException) -> Exception:
        """Convert an error into one of the IDL, and count it, unless it is a redirect."""
        if not isinstance(error, RedirectedError):
            self._metrics.failed.inc()
        return as_thrift(error)


def _check_publisher(at: ServedQueue, by: Named, topic: str) -> None:
    """Return if a caller may use a publisher's sequence numbers. A publisher's name belongs to the
    principal of the same name: finding out who used a name first would take a read of the whole
    topic.

    Raises:
        NotAllowedError: the caller may not use the name.
    """
    at.topics.check_name(by.principal, Operation.PUBLISH, topic, by.name, owner=by.name)


def _sequence(caller: str, number: Any, since: Any, count: int) -> PublishSequence:
    if number is None or not 0 <= number <= SEQUENCE_NUMBER_MAX - count + 1:
        raise InvalidInputError(
            "a sequence number must be a whole number, 0 or more",
            number=number,
            number_max=SEQUENCE_NUMBER_MAX,
        )
    return PublishSequence(caller, number, since_of(since))


def _read(topic: Any, messages: Sequence[Any] | None) -> tuple[str, list[Message]]:
    """Return the topic's name, and the call's messages as the library's."""
    name = text_of(topic, "topic")
    reserved.check_topic(name)
    if not messages or None in messages:
        raise InvalidInputError("give at least one message, and no null message")
    if len(messages) > BATCH_MESSAGES_MAX:
        raise InvalidInputError(
            "the call has more messages than a batch can hold",
            messages=len(messages),
            messages_max=BATCH_MESSAGES_MAX,
        )
    given = [_message(name, each) for each in messages]
    check_headers_of([each.headers for each in given])
    return name, given


def _message(topic: str, given: Any) -> Message:
    if given.topic and text_of(given.topic, "a message's topic") != topic:
        raise InvalidInputError("a message's topic is not the topic of the call", topic=topic)
    if given.value is None:
        raise InvalidInputError("a message needs a value")
    headers: Headers = ()
    if given.headers:
        if any(each is None or each.name is None or each.value is None for each in given.headers):
            raise InvalidInputError("a header needs a name and a value")
        headers = tuple(
            (text_of(each.name, "a name", BATCH_BYTES_MAX), _bytes(each.value))
            for each in given.headers
        )
        reserved.check_headers(name for name, _ in headers)
    key = None if given.key is None else _bytes(given.key)
    return Message(topic, _bytes(given.value), key, headers)


def _bytes(given: Any) -> bytes:
    return given.encode() if isinstance(given, str) else bytes(given)
