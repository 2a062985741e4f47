"""Topics with subscriptions: what they are, and how a store gets many of them."""

from __future__ import annotations

import collections
import functools
import itertools
import random
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any

import happybase
from kazoo.client import KazooClient

from hqueue import MessageID
from hqueue.hbase.record_cells import Mark, encode
from hqueue.metadata.blobs import encode_blob
from hqueue.metadata.fields import Fields
from hqueue.metadata.managers import (
    LogRange,
    Rows,
    SubscriptionData,
    SubscriptionPreferences,
    SubscriptionState,
    TopicMetadata,
    TopicPersistenceInfo,
    Tree,
)
from hqueue.metadata.managers.encoding import encode_persistence_info, encode_subscription
from hqueue.metadata.ports import Version

__all__ = [
    "RECORDS_A_TOPIC",
    "Population",
    "Subscription",
    "load_nodes",
    "load_rows",
    "subscription_of",
    "updates",
]

SUBSCRIBERS = tuple(f"subscriber-{number}" for number in range(5))
RECORDS_A_TOPIC = 1 + len(SUBSCRIBERS)
KINDS_OF_VALUES = 1_000
"""So many values differ; they are encoded once."""
TOPICS_A_TRANSACTION = 100
TRANSACTIONS_MAX = 4
ROWS_A_CALL = 2_000
WAIT_S = 120.0

Subscription = tuple[str, str]
"""Topic and subscriber."""


def topic_name(number: int) -> str:
    """A topic's name."""
    return f"topic-{number:07}"


@functools.cache
def ranges_of(number: int) -> tuple[LogRange, ...]:
    """Where a topic's messages lie: in two ranges."""
    first = MessageID(1_700_000_000_000 + number)
    last = MessageID(1_700_000_500_000 + number)
    return LogRange(number % 100, first, last, 1), LogRange(number % 100, last.next(), None, 2)


@functools.cache
def subscription_of(number: int) -> SubscriptionData:
    """A subscription."""
    return SubscriptionData(
        SubscriptionPreferences(1_000, 100, None, {"team": f"team-{number}"}),
        SubscriptionState(MessageID(1_700_000_000_000 + number)),
    )


def load_rows(connection: happybase.Connection, table: str, layout: Rows, topics: int) -> None:
    """Write them as rows, past the managers, which would take hours: unconditionally, thousands a
    call, without the write-ahead log. The table exists, and has none of them.
    """
    with connection.table(table).batch(batch_size=ROWS_A_CALL, wal=False) as batch:
        for row, fields in _rows(layout, topics):
            mark = Mark.first(time.time_ns() // 1_000_000)._replace(gone=False)
            batch.put(row, encode(mark, fields, whole=True))


def _rows(layout: Rows, topics: int) -> Iterator[tuple[bytes, Fields]]:
    """In their order, so that HBase has little to sort."""
    ranges, data = _values()
    for number in range(topics):
        for subscriber in SUBSCRIBERS:
            key = layout.subscription(topic_name(number), subscriber)
            yield key.encode(), data[number % KINDS_OF_VALUES]
    for number in range(topics):
        yield layout.ranges(topic_name(number)).encode(), ranges[number % KINDS_OF_VALUES]


def load_nodes(zookeeper: str, layout: Tree, numbers: Iterable[int]) -> None:
    """Write the topics of these numbers as nodes, past the managers, which would take hours: in
    transactions. None of them exists.
    """
    client = KazooClient(zookeeper)
    client.start(WAIT_S)
    ranges, data = _values()
    under_way: collections.deque[Any] = collections.deque()
    try:
        client.ensure_path(layout.topics)
        left = iter(numbers)
        while together := [*itertools.islice(left, TOPICS_A_TRANSACTION)]:
            transaction = client.transaction()
            for number in together:
                topic, kind = topic_name(number), number % KINDS_OF_VALUES
                transaction.create(layout.ranges(topic), encode_blob(ranges[kind]))
                transaction.create(layout.subscriptions(topic))
                for subscriber in SUBSCRIBERS:
                    key = layout.subscription(topic, subscriber)
                    transaction.create(key, encode_blob(data[kind]))
            under_way.append(transaction.commit_async())
            while len(under_way) > TRANSACTIONS_MAX:
                _check(under_way.popleft())
        while under_way:
            _check(under_way.popleft())
    finally:
        client.stop()
        client.close()


def _check(transaction: Any) -> None:
    """Wait for a transaction, and fail if it did."""
    answers = transaction.get(timeout=WAIT_S)
    assert all(isinstance(answer, str) for answer in answers), answers


@functools.cache
def _values() -> tuple[list[Fields], list[Fields]]:
    """Records of topics, and of subscriptions."""
    numbers = range(KINDS_OF_VALUES)
    ranges: list[Fields] = [
        encode_persistence_info(TopicPersistenceInfo(ranges_of(number))) for number in numbers
    ]
    return ranges, [encode_subscription(subscription_of(number)) for number in numbers]


class Population:
    """What hubs ask of topics that were loaded: of one at a time, chosen at random.

    Args:
        metadata: where they are.
        topics: how many there are.
    """

    def __init__(self, metadata: TopicMetadata, topics: int) -> None:
        self.metadata = metadata
        self.subscriptions = topics * len(SUBSCRIBERS)
        self._topics = topics
        self._random = random.Random(0)
        self._known: Iterator[tuple[Subscription, Version]] = iter(())
        self._states = itertools.cycle(map(subscription_of, range(KINDS_OF_VALUES)))

    def choose(self, number: int) -> dict[Subscription, Version]:
        """Some subscriptions, each once, with their versions."""
        chosen = [
            (topic_name(each // len(SUBSCRIBERS)), SUBSCRIBERS[each % len(SUBSCRIBERS)])
            for each in self._random.sample(range(self.subscriptions), number)
        ]
        found = [self.metadata.subscriptions.read_subscription_data(*each) for each in chosen]
        there = [each.result(WAIT_S) for each in found]
        return {each: known.version for each, known in zip(chosen, there, strict=True) if known}

    def prepare(self, number: int) -> None:
        """Learn the versions of what is updated next: a hub knows them."""
        self._known = iter(self.choose(number).items())

    def read(self) -> None:
        """Read a subscription."""
        found = self.metadata.subscriptions.read_subscription_data(
            self._topic(), self._random.choice(SUBSCRIBERS)
        )
        assert found.result(WAIT_S) is not None

    def update(self) -> None:
        """Update the state of one of which the version is known."""
        subscription, version = next(self._known)
        [future] = updates(self.metadata, {subscription: version}, next(self._states))
        future.result(WAIT_S)

    def read_all(self) -> None:
        """Read all subscriptions of a topic."""
        found = self.metadata.subscriptions.read_subscriptions(self._topic()).result(WAIT_S)
        assert len(found) == len(SUBSCRIBERS)

    def _topic(self) -> str:
        return topic_name(self._random.randrange(self._topics))


def updates(
    metadata: TopicMetadata, known: Mapping[Subscription, Version], data: SubscriptionData
) -> list[Future[Version]]:
    """Set each of these to another state, all under way at once: the state alone, where the store
    can.
    """
    face = metadata.subscriptions
    if face.is_partial_update_supported:
        data = SubscriptionData(None, data.state)
    return [face.update_subscription_data(*each, data, known[each]) for each in known]
