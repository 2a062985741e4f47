"""What was published lately is kept in memory, but no more of it than there is room for."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from hqueue import Address, Message
from hqueue.metadata.managers import HubInfo, Verdict
from hqueue_workers.hub.subscribing.subscription import Feed, Kept, Recent
from hqueue_workers.hub.writing.owned import OwnedTopic, Publish

TOPIC = OwnedTopic("t", 0, 0, Verdict(HubInfo(Address("hub", 1), "a"), 0, won=True), 0.0)


def publish(messages: Sequence[Message]) -> Publish:
    done: Future[Any] = Future()
    return Publish(TOPIC, messages, sum(each.size for each in messages), done)


def kept_of(messages: Sequence[Message], times: int, bytes_max: int) -> int:
    """How many messages are in memory after so many publishes."""
    recent, feed = Recent(bytes_max), Feed(TOPIC, 0)
    for number in range(times):
        recent.add(feed, Kept.of(publish(messages), number * len(messages)))
    assert feed.kept is not None
    assert feed.kept_from == feed.kept[0].first
    return sum(len(kept.messages) for kept in feed.kept)


def test_the_oldest_goes_where_there_is_no_room() -> None:
    assert 8 <= kept_of([Message("t", bytes(1_000))], 100, 12_000) <= 10


def test_messages_of_no_bytes_take_room_too() -> None:
    assert kept_of([Message("t", b"")] * 1_000, 100, 1_000_000) <= 10_000
    headers = [("a", b"")] * 9
    assert kept_of([Message("t", b"", headers=headers)] * 100, 100, 1_000_000) <= 1_000
