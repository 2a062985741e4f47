"""What the administration of groups is tested with: consumers that join, and consume some."""

from __future__ import annotations

import hqueue
from hqueue import Consumer
from hqueue.groups.offsets import GroupOffsets
from hqueue.groups.paths import GroupPaths
from tests.support.waiting import wait_for

__all__ = ["consume", "join", "offsets_of"]


def join(consumer: Consumer, queue: hqueue.Queue) -> None:
    """Have all partitions of a queue, and no message of them yet."""
    consumer.subscribe(queue.name, on_assigned=lambda keys: consumer.pause(*keys))
    wait_for(
        lambda: not consumer.poll(10) and len(consumer.assignment()) == queue.partitions,
        "it has all partitions",
    )
    consumer.resume()


def consume(client: hqueue.Client, queue: hqueue.Queue, group: str, count: int) -> list[bytes]:
    """What a consumer gets that takes so many messages, commits and leaves."""
    values: list[bytes] = []
    with Consumer(queue.name, group=group, client=client) as consumer:
        wait_for(
            lambda: (
                values.extend(m.value for m in consumer.poll(100, count - len(values)))
                or len(values) == count
            ),
            "messages came",
        )
    return values


def offsets_of(client: hqueue.Client, group: str) -> GroupOffsets:
    return GroupOffsets(client.coordination.store, GroupPaths("/hqueue", group))
