"""A process that forks while it is present in ZooKeeper: ``fork_coordination.py <queue>``.

The child lists what is present, moves a checkpoint of its own, and exits as processes do. The
parent must still be present, by the same session. Prints what each saw, as "child 1 parent 1".
"""

from __future__ import annotations

import os
import sys

import hqueue
from hqueue import ClosedError, MessageID, Subscription
from hqueue.metadata import SubscriptionKey


def main() -> None:
    client = hqueue.connect()
    queue = client.queue(sys.argv[1])
    coordination = client.coordination
    coordination.checkpoints.create({SubscriptionKey(queue.name, 0, "child"): MessageID(0)})
    subscriber = queue.subscriber(Subscription("parent"), print)
    subscriber.start()
    present = coordination.subscriptions.list(queue.name)

    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        key = SubscriptionKey(queue.name, 0, "child")
        known = coordination.checkpoints.read(key)
        assert known is not None
        coordination.checkpoints.compare_and_set(key, known, MessageID(5))
        assert subscriber.stop() is True
        try:
            own = queue.subscriber(Subscription("child"), print)  # Kept: else it is collected.
            own.start()
            subscriber.start()
        except ClosedError:
            seen = [k for k, p in coordination.subscriptions.list(queue.name).items() if p]
            os.write(writing, f"child {len(seen)}".encode())
        sys.exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    said = os.read(reading, 100).decode()
    parent = SubscriptionKey(queue.name, 0, "parent")
    after = coordination.subscriptions.list(queue.name)
    assert after[parent] == present[parent], "the parent is present as it was"
    print(said, "parent", sum(key.subscriber == "parent" for key, p in after.items() if p))
    subscriber.stop()
    client.close()


main()
