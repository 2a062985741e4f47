"""A hub that writes metadata: ``write_metadata.py QUEUE TOPIC``.

It creates a subscription ``s`` to the topic, says that it is ready, and moves the state on by one
millisecond after the other. It prints each number that was acknowledged, and "unknown" and the
number where it can't be known; then it reads where it is. It stops when its stdin is closed.
"""

from __future__ import annotations

import sys
import threading

from hqueue import HQueueError, MessageID, Outcome, connect
from hqueue.metadata.managers import SubscriptionData, SubscriptionPreferences, SubscriptionState

WAIT_S = 120.0


def data(number: int) -> SubscriptionData:
    return SubscriptionData(SubscriptionPreferences(), SubscriptionState(MessageID(number, 0)))


def main() -> None:
    queue, topic = sys.argv[1:]
    over = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=wait, daemon=True).start()
    with connect(zookeeper_session_timeout_ms=4_000) as client:
        subscriptions = client.topic_metadata(queue).subscriptions
        version = subscriptions.create_subscription_data(topic, "s", data(1)).result(WAIT_S)
        print("ready", flush=True)
        number = 2
        while not over.is_set():
            try:
                version = subscriptions.replace_subscription_data(
                    topic, "s", data(number), version
                ).result(WAIT_S)
                print(number, flush=True)
            except HQueueError as exc:
                if exc.outcome is Outcome.UNKNOWN:
                    print("unknown", number, flush=True)
                found = subscriptions.read_subscription_data(topic, "s").result(WAIT_S)
                assert found is not None
                version = found.version
            number += 1


main()
