"""One subscription to a topic, as threads have it."""

from __future__ import annotations

from hqueue.message_id import MessageID
from hqueue.settings.kinds import check_timeout_s
from hqueue.topics.subscription_state import SubscribeMode, SubscriptionState

__all__ = ["SubscribeMode", "TopicSubscription"]


class TopicSubscription(SubscriptionState):
    """A subscription that delivers messages to a listener until it is closed or ends. Thread-safe.
    Made by `HubTopic.subscribe`.

    Use it as a context manager, or `close` it.
    """

    def __enter__(self) -> TopicSubscription:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the subscription ends. Returns False if the time-out came first.

        Raises:
            HQueueError: the subscription ended, but not by `close` or `unsubscribe` of this object:
                another client took it over, it was deleted, or the hubs refuse it.
        """
        ended = bool(self._ended.wait(check_timeout_s(timeout_s)))
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
        self._check_ack(message_id)
        self._client.acknowledge_cumulative(self, message_id)

    def close(self) -> None:
        """Stop the delivery. A call of the listener under way has some time to end, and the cursor
        is stored, if the hub can be reached. The subscription stays with the hubs.

        If its own listener calls it, it returns at once. The listener's answer then still decides
        about its messages, and the hub learns of the end afterwards.
        """
        self._client.leave(self)

    def unsubscribe(self) -> None:
        """Delete the subscription with its cursor and preferences.

        If its own listener calls it, it returns at once, and no more messages are delivered. The
        subscription is deleted when the listener has returned, whatever its answer; if that
        fails, it is logged.

        Raises:
            SubscriberNotFoundError: the subscription was deleted before.
            HubUnavailableError: no hub carried out the call in time.
        """
        self._client.unsubscribe(self.queue, self.topic, self.subscriber)
