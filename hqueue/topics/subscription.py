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
    """Whether `HubClient.subscribe` may create a subscription, or attach to one."""

    CREATE = 0
    """It must not be there."""

    ATTACH = 1
    """It must be there."""

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
    """A subscription that messages are delivered of, until it is closed or ends. Made by
    `HubClient.subscribe`. Thread-safe.

    As a context manager it is closed at the end.
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
        """Whether nothing more comes: it was closed, unsubscribed, or taken over by another."""
        return self._ended.is_set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it ends; whether it has.

        Raises:
            HQueueError: it ended, and not by `close` or `unsubscribe`: another client took it over,
                it was unsubscribed, or the hubs refuse it.
        """
        ended = self._ended.wait(check_timeout_s(timeout_s))
        if self.failure is not None:
            raise self.failure
        return ended

    def acknowledge_cumulative(self, message_id: MessageID) -> None:
        """Acknowledge this message and all before it: the cursor moves there. For subscriptions
        with `explicit_ack`.

        Raises:
            InvalidInputError: this is no ID, or the listener's answers say it.
            SubscriberNotFoundError: it is gone.
            HubUnavailableError: no hub took it in time. Called again, with
                this or a later ID, nothing is lost.
        """
        if not self.explicit_ack:
            raise InvalidInputError(
                "the listener's answers acknowledge messages here: to do it by this call, "
                "subscribe with explicit_ack=True"
            )
        if not isinstance(message_id, MessageID):
            raise InvalidInputError("what is acknowledged is a MessageID", value=message_id)
        self._client.acknowledge_cumulative(self, message_id)

    def close(self) -> None:
        """Have nothing more delivered. A call of the listener that is under way has some time to
        end, and the cursor is stored, if the hub can be reached. The subscription stays.

        In a call of its own listener this returns at once. What the listener answers to that call
        becomes of its messages, as ever; the hub learns of the end behind it.
        """
        self._client.leave(self)

    def unsubscribe(self) -> None:
        """End the subscription: its cursor and preferences are gone.

        In a call of its own listener this returns at once, and nothing more is delivered. It is
        done when that call has ended, whatever the listener answers; that it was not is logged.

        Raises:
            SubscriberNotFoundError: it was gone already.
            HubUnavailableError: no hub did it in time.
        """
        self._client.unsubscribe(self.queue, self.topic, self.subscriber)

    def end(self, failure: HQueueError | None) -> None:
        """Nothing more comes. For the client."""
        if not self._ended.is_set():
            self.failure = failure
            self._ended.set()
            self._on_end()
