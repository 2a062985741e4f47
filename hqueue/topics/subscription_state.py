"""What a client of hubs knows about one of its subscriptions."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, Protocol

from hqueue.errors import HQueueError, InvalidInputError
from hqueue.message_id import MessageID
from hqueue.metadata.managers import SubscriptionPreferences
from hqueue.runtime.turn import Turn
from hqueue.settings.addresses import Address

__all__ = ["Event", "SubscribeMode", "SubscriptionState"]


class SubscribeMode(enum.IntEnum):
    """Whether `HubTopic.subscribe` may create a subscription, or attach to one."""

    CREATE = 0
    """Create the subscription. It must not exist."""

    ATTACH = 1
    """Attach to the subscription. It must exist."""

    CREATE_OR_ATTACH = 2


class Event(Protocol):
    """A flag that threads wait for, or coroutines."""

    def set(self) -> None: ...

    def is_set(self) -> bool: ...


class SubscriptionState:
    """A subscription of a client, from its beginning until it has ended.

    Args:
        client: the client's subscriptions.
        queue, topic, subscriber: its name.
        endpoint: where hubs deliver to.
        consumption: gives what is delivered to the listener.
        explicit_ack: whether the listener only receives messages.
        on_end: called when it ends.
        event: makes a flag.
    """

    def __init__(
        self,
        client: Any,
        queue: str,
        topic: str,
        subscriber: str,
        *,
        endpoint: Address,
        consumption: Any,
        explicit_ack: bool,
        on_end: Callable[[], None],
        event: Callable[[], Any],
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
        self.attaching = Turn()
        """Taken while it is attached: what is closed meanwhile is closed after that."""
        self.failure: HQueueError | None = None
        """Why it ended, if that was not asked for."""
        self.leaving: Event | None = None
        """Set when what its own listener left to be done is done."""
        self.freed: Event = event()
        """Set when its topic can be subscribed to again under its name."""
        self.is_wanted: Callable[[], bool] = lambda: True
        """False where it is closed as soon as it is attached."""
        self.kept: object | None = None
        """What lives for as long as this does."""
        self._client = client
        self._ended = event()
        self._on_end = on_end

    @property
    def ended(self) -> bool:
        """Whether no more messages come: it was closed, unsubscribed, or taken over by another
        client.
        """
        return bool(self._ended.is_set())

    def end(self, failure: HQueueError | None) -> None:
        """Note that the delivery has ended. Only the client calls this."""
        if not self._ended.is_set():
            self.failure = failure
            self._ended.set()
            self._on_end()

    def _check_ack(self, message_id: MessageID) -> None:
        """Check that a message may be acknowledged.

        Raises:
            InvalidInputError: the argument is not an ID, or the subscription has no `explicit_ack`.
        """
        if not self.explicit_ack:
            raise InvalidInputError(
                "this subscription acknowledges messages by its listener's answers: to "
                "acknowledge them by this call, subscribe with explicit_ack=True"
            )
        if not isinstance(message_id, MessageID):
            raise InvalidInputError("acknowledge_cumulative takes a MessageID", value=message_id)
