"""Receiving messages as they are written: subscriptions, subscribers and their listeners.

queue = client.queue("events")
subscription = hqueue.Subscription("subscriber_1", topics=["clicks"])
with queue.subscriber(subscription, [print]) as subscriber:
    subscriber.wait()

Workers deliver the messages; `docs/push.md` tells the whole.
"""
