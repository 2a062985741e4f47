"""One subscription to a topic, as a client has it."""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable
from typing import Protocol

from hqueue.errors import HQueueError, InvalidInputError
from hqueue.message_id import MessageID
from hqueue.metadata.managers import SubscriptionPreferences
from hqueue.push.service import Consumption
from hqueue.runtime.waiting import Event
from hqueue.settings.addresses import Address
from hqueue.settings.kinds import check_timeout_s

__all__ = ["SubscribeMode", "TopicSubscription"]


class SubscribeMode(enum.IntEnum):
    """Whether `HubTopic.subscribe` may create a subscription, or attach to one."""

    CREATE = 0
    """Create the subscription. It must not exist."""

    ATTACH = 1
    """Attach to the subscription. It must exist."""

    CREATE_OR_ATTACH = 2


class Subscribing(Protocol):
    """What a subscription asks of its client."""

    def acknowledge_cumulative(
        self, subscription: TopicSubscription, message_id: MessageID
    ) -> None:
        """Move the cursor."""

    def leave(self, subscription: TopicSubscription) -> None:
        """Detach, and forget it; also once more, if that was interrupted."""

    def unsubscribe(self, queue: str, topic: str, subscriber: str) -> None:
        """End it at the hubs."""


class TopicSubscription:
    """A subscription that delivers messages to a listener until it is closed or ends. Thread-safe.
    Made by `HubTopic.subscribe`.

    Use it as a context manager, or `close` it.
    """

    def __init__(
        self,
        client: Subscribing,
        queue: str,
        topic: str,
        subscriber: str,
        *,
        endpoint: Address,
        consumption: Consumption,
        explicit_ack: bool,
        on_end: Callable[[], None],
    ) -> None:
        self.queue = queue
        self.topic = topic
        self.subscriber = subscriber
        self.explicit_ack = explicit_ack
        self.endpoint = endpoint
        """Where hubs deliver to."""
        self.consumption = consumption
        self.hub: Address | None = None
        """The hub that delivers; None while none is known."""
        self.cursor: MessageID | None = None
        """The subscription's cursor when it was attached last: the ID of the last message that is
        done with, as all before it are."""
        self.preferences = SubscriptionPreferences()
        """As they are kept with it."""
        self.attaching = threading.Lock()
        """Held while it is attached: what is closed meanwhile is closed after that."""
        self.failure: HQueueError | None = None
        """Why it ended, if that was not asked for."""
        self.leaving: Event | None = None
        """Set when what its own listener left to be done is done."""
        self.freed = Event(carried=True)
        """Set when its topic can be subscribed to again under its name."""
        self.is_wanted: Callable[[], bool] = lambda: True
        """False where it is closed as soon as it is attached."""
        self.kept: object | None = None
        """What lives for as long as this does."""
        self._client = client
        self._ended = Event(carried=True)
        self._on_end = on_end

    def __enter__(self) -> TopicSubscription:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def ended(self) -> bool:
        """Whether no more messages come: it was closed, unsubscribed, or taken over by another
        client.
        """
        return self._ended.is_set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the subscription ends. Returns False if the time-out came first.

        Raises:
            HQueueError: it ended otherwise than by `close` or `unsubscribe` here: another client
                took it over, it was deleted, or the hubs refuse it.
        """
        ended = self._ended.wait(check_timeout_s(timeout_s))
        if self.failure is not None:
            raise self.failure
        return ended

    def acknowledge_cumulative(self, message_id: MessageID) -> None:
        """Acknowledge this message and all before it: the cursor moves there. Only for
        subscriptions with `explicit_ack`.

        Raises:
            InvalidInputError: the argument is not an ID, or the subscription has no `explicit_ack`.
            SubscriberNotFoundError: the subscription was deleted.
            HubUnavailableError: no hub accepted the call in time. Call it again, with this or a
                later ID: nothing is lost.
        """
        if not self.explicit_ack:
            raise InvalidInputError(
                "this subscription acknowledges messages by its listener's answers: to "
                "acknowledge them by this call, subscribe with explicit_ack=True"
            )
        if not isinstance(message_id, MessageID):
            raise InvalidInputError("acknowledge_cumulative takes a MessageID", value=message_id)
        self._client.acknowledge_cumulative(self, message_id)

    def close(self) -> None:
        """Stop the delivery. A call of the listener under way has some time to end, and the cursor
        is stored, if the hub can be reached. The subscription stays with the hubs.

        If its own listener calls it, it returns at once. The listener's answer then still decides
        about its messages, and the hub learns of the end after it.
        """
        self._client.leave(self)

    def unsubscribe(self) -> None:
        """Delete the subscription with its cursor and preferences.

        If its own listener calls it, it returns at once, and no more messages are delivered. The
        subscription is deleted when the listener has returned, whatever its answer; a failure to do
        so is logged.

        Raises:
            SubscriberNotFoundError: the subscription was deleted before.
            HubUnavailableError: no hub carried out the call in time.
        """
        self._client.unsubscribe(self.queue, self.topic, self.subscriber)

    def end(self, failure: HQueueError | None) -> None:
        """Note that the delivery has ended. Only the client calls this."""
        if not self._ended.is_set():
            self.failure = failure
            self._ended.set()
            self._on_end()
