"""Consumers in tests: taking turns until something is so."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import hqueue
from hqueue import ConsumedMessage, Consumer, Message
from tests.support.waiting import wait_for

__all__ = ["put_numbered", "settle", "take", "values"]


def put_numbered(queue: hqueue.Queue, count: int, *, first: int = 0, topic: str = "t") -> None:
    """Put so many messages, spread over the partitions one by one."""
    for number in range(first, first + count):
        queue.put(Message(topic, b"%d" % number), partition=number % queue.partitions)


def values(messages: Sequence[ConsumedMessage]) -> list[int]:
    """What `put_numbered` put, in order."""
    return sorted(int(message.value) for message in messages)


def take(count: int, *consumers: Consumer, messages_max: int = 500) -> list[ConsumedMessage]:
    """What consumers are handed out, in turns, until there are so many."""
    taken: list[ConsumedMessage] = []

    def turn() -> bool:
        for consumer in consumers:
            if len(taken) < count:
                most = min(messages_max, count - len(taken))
                taken.extend(consumer.poll(20, messages_max=most))
        return len(taken) >= count

    wait_for(turn, f"{count} messages are handed out")
    return taken


def settle(
    *consumers: Consumer, shares: Sequence[int], turn: Callable[[], object] = lambda: None
) -> None:
    """Poll until each consumer has so many partitions, and none is another's as well."""

    def settled() -> bool:
        turn()
        for consumer in consumers:
            assert not consumer.poll(10), "nothing is there to be handed out"
        owned = [consumer.assignment() for consumer in consumers]
        assert sum(map(len, owned)) == len(set().union(*owned)), "a partition with two owners"
        return sorted(map(len, owned)) == sorted(shares)

    wait_for(settled, f"they share {shares}")
