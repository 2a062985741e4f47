"""What the administration of groups is tested with: consumers that join, and consume some."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import hqueue
from hqueue import Consumer
from hqueue.groups.offsets import GroupOffsets
from hqueue.groups.paths import GroupPaths
from hqueue.runtime.stepwise import stepwise
from tests.support.waiting import wait_for

__all__ = ["before_each", "consume", "join", "offsets_of"]


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


@contextlib.contextmanager
def before_each(method: str, do: Callable[[], object]) -> Iterator[None]:
    """Have something done before each call of a method of groups' offsets, but for its own
    calls.
    """
    original: Any = getattr(GroupOffsets, method)

    def late(offsets: GroupOffsets, *arguments: object) -> Any:
        with mock.patch.object(GroupOffsets, method, original):
            do()
        return original.__get__(offsets, GroupOffsets).steps(*arguments)

    with mock.patch.object(GroupOffsets, method, stepwise(late)):
        yield
