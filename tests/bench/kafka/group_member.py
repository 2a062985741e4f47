"""``python -m tests.bench.kafka.group_member``: one consumer of a group, in a process of its own.

It joins, reads nothing, and says ``ready`` when it has its share of the partitions. Told to go on,
by a line on its input, it reads, and says again and again when it had how many messages: the time
of `time.monotonic`, which all processes of a machine share, and the number.
"""

from __future__ import annotations

import json
import select
import sys
import time
from collections.abc import Callable
from typing import Any

__all__ = ["CONFLUENT", "HQUEUE"]

HQUEUE, CONFLUENT = "hqueue", "confluent-kafka"
A_CALL = 10_000
WAIT_S = 120
REPORT_EVERY = 20_000


def consume_hqueue(task: dict[str, Any]) -> None:
    """As `hqueue.Consumer` is iterated over."""
    import hqueue  # noqa: PLC0415

    with (
        hqueue.connect(hbase="native", zookeeper=task["zookeeper"], notify_workers=False) as client,
        hqueue.Consumer(group=task["group"], client=client) as consumer,
    ):
        consumer.subscribe(task["name"], on_assigned=lambda keys: consumer.pause(*keys))
        _await_share(task, lambda: len(consumer.assignment()), lambda: consumer.poll(10))
        consumer.resume()
        came = 0
        for message in consumer:
            came += len(message.value) >= 0
            if came % REPORT_EVERY == 0 or came == task["share"]:
                _say([time.monotonic(), came])
                if came == task["share"]:
                    break
        sys.stdin.readline()


def consume_confluent(task: dict[str, Any]) -> None:
    """As `consume` of many messages a call."""
    from .confluent import group_consumer  # noqa: PLC0415  (an extra)

    consumer = group_consumer(task["address"], task["group"])

    def on_assign(assigned: Any, partitions: Any) -> None:
        assigned.assign(partitions)
        assigned.pause(partitions)

    consumer.subscribe([task["name"]], on_assign=on_assign)
    _await_share(task, lambda: len(consumer.assignment()), lambda: consumer.poll(0.01))
    consumer.resume(consumer.assignment())
    came = said = 0
    while came < task["share"]:
        for message in consumer.consume(A_CALL, timeout=1):
            came += message.error() is None and len(message.value()) >= 0
        if came - said >= REPORT_EVERY or came >= task["share"]:
            said = came
            _say([time.monotonic(), came])
    sys.stdin.readline()
    consumer.close()


def _await_share(
    task: dict[str, Any], partitions: Callable[[], int], poll: Callable[[], object]
) -> None:
    """Take part in the group until told to go on; say when the share is there."""
    ends_s, ready = time.monotonic() + WAIT_S, False
    while True:
        poll()
        if (partitions() == task["partitions"]) is not ready:
            ready = not ready
            _say("ready" if ready else "waiting")
        if select.select([sys.stdin], [], [], 0)[0]:
            sys.stdin.readline()
            return
        if time.monotonic() > ends_s:
            raise TimeoutError("the consumer did not get its share of the partitions")


def _say(what: object) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    {HQUEUE: consume_hqueue, CONFLUENT: consume_confluent}[given["library"]](given)
