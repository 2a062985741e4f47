"""A trace of a message that is published to a hub, delivered and processed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from opentelemetry import trace

import hqueue
import hqueue.traces
from hqueue import Message, ReceivedMessage, Status
from tests.support.backends import MemoryBackend
from tests.support.hubs import HubThread
from tests.support.traces import Traces, carried, linked, span_ids
from tests.support.waiting import wait_for

QUEUE = "q"


@pytest.mark.parametrize("value", [b"v", Message("topic", b"v", b"key")])
def test_a_publish_travels_by_its_hub_to_the_subscriber(
    traces: Traces, value: bytes | Message
) -> None:
    came: list[ReceivedMessage] = []
    current: list[int] = []

    def listener(messages: Sequence[ReceivedMessage]) -> Status:
        current.append(trace.get_current_span().get_span_context().trace_id)
        came.extend(messages)
        return Status.DONE

    backend = MemoryBackend()
    with backend.connect() as client:
        client.create_queue(QUEUE, partitions=1)
    with (
        backend.connect() as own,
        HubThread(own, QUEUE) as hub,
        hqueue.connect_hubs([hub.address], queue=QUEUE, operation_timeout_ms=60_000) as hubs,
    ):
        topic = hubs.topic("topic")
        with topic.subscribe("reader", listener):
            with traces.tracer.start_as_current_span("request"):
                topic.publish(value)
            wait_for(lambda: traces.named(f"deliver {QUEUE}"), "the message is delivered")
        with hubs.producer() as producer:
            producer.send(Message("topic", b"w"))
    request = traces.one("request")
    first, second = traces.named(f"put {QUEUE}")
    assert carried(came[0]) == span_ids(first)
    assert span_ids(first)[0] == span_ids(request)[0]
    assert current == [span_ids(request)[0]]
    assert linked(second) == [span_ids(traces.one("create"))]
    delivered = traces.named(f"deliver {QUEUE}")
    assert [linked(each) for each in delivered] == [[span_ids(first)]]
    assert (delivered[0].attributes or {})["messaging.destination.subscription.name"] == "reader"
    assert linked(traces.one("process reader")) == [span_ids(first)]
