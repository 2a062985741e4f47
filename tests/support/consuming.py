"""Consumers in tests: taking turns until something is so."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import hqueue
from hqueue import ConsumedMessage, Consumer, ConsumerStream, Message
from tests.support.waiting import wait_for

__all__ = ["EXTRAS", "put_numbered", "put_with_extras", "settle", "take", "values"]


def put_numbered(
    queue: hqueue.Queue, count: int, *, first: int = 0, topic: str = "t"
) -> list[hqueue.MessageID]:
    """Put so many messages, spread over the partitions one by one; their IDs."""
    return [
        queue.put(Message(topic, b"%d" % number), partition=number % queue.partitions)
        for number in range(first, first + count)
    ]


EXTRAS = 9
"""The messages that `put_with_extras` puts."""


def put_with_extras(queue: hqueue.Queue) -> None:
    """Put messages with and without keys and headers into the first partition, in batches of both
    kinds.
    """
    headers = [("n", b"1"), ("", b""), ("n", b"\xff"), ("ü", b"2")]
    for more in (
        [Message("t", b"0"), Message("t", b"1")],
        [Message("t", b"2", b"k")],
        [Message("t", b"3"), Message("u", b"4", b""), Message("t", b"5", b"k", headers)],
        [Message("u", b"6", headers=headers)],
        [Message("t", b"7"), Message("u", b"8")],
    ):
        queue.put(more, partition=0)


def values(messages: Sequence[ConsumedMessage]) -> list[int]:
    """What `put_numbered` put, in order."""
    return sorted(int(message.value) for message in messages)


def take(
    count: int, *consumers: Consumer | ConsumerStream, messages_max: int = 500
) -> list[ConsumedMessage]:
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
    *consumers: Consumer | ConsumerStream,
    shares: Sequence[int],
    turn: Callable[[], object] = lambda: None,
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
