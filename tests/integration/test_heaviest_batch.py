"""The heaviest batch that may be put: whatever takes it in gives it to every reader."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

import hqueue
from hqueue import Message, Subscription
from hqueue.metadata import DeliveryOptions
from hqueue.settings.limits import BATCH_HEADERS_MAX
from tests.support.apache_thrift import ApacheClient
from tests.support.backends import Backend
from tests.support.hubs import HubThread
from tests.support.waiting import wait_for

from .pushing import Received
from .test_thrift_api import API, drained, fields

WAIT_S = 240.0
EMPTY = ("", b"")

HEAVY = pytest.mark.thorough("millions of headers, 5 s of each case's computing")

BATCHES: dict[str, tuple[int, int]] = {
    "one message with all headers": (1, BATCH_HEADERS_MAX),
    "messages with many": (8, BATCH_HEADERS_MAX // 8),
}
"""How many messages, and how many headers each has."""


@HEAVY
@pytest.mark.in_memory_first
@pytest.mark.parametrize("kind", BATCHES)
def test_it_is_put_and_published_and_delivered_by_workers_and_hubs(
    backend: Backend,
    make: Callable[..., hqueue.Queue],
    start: Callable[..., Any],
    kind: str,
) -> None:
    count, headers = BATCHES[kind]
    batch = [Message("t", b"%d" % n, headers=[EMPTY] * headers) for n in range(count)]
    queue = make(1)
    start()
    pushed, by_hub = Received(), Received()
    with contextlib.ExitStack() as stack:
        hub = stack.enter_context(HubThread(stack.enter_context(backend.connect()), queue.name))
        publisher = stack.enter_context(
            hqueue.connect_hubs(str(hub.address), queue=queue.name, publisher="p")
        )
        stack.enter_context(publisher.topic("t").subscribe("sub", by_hub, host="127.0.0.1"))
        # Several batches go into one call, if they fit.
        delivery = DeliveryOptions(timeout_ms=300_000, batch_bytes_max=8 * 1024 * 1024)
        subscription = Subscription("s", delivery=delivery)
        stack.enter_context(queue.subscriber(subscription, pushed, host="127.0.0.1"))
        for _ in range(2):
            queue.put(batch)
        publisher.topic("t").publish_many(batch)
        publisher.topic("t").publish_idempotent(batch, sequence_number=0)
        publisher.topic("t").publish(b"last")
        wait_for(lambda: len(pushed.values) == 4 * count + 1, "all are pushed", timeout_s=WAIT_S)
        wait_for(lambda: len(by_hub.values) == 2 * count + 1, "a hub gave all", timeout_s=WAIT_S)
    every = list(queue.scan())
    assert pushed.messages == every
    assert by_hub.messages == every[2 * count :]


@HEAVY
@pytest.mark.in_memory_first
def test_it_is_put_and_read_by_the_thrift_api(
    make: Callable[..., hqueue.Queue], start: Callable[..., Any]
) -> None:
    queue = make(1)
    queue.put(Message("t", b"put", headers=[EMPTY] * BATCH_HEADERS_MAX))
    served = start(push=False, api_port=0)
    with ApacheClient(*served.api_address()) as caller:
        header = API.THeader(name=b"", value=b"")
        heavy = API.TMessage(topic=b"t", value=b"called", headers=[header] * BATCH_HEADERS_MAX)
        caller.putMessage(queue.name, heavy)
        heavy.headers.append(header)
        with pytest.raises(API.TIllegalArgument):
            caller.putMessage(queue.name, heavy)
        scanner = caller.messageScannerOpen(queue.name, 0, API.TMessageScan())
        assert [fields(each) for each in drained(caller, scanner)] == [
            tuple(each) for each in queue.scan()
        ]
