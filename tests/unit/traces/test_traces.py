"""Contexts of traces travel in messages, and what a program does becomes spans."""

from __future__ import annotations

import asyncio
import importlib.metadata
import subprocess
import sys
from collections.abc import Callable, Sequence

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

import hqueue
import hqueue.aio
import hqueue.traces
from hqueue import InvalidInputError, Message, Messages, ReceivedMessage, Status
from hqueue.push.listener import Listeners
from hqueue.traces.propagation import INJECTED_MAX
from tests.support.traces import Traces, carried, linked, span_ids

MakeQueue = Callable[..., hqueue.Queue]
PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.in_memory_first
def test_a_put_travels_to_its_consumer(
    traces: Traces, make_queue: MakeQueue, client: hqueue.Client
) -> None:
    queue = make_queue()
    with traces.tracer.start_as_current_span("request") as request:
        put_id = queue.put(Message("t", b"v", headers=[("own", b"1")]), partition=0)
    with hqueue.Consumer(queue.name, group=queue.name, client=client) as consumer:
        (message,) = consumer.poll(30_000)
        consumer.commit()
    put = traces.one(f"put {queue.name}")
    assert put.parent is not None
    assert put.parent.span_id == request.get_span_context().span_id
    assert put.kind is SpanKind.PRODUCER
    assert message.headers[0] == ("own", b"1")
    assert carried(message) == span_ids(put)
    assert dict(put.attributes or {}) == {
        "messaging.system": "hqueue",
        "messaging.operation.name": "put",
        "messaging.operation.type": "send",
        "messaging.destination.name": queue.name,
        "messaging.destination.partition.id": "0",
        "messaging.message.id": str(put_id),
    }
    received = traces.one(f"receive {queue.name}")
    assert (received.kind, linked(received)) == (SpanKind.CLIENT, [span_ids(put)])
    assert dict(received.attributes or {}) == {
        "messaging.system": "hqueue",
        "messaging.operation.name": "receive",
        "messaging.operation.type": "receive",
        "messaging.destination.name": queue.name,
        "messaging.destination.partition.id": "0",
        "messaging.consumer.group.name": queue.name,
        "messaging.message.id": str(put_id),
    }
    settled = traces.named(f"commit {queue.name}")[0].attributes or {}
    assert settled["messaging.operation.type"] == "settle"
    with hqueue.traces.processing(message) as span:
        assert span is not None
    processed = traces.one(f"process {queue.name}")
    assert processed.kind is SpanKind.CONSUMER
    assert processed.parent is not None
    assert (processed.parent.trace_id, processed.parent.span_id) == span_ids(put)


@pytest.mark.in_memory
def test_a_put_of_a_list_names_the_id_of_its_only_message(
    traces: Traces, make_queue: MakeQueue
) -> None:
    queue = make_queue()
    (put_id,) = queue.put([Message("t", b"v")])
    queue.put([Message("t", b"v"), Message("t", b"w")])
    alone, two = (dict(each.attributes or {}) for each in traces.named(f"put {queue.name}"))
    assert alone["messaging.message.id"] == str(put_id)
    assert "messaging.batch.message_count" not in alone
    assert "messaging.message.id" not in two
    assert two["messaging.batch.message_count"] == 2


@pytest.mark.in_memory
def test_a_producer_keeps_the_context_of_each_message(
    traces: Traces, make_queue: MakeQueue
) -> None:
    queue = make_queue()
    requests = []
    with queue.producer(linger_ms=200) as producer:
        for index in range(3):
            with traces.tracer.start_as_current_span(f"request {index}") as request:
                requests.append(request.get_span_context().trace_id)
                if index == 2:
                    producer.send_value("t", b"v")
                else:
                    producer.send(Message("t", b"v", b"key"), partition=0)
    with queue.scan() as scanner:
        messages = list(scanner)
    created = traces.named(f"create {queue.name}")
    assert [span_ids(each)[0] for each in created] == requests
    assert sorted(map(carried, messages)) == sorted(map(span_ids, created))
    sent = [each for span in traces.named(f"put {queue.name}") for each in linked(span)]
    assert sorted(sent) == sorted(map(span_ids, created))
    assert {each.kind for each in traces.named(f"put {queue.name}")} == {SpanKind.CLIENT}


@pytest.mark.in_memory
def test_the_program_s_own_context_wins(traces: Traces, make_queue: MakeQueue) -> None:
    queue = make_queue()
    own = Message("t", b"v", headers=[("traceparent", PARENT), ("tracestate", b"a=b")])
    queue.put([own, Message("t", b"w")])
    with queue.scan() as scanner:
        first, second = scanner
    assert first.headers == own.headers
    put = traces.one(f"put {queue.name}")
    assert carried(second) == span_ids(put)
    assert linked(put) == [carried(own)]


@pytest.mark.in_memory
@pytest.mark.parametrize(
    "value", [b"", b"00-0-0-00", b"\xff" * 55, b"0" * 100_000, PARENT.replace(b"0af7", b"----")]
)
def test_a_damaged_context_is_ignored_and_kept(
    traces: Traces, make_queue: MakeQueue, client: hqueue.Client, value: bytes
) -> None:
    queue = make_queue()
    damaged = Message("t", b"v", headers=[("traceparent", value)])
    queue.put(damaged)
    with hqueue.Consumer(queue.name, group=queue.name, client=client) as consumer:
        (message,) = consumer.poll(30_000)
    assert message.headers == damaged.headers
    assert hqueue.traces.context_of(message) is None
    assert linked(traces.one(f"receive {queue.name}")) == []
    with hqueue.traces.processing(message):
        pass
    assert traces.one(f"process {queue.name}").parent is None


@pytest.mark.in_memory
def test_large_and_columnar_batches_are_put_as_they_are(
    traces: Traces, make_queue: MakeQueue, client: hqueue.Client
) -> None:
    queue = make_queue()
    count = INJECTED_MAX + 1
    queue.put([Message("t", b"v")] * count)
    queue.put(Messages("t", [b"v"] * 3))
    queue.put([Message("t", b"v" * 3_000_000), Message("t", b"v" * 3_000_000)])
    with hqueue.Consumer(queue.name, group=queue.name, client=client) as consumer:
        messages = [*consumer.messages(idle_ms_max=1_000)]
    assert len(messages) == count + 5
    assert not any(message.headers for message in messages)
    puts = [span.attributes or {} for span in traces.named(f"put {queue.name}")]
    assert [each["messaging.batch.message_count"] for each in puts] == [count, 3, 2]


@pytest.mark.in_memory
def test_a_batch_has_one_span_and_bounded_links(
    traces: Traces, make_queue: MakeQueue, client: hqueue.Client
) -> None:
    queue = make_queue()
    with queue.producer(linger_ms=500) as producer:
        for _ in range(300):
            producer.send_value("t", b"v", partition=0)
    with hqueue.Consumer(queue.name, group=queue.name, client=client) as consumer:
        assert len([*consumer.messages(idle_ms_max=1_000)]) == 300
    received = traces.named(f"receive {queue.name}")
    assert len(received) < 20
    counts = [(each.attributes or {}).get("messaging.batch.message_count", 1) for each in received]
    assert sum(map(int, counts)) == 300
    assert max(len(each.links) for each in received) <= 128


@pytest.mark.in_memory
def test_an_idempotent_put_has_a_span_and_no_header(traces: Traces, make_queue: MakeQueue) -> None:
    queue = make_queue()
    message = Message("t", b"v")
    first = queue.put(message, partition=0, idempotency_key="k")
    assert queue.put(message, partition=0, idempotency_key="k") == first
    with queue.scan() as scanner:
        assert [each.headers for each in scanner] == [()]
    assert len(traces.named(f"put {queue.name}")) == 2


@pytest.mark.in_memory
def test_an_error_is_in_its_span(traces: Traces, make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.close()
    with pytest.raises(hqueue.ClosedError):
        queue.put(Message("t", b"v"))
    put = traces.one(f"put {queue.name}")
    assert put.status.status_code is StatusCode.ERROR
    assert (put.attributes or {})["error.type"] == "ClosedError"


@pytest.mark.in_memory
def test_share_groups_have_spans_too(
    traces: Traces, make_queue: MakeQueue, client: hqueue.Client
) -> None:
    queue = make_queue()
    queue.put(Message("t", b"v"))
    with hqueue.ShareConsumer(
        queue.name, group=queue.name, client=client, auto_acknowledge=False
    ) as consumer:
        (message,) = consumer.poll(30_000)
        consumer.acknowledge(message)
        consumer.commit()
    put = traces.one(f"put {queue.name}")
    assert [linked(each) for each in traces.named(f"receive {queue.name}")] == [[span_ids(put)]]
    settled = traces.named(f"acknowledge {queue.name}")
    assert settled
    assert (settled[0].attributes or {})["messaging.consumer.group.name"] == queue.name


@pytest.mark.in_memory
def test_asyncio_has_the_same_spans(
    traces: Traces, make_queue: MakeQueue, client: hqueue.Client
) -> None:
    queue = make_queue()

    async def run() -> None:
        opened = hqueue.aio.Client(client)
        there = await opened.queue(queue.name)
        with traces.tracer.start_as_current_span("request"):
            await there.put(Message("t", b"1"))
            async with there.producer() as producer:
                await producer.send(Message("t", b"2"))
        async with hqueue.aio.Consumer(queue.name, group=queue.name, client=opened) as consumer:
            received = [each async for each in consumer.messages(idle_ms_max=1_000)]
            await consumer.commit()
        assert len(received) == 2
        request = traces.one("request")
        assert {carried(each)[0] for each in received} == {span_ids(request)[0]}

    asyncio.run(run())
    assert traces.named(f"create {queue.name}")
    assert traces.named(f"receive {queue.name}")
    assert traces.named(f"commit {queue.name}")


def test_a_listener_runs_in_a_span_of_the_message_s_trace(traces: Traces) -> None:
    current = []

    def listener(messages: Sequence[ReceivedMessage]) -> Status:
        current.append(trace.get_current_span().get_span_context().trace_id)
        return Status.DONE

    async def async_listener(messages: Sequence[ReceivedMessage]) -> Status:
        return listener(messages)

    message = ReceivedMessage(
        "t", b"v", hqueue.MessageID(1, 1), 3, headers=[("traceparent", PARENT)]
    )
    listeners = Listeners([listener, async_listener], 30_000, "reader")
    listeners.start()
    try:
        listeners.consume([message])
    finally:
        listeners.close()
    assert current == [carried(message)[0]] * 2
    processed = traces.one("process reader")
    assert processed.kind is SpanKind.CONSUMER
    assert linked(processed) == [carried(message)]
    assert (processed.attributes or {})["messaging.destination.partition.id"] == "3"


def test_opentelemetry_instrument_finds_the_entry_point() -> None:
    (found,) = importlib.metadata.entry_points(group="opentelemetry_instrumentor", name="hqueue")
    assert found.load() is hqueue.traces.Instrumentor


def test_traces_are_enabled_once(traces: Traces) -> None:
    with pytest.raises(InvalidInputError, match="enabled already"):
        hqueue.traces.enable(traces.provider)
    hqueue.traces.Instrumentor().instrument(tracer_provider=traces.provider)


@pytest.mark.in_memory
def test_without_a_call_nothing_is_traced(make_queue: MakeQueue) -> None:
    queue = make_queue()
    made = Traces()
    with made.tracer.start_as_current_span("request"):
        queue.put(Message("t", b"v"))
    with queue.scan() as scanner:
        (message,) = scanner
    assert message.headers == ()
    with hqueue.traces.processing(message) as span:
        assert span is None


def test_without_the_extra_an_error_says_what_to_install() -> None:
    code = """
import sys
sys.modules["opentelemetry"] = None
import hqueue.traces
try:
    hqueue.traces.enable()
except hqueue.InvalidInputError as exc:
    print(exc)
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert "'hqueue-hbase[traces]'" in ended.stdout
