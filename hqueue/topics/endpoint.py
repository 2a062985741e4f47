"""Where hubs deliver the messages of one subscriber's topics."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from typing import Any

from hqueue.errors import InvalidInputError
from hqueue.message import ReceivedMessage
from hqueue.metadata import DeliveryOptions
from hqueue.net.guard import PortGuard
from hqueue.push.answers import Answer
from hqueue.push.loop_service import LoopSubscriberHandler
from hqueue.push.service import SubscriberHandler, subscriber_service
from hqueue.push.worker_call import WorkerCall
from hqueue.rpc.accepting import listen_at
from hqueue.rpc.messages import RefusedCallError
from hqueue.rpc.server import ThriftServer
from hqueue.settings.addresses import Address
from hqueue.settings.limits import BATCH_BYTES_MAX
from hqueue.topics.subscription_state import SubscriptionState

__all__ = ["Endpoint", "LoopEndpoint"]

THREADS = 16
CONNECTIONS_MAX = 256
IDLE_MS_MAX = 10_000
CALL_BYTES_MAX = 2 * BATCH_BYTES_MAX + (1 << 20)
TIMEOUT_MS = DeliveryOptions().timeout_ms


class TopicEndpoint:
    """The topics whose messages come to one port."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._topics: dict[str, SubscriptionState] = {}

    def add(self, subscription: SubscriptionState) -> None:
        """Let a topic's messages come.

        Raises:
            InvalidInputError: they do already.
        """
        with self._lock:
            if subscription.topic in self._topics:
                raise InvalidInputError(
                    "this client has subscribed to the topic under this name already",
                    topic=subscription.topic,
                    subscriber=subscription.subscriber,
                )
            self._topics[subscription.topic] = subscription

    def remove(self, subscription: SubscriptionState | None) -> bool:
        """Let no more messages come. Returns whether no topic is left."""
        with self._lock:
            if subscription is not None and self._topics.get(subscription.topic) is subscription:
                del self._topics[subscription.topic]
            return not self._topics

    def consumption_of(self, messages: Sequence[ReceivedMessage]) -> Any:
        """What consumes the messages of a call.

        Raises:
            RefusedCallError: there is no such topic here: no answer for the hub.
        """
        if not messages:
            raise RefusedCallError("the call has no topic, or no messages")
        with self._lock:
            subscription = self._topics.get(messages[0].topic)
        if subscription is None or subscription.ended:
            raise RefusedCallError("this client has no subscription to the topic")
        return subscription.consumption


class Endpoint(TopicEndpoint, SubscriberHandler):
    """A subscriber's service on a port of its own: threads give each call to the topic's
    subscription.

    Args:
        host: where hubs reach it, and where it listens.
        port: the port; a free one if 0.
        guard: as `ThriftServer` takes it.
        at: the host's address, if its name was looked up.

    Raises:
        InvalidInputError: it can't listen there.
    """

    def __init__(
        self, host: str, port: int, guard: PortGuard | None = None, at: str | None = None
    ) -> None:
        super().__init__()
        listener = listen_at(at or host, port)
        self.address = Address(host, listener.getsockname()[1])
        self._server = ThriftServer(
            subscriber_service(),
            self,
            listener,
            threads=THREADS,
            connections_max=CONNECTIONS_MAX,
            call_bytes_max=CALL_BYTES_MAX,
            idle_ms_max=IDLE_MS_MAX,
            quick=functools.partial(WorkerCall, self.consume),
            guard=guard,
        )

    def start(self) -> None:
        """Let hubs call. If it raises, close it."""
        self._server.start()

    def consume(self, messages: Sequence[ReceivedMessage]) -> Answer:
        """Give messages to their topic's subscription.

        Raises:
            RefusedCallError: there is no such topic here: no answer for the hub.
        """
        answer: Answer = self.consumption_of(messages).consume(messages)
        return answer

    def close(self, drain_ms: float) -> None:
        """End. Calls under way may take this long; at 0 they are not waited for, and may be the
        caller's own.
        """
        self._server.close(drain_ms)


class LoopEndpoint(TopicEndpoint, LoopSubscriberHandler):
    """A subscriber's service on a port of its own, in the event loop that makes it.

    Args:
        host, port, guard, at: as for `Endpoint`.

    Raises:
        InvalidInputError: it can't listen there.
    """

    def __init__(
        self, host: str, port: int, guard: PortGuard | None = None, at: str | None = None
    ) -> None:
        super().__init__()
        listener = listen_at(at or host, port)
        self.address = Address(host, listener.getsockname()[1])
        self._server = ThriftServer(
            subscriber_service(),
            self,
            listener,
            threads=CONNECTIONS_MAX,
            in_loop=True,
            connections_max=CONNECTIONS_MAX,
            call_bytes_max=CALL_BYTES_MAX,
            idle_ms_max=IDLE_MS_MAX,
            guard=guard,
        )

    def start(self) -> None:
        """Let hubs call. If it raises, close it."""
        self._server.start()

    async def consume(self, messages: Sequence[ReceivedMessage]) -> Answer:
        """Like `Endpoint.consume`."""
        answer: Answer = await self.consumption_of(messages).consume(messages)
        return answer

    def close(self, drain_ms: float) -> None:
        """End. Calls under way are not waited for."""
        self._server.close(0)

    def abandon(self) -> None:
        """End, where the loop was closed."""
        self._server.abandon()
