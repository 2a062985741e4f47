"""Receiving messages as they are written: subscriptions, subscribers and their listeners.

queue = client.queue("events")
subscription = hqueue.Subscription("subscriber_1", topics=["clicks"])
with queue.subscriber(subscription, [print]) as subscriber:
    subscriber.wait()

Workers deliver the messages; `docs/push.md` shows how, and `docs/push-guarantees.md` says
what subscribers can rely on.
"""
