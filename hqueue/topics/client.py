"""Publishing to topics by way of hubs."""

from __future__ import annotations

import collections
import random
import threading
from collections.abc import Callable, Sequence
from typing import Any

from hqueue.errors import (
    ClosedError,
    HubUnavailableError,
    InvalidInputError,
    NotAllowedError,
    Outcome,
    QueueNotFoundError,
)
from hqueue.message import Message
from hqueue.message_id import MessageID, MessageIDs
from hqueue.rpc.connection import Connection, ThriftError
from hqueue.rpc.services import load
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock, Deadline
from hqueue.runtime.fork import register
from hqueue.settings.addresses import Address
from hqueue.settings.attributes import check_queue_name
from hqueue.topics.connections import HubConnections
from hqueue.topics.settings import HubClientSettings

__all__ = ["HubClient"]

PAUSE_MS_MIN, PAUSE_MS_MAX = 20.0, 2_000.0


class HubClient:
    """Publishes to topics of queues that hubs serve. Made by `connect` with ``hubs``. Needs neither
    HBase nor ZooKeeper.

    Thread-safe, and usable in a forked child. Connections are opened when needed, and kept; which
    hub owns a topic is remembered. Use it as a context manager, or `close` it.

    Args:
        settings: where hubs are, and bounds.
        clock: where time comes from.
    """

    def __init__(self, settings: HubClientSettings, clock: Clock = SYSTEM_CLOCK) -> None:
        self.settings = settings
        self._clock = clock
        self._idl = load("hub")
        self._structs = load("subscriber")
        self._connections = HubConnections(
            self._idl.HQueueHubService, settings.connections_max, settings.connect_timeout_ms
        )
        self._owners: collections.OrderedDict[tuple[str, str], Address] = collections.OrderedDict()
        self._closed = False
        self.after_fork_in_child()
        register(self)

    def after_fork_in_child(self) -> None:
        self._lock = threading.Lock()
        self._random = random.Random()

    def __enter__(self) -> HubClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections. Calls under way are answered; further ones are refused."""
        self._closed = True
        self._connections.close()

    def publish(
        self,
        topic: str,
        message: bytes | bytearray | memoryview | Message,
        *,
        queue: str | None = None,
    ) -> MessageID:
        """Publish a message, and return its ID. When this returns it is durable, and every reader
        will see it. Messages that a thread publishes to a topic one after the other have growing
        IDs, also when the topic's hub changes.

        Redirects are followed, and what hubs refuse for the moment is tried again, until
        ``operation_timeout_ms`` is over.

        Args:
            topic: the topic, which is created if it is not there.
            message: a value, or a `Message` of this topic with a key and headers.
            queue: the queue; the setting ``queue`` if None.

        Raises:
            InvalidInputError: an argument is out of range.
            MessageTooLargeError: the message is larger than a batch may be.
            QueueNotFoundError: the hubs don't serve that queue.
            NotAllowedError: the caller may not publish there, or not create the topic.
            HubUnavailableError: no hub did it in time. With outcome *unknown* it may be in the log,
                or come to be: a connection ended, or nothing came, after the call was sent.
            ClosedError: the client was closed.
        """
        return self.publish_many(topic, [message], queue=queue)[0]

    def publish_many(
        self,
        topic: str,
        messages: Sequence[bytes | bytearray | memoryview | Message],
        *,
        queue: str | None = None,
    ) -> MessageIDs:
        """Publish messages of a topic: all or none, in their order, with no other between them.

        Args:
            topic: the topic.
            messages: as for `publish`, 1 to 65,536; together as large as a batch may be.
            queue: the queue; the setting ``queue`` if None.

        Returns:
            Their IDs.

        Raises:
            As `publish`.
        """
        region = self._queue(queue)
        if isinstance(messages, (str, bytes, bytearray, memoryview)) or not messages:
            raise InvalidInputError("what is published is a sequence with at least one message")
        sent = [self._struct(topic, each) for each in messages]
        self._check_open()
        deadline = Deadline(self._clock, self.settings.operation_timeout_ms)
        published = self._publish(region, topic, sent, deadline)
        first = MessageID(published.id.timestamp, published.id.sequenceID)
        return MessageIDs(int(first), len(sent))

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the client was closed")

    def _queue(self, queue: str | None) -> str:
        chosen = self.settings.queue if queue is None else queue
        if chosen is None:
            raise InvalidInputError("name the queue, here or when the client is made")
        return check_queue_name(chosen)

    def _struct(self, topic: str, given: bytes | bytearray | memoryview | Message) -> Any:
        message = given if isinstance(given, Message) else Message(topic, given)
        if message.topic != topic:
            raise InvalidInputError(
                "a message has another topic than the call", topic=topic, found=message.topic
            )
        struct = self._structs.TMessage(topic=b"", value=message.value, key=message.key)
        if message.headers:
            struct.headers = [
                self._structs.THeader(name.encode(), value) for name, value in message.headers
            ]
        return struct

    def _publish(self, queue: str, topic: str, sent: list[Any], deadline: Deadline) -> Any:
        """Call hubs until one has done it."""
        key = queue, topic
        pause_ms = PAUSE_MS_MIN
        last: Exception | None = None
        while True:
            hub, redirected = self._owners.get(key) or self._any(), False
            for _ in range(self.settings.redirects_max + 1):
                if deadline.expired and last is not None:
                    break
                try:
                    published = self._call(hub, queue, topic, sent, deadline, redirected=redirected)
                except self._idl.TRedirect as exc:
                    last, hub, redirected = exc, Address(_text(exc.host), exc.port), True
                    continue
                except _RefusedError as exc:
                    last = exc
                    break
                self._remember(key, hub)
                return published
            self._forget(key)
            self._check_open()
            if deadline.expired:
                raise HubUnavailableError(
                    "no hub did it in time",
                    queue=queue,
                    topic=topic,
                    reason=str(last),
                ) from last
            # At random, so that callers which were refused together don't come back together.
            self._clock.sleep_ms(
                min(pause_ms * (0.5 + self._random.random()), deadline.remaining_ms)
            )
            pause_ms = min(2 * pause_ms, PAUSE_MS_MAX)

    def _call(
        self,
        hub: Address,
        queue: str,
        topic: str,
        sent: list[Any],
        deadline: Deadline,
        *,
        redirected: bool,
    ) -> Any:
        """One call.

        Raises:
            TRedirect: the caller is to call another.
            _RefusedError: nothing was done; it is worth another try.
            HQueueError: otherwise.
        """
        bound_ms = max(1.0, deadline.remaining_ms)
        try:
            connection = self._connections.take(hub, bound_ms)
        except (OSError, UnicodeError) as exc:
            self._connections.forget(hub)
            raise _RefusedError(f"{hub}: {exc}") from exc
        arguments = (queue, self.settings.publisher, topic)
        connection.socket.settimeout(bound_ms / 1e3)
        call = _method(connection, sent)
        try:
            published = call(*arguments, redirected)
        except (
            self._idl.TRedirect,
            self._idl.TIllegalArgument,
            self._idl.TNoSuchQueue,
            self._idl.TNotAllowed,
            self._idl.TUnavailable,
            self._idl.TBusy,
        ) as exc:
            self._connections.give_back(hub, connection)
            raise self._translated(exc, hub, queue, topic) from exc
        except (OSError, ThriftError, EOFError, ValueError) as exc:
            connection.close()
            self._connections.forget(hub)
            self._forget((queue, topic))
            raise HubUnavailableError(
                "a hub did not answer: what was published may be in the log, or come to be",
                outcome=Outcome.UNKNOWN,
                hub=str(hub),
                queue=queue,
                topic=topic,
            ) from exc
        except BaseException:
            connection.close()
            raise
        self._connections.give_back(hub, connection)
        return published

    def _translated(self, error: Any, hub: Address, queue: str, topic: str) -> Exception:
        idl = self._idl
        match error:
            case idl.TIllegalArgument():
                return InvalidInputError("the hub refuses the call", reason=_text(error.message))
            case idl.TNoSuchQueue():
                return QueueNotFoundError(
                    "the hub does not serve that queue", queue=queue, hub=str(hub)
                )
            case idl.TNotAllowed():
                return NotAllowedError(
                    "the hub says that the caller may not do this",
                    publisher=self.settings.publisher,
                    queue=queue,
                    topic=topic,
                )
            case idl.TUnavailable() if error.outcome != idl.TOutcome.NOT_APPLIED:
                return HubUnavailableError(
                    "the hub does not know whether it was done",
                    outcome=Outcome.UNKNOWN,
                    hub=str(hub),
                    queue=queue,
                    topic=topic,
                    reason=_text(error.message),
                )
            case idl.TRedirect():
                return error  # type: ignore[no-any-return]
        return _RefusedError(f"{hub}: {_text(error.message)}")

    def _any(self) -> Address:
        with self._lock:
            return self._random.choice(self.settings.hubs)

    def _remember(self, key: tuple[str, str], hub: Address) -> None:
        with self._lock:
            self._owners[key] = hub
            self._owners.move_to_end(key)
            while len(self._owners) > self.settings.owners_max:
                self._owners.popitem(last=False)

    def _forget(self, key: tuple[str, str]) -> None:
        with self._lock:
            self._owners.pop(key, None)


class _RefusedError(Exception):
    """Nothing was done, and it is worth another try."""


def _text(given: bytes | str | None) -> str:
    """What a hub says."""
    return given.decode(errors="replace") if isinstance(given, bytes) else given or ""


def _method(connection: Connection, sent: list[Any]) -> Callable[..., Any]:
    """What is called with these messages, given the arguments before and after them."""
    client = connection.client
    if len(sent) == 1:
        return lambda *given: client.publish(*given[:3], sent[0], given[3])
    return lambda *given: client.publishMessages(*given[:3], sent, given[3])
