"""Receiving messages as they are written: subscriptions, subscribers and their listeners.

queue = client.queue("events")
subscription = hqueue.Subscription("subscriber_1", topics=["clicks"])
with queue.subscriber(subscription, [print]) as subscriber:
    subscriber.wait()

Workers deliver the messages; `docs/push.md` tells the whole.
"""

from hqueue.handle.start import EARLIEST, LATEST, Start
from hqueue.push.administration import (
    SubscriberState,
    add_subscriber,
    delete_subscriber,
    list_subscribers,
    seek_subscriber,
)
from hqueue.push.dead_letters import DeadLetter, DeadLetters
from hqueue.push.listener import Listener, ListenerAnswer, MessageListener, Status
from hqueue.push.subscriber import Subscriber, SubscriberOptions
from hqueue.push.subscription import Subscription

__all__ = [
    "EARLIEST",
    "LATEST",
    "DeadLetter",
    "DeadLetters",
    "Listener",
    "ListenerAnswer",
    "MessageListener",
    "Start",
    "Status",
    "Subscriber",
    "SubscriberOptions",
    "SubscriberState",
    "Subscription",
    "add_subscriber",
    "delete_subscriber",
    "list_subscribers",
    "seek_subscriber",
]
