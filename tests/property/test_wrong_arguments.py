"""Every public callable, with values of wrong types and out of range: an `HQueueError`, or what its
documentation says; never an error of Python's own.

Each argument of a call that is good otherwise is replaced by each of `VALUES`. What a value that is
taken leads to is used as well: a scanner is read, a subscriber started.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import decimal
import functools
import importlib
import inspect
import itertools
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping

import numpy as np
import pytest

import hqueue
from hqueue import HQueueError, Message, MessageID, PartitionKey, Scan, Subscription
from hqueue.typing import (
    AclEntry,
    AlterableAttributes,
    ConnectOptions,
    ConsumerOptions,
    Credential,
    DelegationToken,
    HubOptions,
    MessageIDs,
    ProducerOptions,
    QueueAttributes,
    ScannerOptions,
    ShareOptions,
    SubscriberOptions,
)
from tests.support.backends import MemoryBackend

QUEUE = "events"


class _Strange:
    """Knows nothing of what it is asked for."""

    __slots__ = ()


def _generator() -> Iterator[int]:
    yield 5


VALUES: tuple[Callable[[], object], ...] = (
    *(
        functools.partial(_same, value)
        for _same in (lambda value: value,)
        for value in (
            *(None, True, False, -1, 0, 1, 2**31, 2**63, 2**70, 1.5, -0.5, 10**400),
            *(float("nan"), float("inf"), decimal.Decimal("NaN"), 1j),
            *(
                "",
                " ",
                "x",
                "\ud800",
                "x" * 300,
                "0",
                "2-1",
                "earliest",
                "a/b",
                "\0",
                ":::",
                "h:99999",
            ),
            *(b"", b"x", b"\xff", bytearray(b"x"), memoryview(b"xy")),
            *((), (1,), (None,), ("x", 1), ("\ud800", b""), {}, {0: None}, {"x": "y"}, {1, 2}),
            *(frozenset({"x"}), range(3), object, len, _Strange(), ValueError("x"), ...),
            *(datetime.datetime(2024, 1, 1), datetime.datetime.max, datetime.timedelta(days=-1)),
            *(datetime.timedelta.max, datetime.date(2024, 1, 1), re.compile("x")),
            *(np.int64(-1), np.float32(1.5)),
            *(Message("t", b"v"), MessageID(5), Scan(), PartitionKey("x", 0)),
            *(1_700_000_000, hqueue.Outcome.UNKNOWN, hqueue.Status.RETRY),
        )
    ),
    list,
    lambda: [None],
    lambda: [0, "x", None],
    lambda: [Message("t", b"v"), 5],
    _generator,
)

Call = tuple[Callable[..., object], Mapping[str, object]]


TOKEN = DelegationToken(b"identifier", b"password", "cluster")


class World:
    """Good objects of each kind, made when they are asked for."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._stack = stack
        self.client = stack.enter_context(MemoryBackend().connect())
        self.queue = self.client.create_queue(QUEUE, partitions=2)
        self.ids = self.queue.put([Message("t", b"1"), Message("u", b"2", b"k")], partition=0)

    @functools.cached_property
    def consumer(self) -> hqueue.Consumer:
        consumer = hqueue.Consumer(group="g", client=self.client)
        self._stack.enter_context(consumer)
        consumer.assign([(QUEUE, 0)])
        consumer.poll(1_000)
        return consumer

    @functools.cached_property
    def share_consumer(self) -> hqueue.ShareConsumer:
        return self._stack.enter_context(
            hqueue.ShareConsumer(QUEUE, group="shares", client=self.client)
        )

    @functools.cached_property
    def producer(self) -> hqueue.Producer:
        return self._stack.enter_context(self.queue.producer(linger_ms=0))

    @functools.cached_property
    def delivery(self) -> hqueue.Delivery[MessageID]:
        return self.producer.send(Message("t", b"sent"), partition=1)

    @functools.cached_property
    def subscriber(self) -> hqueue.Subscriber:
        subscriber = self.queue.subscriber(Subscription("s"), print, host="127.0.0.1")
        return self._stack.enter_context(subscriber)

    @functools.cached_property
    def hubs(self) -> hqueue.HubClient:
        """A client of hubs that are not there."""
        settings = {"queue": QUEUE, "publisher": "p", "operation_timeout_ms": 1}
        hubs = hqueue.connect_hubs("127.0.0.1:1", **settings)  # type: ignore[arg-type]
        return self._stack.enter_context(hubs)

    @property
    def topic(self) -> hqueue.HubTopic:
        return self.hubs.topic("t")

    @property
    def letter(self) -> hqueue.DeadLetter:
        message = hqueue.ReceivedMessage("t", b"1", self.ids[0], 0)
        return hqueue.DeadLetter(message, "s", "reason", 1)


def _options(kind: type, **good: object) -> dict[str, object]:
    """All options of a `TypedDict`, each with a value that is left out unless it is replaced."""
    return {**dict.fromkeys(kind.__annotations__, LEFT_OUT), **good}


LEFT_OUT = object()

CALLS: dict[str, Callable[[World], Call]] = {
    "AclEntry": lambda w: (
        AclEntry,
        {"scheme": "s", "id": "i", "permissions": "r"},
    ),
    "AclEntry.parse": lambda w: (AclEntry.parse, {"text": "world:anyone:r"}),
    "Address.parse": lambda w: (hqueue.Address.parse, {"text": "host:1"}),
    "Client.add_subscriber": lambda w: (
        w.client.add_subscriber,
        {"queue": QUEUE, "name": "s", "start": "latest", "partitions": [0]},
    ),
    "Client.alter_queue": lambda w: (
        w.client.alter_queue,
        _options(AlterableAttributes, name=QUEUE, ttl="1d"),
    ),
    "Client.create_queue": lambda w: (
        w.client.create_queue,
        _options(QueueAttributes, name="made", partitions=1, ttl="1d", exist_ok=False),
    ),
    "Client.create_snapshot": lambda w: (
        w.client.create_snapshot,
        {"queue": "none", "snapshot": "s"},
    ),
    "Client.delete_group": lambda w: (w.client.delete_group, {"group": "none", "queue": QUEUE}),
    "Client.delete_queue": lambda w: (w.client.delete_queue, {"name": "none", "force": False}),
    "Client.delete_snapshot": lambda w: (w.client.delete_snapshot, {"snapshot": "none"}),
    "Client.delete_subscriber": lambda w: (
        w.client.delete_subscriber,
        {"queue": QUEUE, "name": "s"},
    ),
    "Client.describe_group": lambda w: (w.client.describe_group, {"group": "g", "queue": QUEUE}),
    "Client.describe_queue": lambda w: (w.client.describe_queue, {"name": QUEUE}),
    "Client.disable_queue": lambda w: (w.client.disable_queue, {"name": "none"}),
    "Client.enable_queue": lambda w: (w.client.enable_queue, {"name": QUEUE}),
    "Client.list_snapshots": lambda w: (w.client.list_snapshots, {"queue": QUEUE}),
    "Client.list_subscribers": lambda w: (w.client.list_subscribers, {"queue": QUEUE}),
    "Client.locations": lambda w: (w.client.locations, {"name": QUEUE}),
    "Client.metadata_migration": lambda w: (w.client.metadata_migration, {"queue": QUEUE}),
    "Client.queue": lambda w: (w.client.queue, {"name": QUEUE}),
    "Client.queue_exists": lambda w: (w.client.queue_exists, {"name": QUEUE}),
    "Client.region_sizes": lambda w: (w.client.region_sizes, {"name": QUEUE}),
    "Client.reset_group": lambda w: (
        w.client.reset_group,
        {"group": "g", "queue": QUEUE, "start": "earliest", "partitions": [0]},
    ),
    "Client.restore_snapshot": lambda w: (
        w.client.restore_snapshot,
        {"snapshot": "none", "queue": QUEUE},
    ),
    "Client.seek_subscriber": lambda w: (
        w.client.seek_subscriber,
        {"queue": QUEUE, "name": "s", "start": "earliest", "partitions": [0]},
    ),
    "Client.topic_metadata": lambda w: (w.client.topic_metadata, {"queue": QUEUE, "store": None}),
    "Client.truncate_queue": lambda w: (w.client.truncate_queue, {"name": "none"}),
    "Client.use_token": lambda w: (w.client.use_token, {"token": TOKEN}),
    "ConsumedMessage": lambda w: (
        hqueue.ConsumedMessage,
        {
            **{"topic": "t", "value": b"", "id": w.ids[0], "partition": 0, "queue": QUEUE},
            **{"key": b"k", "headers": ()},
        },
    ),
    "Consumer": lambda w: (
        hqueue.Consumer,
        _options(ConsumerOptions, queues=LEFT_OUT, group="other", client=w.client),
    ),
    "Consumer.arrow_batches": lambda w: (w.consumer.arrow_batches, {"idle_ms_max": 1}),
    "Consumer.assign": lambda w: (w.consumer.assign, {"partitions": [(QUEUE, 0)]}),
    "Consumer.close": lambda w: (w.consumer.close, {"commit": False}),
    "Consumer.commit": lambda w: (w.consumer.commit, {"positions": None}),
    "Consumer.commit_async": lambda w: (
        w.consumer.commit_async,
        {"positions": None, "on_commit": None},
    ),
    "Consumer.committed": lambda w: (w.consumer.committed, {"partitions": None}),
    "Consumer.lag": lambda w: (_spread(w.consumer.lag), {"partition": (QUEUE, 0)}),
    "Consumer.messages": lambda w: (w.consumer.messages, {"idle_ms_max": 1}),
    "Consumer.pause": lambda w: (_spread(w.consumer.pause), {"partition": (QUEUE, 0)}),
    "Consumer.poll": lambda w: (w.consumer.poll, {"timeout_ms": 0, "messages_max": 1}),
    "Consumer.position": lambda w: (w.consumer.position, {"partition": (QUEUE, 0)}),
    "Consumer.reject": lambda w: (
        w.consumer.reject,
        {
            "message": hqueue.ConsumedMessage("t", b"1", w.ids[0], 0, QUEUE),
            "reason": "why",
        },
    ),
    "Consumer.resume": lambda w: (_spread(w.consumer.resume), {"partition": (QUEUE, 0)}),
    "Consumer.seek": lambda w: (w.consumer.seek, {"partition": (QUEUE, 0), "to": w.ids[0]}),
    "Consumer.seek_to_beginning": lambda w: (
        _spread(w.consumer.seek_to_beginning),
        {"partition": (QUEUE, 0)},
    ),
    "Consumer.seek_to_end": lambda w: (_spread(w.consumer.seek_to_end), {"partition": (QUEUE, 0)}),
    "Consumer.subscribe": lambda w: (
        hqueue.Consumer(group="s", client=w.client).subscribe,
        {
            **{"queues": QUEUE, "pattern": None, "topics": ["t"]},
            **{"on_assigned": None, "on_revoked": None, "on_lost": None},
        },
    ),
    "ParallelConsumer": lambda w: (
        hqueue.ParallelConsumer,
        _options(
            ConsumerOptions,
            queues=LEFT_OUT,
            group="other",
            streams=2,
            client=w.client,
        ),
    ),
    "ShareConsumer": lambda w: (
        hqueue.ShareConsumer,
        _options(ShareOptions, queues=QUEUE, group="shares", topics=["t"], client=w.client),
    ),
    **{
        f"ShareConsumer.{answer}": lambda w, answer=answer: (
            _spread(getattr(w.share_consumer, answer)),
            {"partition": w.share_consumer.poll(1_000, 1)[0]},
        )
        for answer in ("acknowledge", "release", "renew")
    },
    "ShareConsumer.reject": lambda w: (
        functools.partial(w.share_consumer.reject, w.share_consumer.poll(1_000, 1)[0]),
        {"reason": "why"},
    ),
    "ShareConsumer.close": lambda w: (w.share_consumer.close, {"acknowledge": False}),
    "ShareConsumer.messages": lambda w: (
        w.share_consumer.messages,
        {"idle_ms_max": 1, "prefetch": 1},
    ),
    "ShareConsumer.poll": lambda w: (
        w.share_consumer.poll,
        {"timeout_ms": 0, "messages_max": 1},
    ),
    "ExactlyOnceProcessor": lambda w: (
        hqueue.ExactlyOnceProcessor,
        _options(
            ConsumerOptions,
            **{"source": QUEUE, "target": QUEUE, "group": "copies", "process": _copied},
            **{"client": w.client, "messages_max": 1},
        ),
    ),
    "ExactlyOnceProcessor.run": lambda w: (
        hqueue.ExactlyOnceProcessor(QUEUE, QUEUE, "copies", _copied, client=w.client).run,
        {"idle_ms_max": 1},
    ),
    "Credential.parse": lambda w: (Credential.parse, {"text": "digest:u:p"}),
    "DeadLetters.delete": lambda w: (
        w.queue.dead_letters.delete,
        {"letters": [dataclasses.replace(w.letter, id=w.ids[0])]},
    ),
    "DeadLetters.put": lambda w: (w.queue.dead_letters.put, {"letters": [w.letter]}),
    "DeadLetters.redrive": lambda w: (w.queue.dead_letters.redrive, {"letters": [w.letter]}),
    "DeadLetters.redriven": lambda w: (
        w.queue.dead_letters.redriven,
        {"message": w.letter.message},
    ),
    "DeadLetters.unwrap": lambda w: (w.queue.dead_letters.unwrap, {"message": w.letter.message}),
    "DeadLetters.waiting": lambda w: (
        w.queue.dead_letters.waiting,
        {
            "subscriber": "s",
            "partition": 0,
            "group": LEFT_OUT,
            "topic": None,
            "reason": None,
            "since": None,
            "until": None,
            "on_unreadable": None,
        },
    ),
    "Delivery.exception": lambda w: (w.delivery.exception, {"timeout_s": 9}),
    "Delivery.result": lambda w: (w.delivery.result, {"timeout_s": 9}),
    "DeliveryAnswer.reject": lambda w: (
        hqueue.DeliveryAnswer().reject,
        {"message": w.letter.message, "reason": ""},
    ),
    "DeliveryAnswer.retry_from": lambda w: (
        hqueue.DeliveryAnswer().retry_from,
        {"message": w.letter.message, "reason": "", "delay_ms": 0},
    ),
    "DeliveryOptions": lambda w: (
        hqueue.DeliveryOptions,
        dict.fromkeys((f.name for f in dataclasses.fields(hqueue.DeliveryOptions)), LEFT_OUT),
    ),
    "GatewayAddress": lambda w: (
        hqueue.GatewayAddress,
        {"host": "h", "thrift1_port": 1, "thrift2_port": 2},
    ),
    "GatewayAddress.parse": lambda w: (hqueue.GatewayAddress.parse, {"text": "h:1/2"}),
    "HubClient.producer": lambda w: (
        w.hubs.producer,
        _options(ProducerOptions, queue=QUEUE),
    ),
    "HubClient.queue": lambda w: (w.hubs.queue, {"name": QUEUE}),
    "HubClient.topic": lambda w: (w.hubs.topic, {"name": "t", "queue": QUEUE}),
    "HubClientSettings": lambda w: (
        hqueue.HubClientSettings,
        {
            **dict.fromkeys(
                (f.name for f in dataclasses.fields(hqueue.HubClientSettings)), LEFT_OUT
            ),
            "hubs": "host:1",
        },
    ),
    "HubProducer.close": lambda w: (w.hubs.producer().close, {"timeout_s": 1}),
    "HubProducer.flush": lambda w: (w.hubs.producer().flush, {"timeout_s": 1}),
    "HubProducer.send": lambda w: (
        w.hubs.producer().send,
        {"message": Message("t", b"v"), "callback": None},
    ),
    "HubQueue.put": lambda w: (
        w.hubs.queue().put,
        {
            **{"messages": Message("t", b"v"), "partition": 0, "key": LEFT_OUT},
            **{"idempotency_key": "once", "since": 0},
        },
    ),
    "HubQueue.scan": lambda w: (
        w.hubs.queue().scan,
        {"partition": 0, "start": None, "stop": None, "topics": ["t"]},
    ),
    "HubTopic.messages": lambda w: (
        w.topic.messages,
        {
            **{"subscriber": "s", "preferences": None},
            **{"mode": hqueue.SubscribeMode.CREATE, "host": "127.0.0.1", "port": 0},
        },
    ),
    "HubTopic.move": lambda w: (w.topic.move, {"to": "host:1"}),
    "HubTopic.last_sequence_number": lambda w: (w.topic.last_sequence_number, {"since": None}),
    "HubTopic.publish": lambda w: (w.topic.publish, {"message": b"v"}),
    "HubTopic.publish_idempotent": lambda w: (
        w.topic.publish_idempotent,
        {"messages": [b"v"], "sequence_number": 0, "since": None},
    ),
    "HubTopic.publish_many": lambda w: (w.topic.publish_many, {"messages": [b"v"]}),
    "HubTopic.set_acl": lambda w: (
        w.topic.set_acl,
        {"publish": ["a"], "subscribe": None, "manage": None},
    ),
    "HubTopic.subscribe": lambda w: (
        w.topic.subscribe,
        {
            **{"subscriber": "s", "listener": print, "explicit_ack": False},
            **{"mode": hqueue.SubscribeMode.CREATE, "preferences": None},
            **{"host": "127.0.0.1", "port": 0},
        },
    ),
    "HubTopic.unsubscribe": lambda w: (w.topic.unsubscribe, {"subscriber": "s"}),
    **{
        f"{kind}.header": lambda w: (w.letter.message.header, {"name": "n"})
        for kind in ("Message", "ReceivedMessage", "ConsumedMessage")
    },
    **{
        f"{kind}.delayed": lambda w: (w.letter.message.delayed, {"until": 1_700_000_000_000})
        for kind in ("Message", "ReceivedMessage", "ConsumedMessage")
    },
    "Message": lambda w: (Message, {"topic": "t", "value": b"", "key": b"", "headers": ()}),
    "MessageID": lambda w: (MessageID, {"timestamp": 1, "sequence": 0}),
    "MessageID.from_int": lambda w: (MessageID.from_int, {"value": 1}),
    "MessageID.parse": lambda w: (MessageID.parse, {"text": "1-2"}),
    "MessageIDs": lambda w: (MessageIDs, {"first": 1, "count": 1}),
    "Messages": lambda w: (
        hqueue.Messages,
        {"topic": "t", "values": [b"v"], "keys": [b"k"], "headers": [()]},
    ),
    "Producer.close": lambda w: (w.queue.producer().close, {"timeout_s": 1}),
    "Producer.flush": lambda w: (w.producer.flush, {"timeout_s": 1}),
    "Producer.send": lambda w: (
        w.producer.send,
        {"message": Message("t", b"v"), "partition": 0, "key": LEFT_OUT, "callback": None},
    ),
    "Producer.send_batch": lambda w: (
        w.producer.send_batch,
        {"messages": [Message("t", b"v")], "partition": 0, "key": LEFT_OUT},
    ),
    "Producer.send_value": lambda w: (
        w.producer.send_value,
        {"topic": "t", "value": b"v", "partition": 0, "key": LEFT_OUT, "callback": None},
    ),
    "Queue.appended_since": lambda w: (w.queue.appended_since, {"offsets": w.queue.offsets()}),
    "Queue.verify": lambda w: (w.queue.verify, {"partitions": [0], "ranges": None}),
    "Queue.choose_partition": lambda w: (
        w.queue.choose_partition,
        {"partition": None, "key": None},
    ),
    "Queue.claim_epoch": lambda w: (w.queue.claim_epoch, {"producer": "p", "epoch": 0}),
    "Queue.combined_partition_scanner": lambda w: (
        w.queue.combined_partition_scanner,
        _options(ScannerOptions, scans={0: Scan()}),
    ),
    "Queue.count_before": lambda w: (
        w.queue.count_before,
        {"partition": 0, "message_id": w.ids[1]},
    ),
    "Queue.current_epoch": lambda w: (w.queue.current_epoch, {"producer": "p"}),
    "Queue.expiry": lambda w: (
        w.queue.expiry,
        {"partition": 0, "guess": w.ids[0], "exact_ms": 1_000},
    ),
    "Queue.headers": lambda w: (w.queue.headers, {"partition": 0, "start": 0, "stop": None}),
    "Queue.id_at": lambda w: (w.queue.id_at, {"partition": 0, "ordinal": 1}),
    "Queue.lag": lambda w: (w.queue.lag, {"positions": {0: w.ids[0]}}),
    "Queue.offsets": lambda w: (w.queue.offsets, {"partitions": [0]}),
    "Queue.partition_scanner": lambda w: (
        w.queue.partition_scanner,
        _options(ScannerOptions, partition=0, scan=Scan()),
    ),
    "Queue.producer": lambda w: (w.queue.producer, _options(ProducerOptions)),
    "Queue.put": lambda w: (
        w.queue.put,
        {
            **{"messages": [Message("t", b"v")], "partition": 0, "key": LEFT_OUT},
            **{"idempotency_key": "once", "since": 0},
        },
    ),
    "Queue.queue_scanner": lambda w: (
        w.queue.queue_scanner,
        _options(ScannerOptions, scan=Scan()),
    ),
    "Queue.reader": lambda w: (w.queue.reader, {"partition": 0, "scan": Scan(), "bytes_max": 9}),
    "Queue.scan": lambda w: (
        w.queue.scan,
        _options(ScannerOptions, partition=None, partitions=[0], start=0, topics=["t"]),
    ),
    "Queue.scan_topic": lambda w: (
        w.queue.scan_topic,
        {"topic": "t", "start": 0, "stop": None, "bytes_max": 1, "whole": False},
    ),
    "Queue.topic_lags": lambda w: (
        w.queue.topic_lags,
        {"topic": "t", "positions": {"s": w.ids[0]}},
    ),
    "Queue.subscriber": lambda w: (
        w.queue.subscriber,
        _options(
            SubscriberOptions,
            subscription=Subscription("new"),
            listeners=print,
            host="127.0.0.1",
        ),
    ),
    "Queue.topics": lambda w: (w.queue.topics, {"start": 0, "topics_max": 1}),
    "ReceivedMessage": lambda w: (
        hqueue.ReceivedMessage,
        {
            **{"topic": "t", "value": b"", "id": w.ids[0], "partition": 0},
            **{"key": b"k", "headers": ()},
        },
    ),
    "Scan": lambda w: (Scan, {"start": 0, "stop": None, "topics": ["t"]}),
    "Scan.add_topic": lambda w: (Scan().add_topic, {"topic": "t"}),
    "Settings": lambda w: (hqueue.Settings, _options(ConnectOptions)),
    "Settings.load": lambda w: (hqueue.Settings.load, {"arguments": {}, "environ": {}}),
    "SkippedBatches.add": lambda w: (w.queue.skipped_batches.add, {"row": "00"}),
    "SkippedBatches.remove": lambda w: (w.queue.skipped_batches.remove, {"row": "00"}),
    "Subscriber.stop": lambda w: (w.subscriber.stop, {"reason": ""}),
    "Subscriber.wait": lambda w: (w.subscriber.wait, {"timeout_s": 0}),
    "Subscription": lambda w: (
        Subscription,
        {"name": "s", "topics": ["t"], "start": 0, "reset": False, "delivery": None},
    ),
    "Subscription.add_partition": lambda w: (
        Subscription("s").add_partition,
        {"partition": 0, "start": None},
    ),
    "Subscription.add_partitions": lambda w: (
        Subscription("s").add_partitions,
        {"partitions": {0: None}},
    ),
    "Subscription.starts": lambda w: (Subscription("s").starts, {"partitions": 2}),
    "SubscriptionPreferences": lambda w: (
        hqueue.SubscriptionPreferences,
        {
            **{"message_bound": 1, "consume_interval": 1, "delivery_window": 1},
            **{"application": {"a": "b"}, "unanswered_calls_max": 1},
        },
    ),
    "TopicACL": lambda w: (
        hqueue.TopicACL,
        {"publish": ["a"], "subscribe": ["a"], "manage": ["a"]},
    ),
    "connect": lambda w: (
        _connect,
        _options(ConnectOptions, settings=LEFT_OUT),
    ),
    "connect_hubs": lambda w: (
        _connect_hubs,
        _options(HubOptions, hubs="127.0.0.1:1"),
    ),
    "is_reserved": lambda w: (hqueue.is_reserved, {"name": "t"}),
}

UNTRIED = {"Clock", "ConsumerStream", "Deadline", "MessageListener", "TopicSubscription"}
"""What users override or are only given; what needs a hub; `Consumer` has a stream's methods."""

CURSORS = {
    *(
        "Fetch",
        "Fetcher",
        "Pace",
        "PartitionReader",
        "Skips",
        "fetch_once",
        "messages_of",
        "Queue.poll",
    ),
}
"""What readers are built of. Their arguments are what the library made: to look at each for each
batch would cost time."""


def _copied(message: hqueue.ReceivedMessage) -> list[Message]:
    return []


def _connect(**given: object) -> None:
    hqueue.connect(**given).close()  # type: ignore[arg-type]


def _connect_hubs(**given: object) -> None:
    hqueue.connect_hubs(**given).close()  # type: ignore[arg-type]


def _spread(method: Callable[..., object]) -> Callable[..., object]:
    """What takes any number of arguments, with one."""
    return lambda partition: method(*[partition])


def _is_record(kind: type) -> bool:
    """Whether objects of a class only say what was found: nothing takes them apart."""
    return issubclass(kind, tuple) or dataclasses.is_dataclass(kind)


def _takes(function: object) -> bool:
    return any(name not in {"self", "cls"} for name in inspect.signature(function).parameters)  # type: ignore[arg-type]


def public_callables() -> set[str]:
    """Every function, class and method that is public and takes something."""
    found = set()
    for name in hqueue.__all__:
        item = getattr(importlib.import_module("hqueue"), name)
        if inspect.isfunction(item):
            found.add(name)
        if not inspect.isclass(item) or name in UNTRIED or issubclass(item, (dict, Exception)):
            continue
        if hasattr(item, "__members__"):
            continue
        made = re.search(r"Made\s+by", item.__doc__ or "")
        if not made and (name in CALLS or not _is_record(item)) and _takes(item):
            found.add(name)
        for method, value in inspect.getmembers(item, callable):
            ours = getattr(value, "__module__", None) or ""
            if method.startswith("_") or not ours.startswith("hqueue") or inspect.isclass(value):
                continue
            if _takes(value):
                found.add(f"{name}.{method}")
    return {each for each in found if each not in CURSORS and each.partition(".")[0] not in CURSORS}


def test_every_public_callable_is_tried() -> None:
    inherited = {
        *{"Scanner", "QueueScanner", "PartitionScanner", "CombinedPartitionScanner"},
        "TopicScanner",
        "ParallelConsumer",
    }
    untried = public_callables() - CALLS.keys()
    assert {each for each in untried if each.partition(".")[0] not in inherited} == set()


def _use(result: object) -> None:
    """Use what a call gave."""
    if isinstance(result, hqueue.Subscriber):
        with result:
            return
    if isinstance(result, AsyncIterator):
        asyncio.run(_first(result))
    elif isinstance(result, Iterator) or hasattr(result, "arrow_batches"):
        with contextlib.closing(result) if hasattr(result, "close") else contextlib.nullcontext():
            list(itertools.islice(result, 3))  # type: ignore[call-overload]
    elif isinstance(result, hqueue.Delivery):
        result.exception(9)
    elif isinstance(
        result,
        (
            *(hqueue.Consumer, hqueue.ParallelConsumer, hqueue.ShareConsumer),
            *(hqueue.Producer, hqueue.HubProducer),
        ),
    ):
        result.close()


async def _first(result: AsyncIterator[object]) -> None:
    async with contextlib.aclosing(result):  # type: ignore[type-var]
        await anext(result)


def _waits(name: str, argument: str, value: object) -> bool:
    """Whether a value means, as is documented, that the call waits for long, or for ever."""
    if argument == "follow":
        return value is True
    if name in ("ExactlyOnceProcessor", "ShareConsumer") and argument == "client":
        return value is None  # It connects to HBase, which is not here.
    if argument in ("timeout_ms", "timeout_s", "idle_ms_max"):
        for_ever = value is None and name in (
            "Subscriber.wait",
            "Consumer.messages",
            "Consumer.arrow_batches",
            "ShareConsumer.messages",
            "ExactlyOnceProcessor.run",
        )
        return for_ever or (
            isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
        )
    return False


@pytest.mark.parametrize("name", sorted(CALLS))
def test_wrong_values_end_in_an_error_of_ours_or_do_what_is_documented(name: str) -> None:
    with contextlib.ExitStack() as stack:
        world = World(stack)
        function, good = CALLS[name](world)
        raised: list[str] = []
        for argument in good:
            for make in VALUES:
                value = make()
                if _waits(name, argument, value):
                    continue
                given = {k: v for k, v in good.items() if v is not LEFT_OUT}
                given[argument] = value
                if (
                    argument == "key"
                    and good["key"] is LEFT_OUT
                    and name != "Queue.choose_partition"
                ):
                    given.pop("partition", None)
                try:
                    _use(function(**given))
                except HQueueError:
                    pass
                except Exception as exc:
                    raised.append(f"{argument}={value!r:.60}: {exc!r:.150}")
        assert not raised, "\n".join(raised)
