"""Spans of what producers, consumers, subscribers and workers do, by OpenTelemetry's conventions
for messaging.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, use_span

from hqueue.errors import HQueueError
from hqueue.message import ConsumedMessage, Headers, Message, ReceivedMessage
from hqueue.message_id import MessageID, MessageIDs
from hqueue.traces.propagation import (
    BYTES_MAX,
    context_in,
    has_context,
    headers_of,
    injected,
    links_to,
)
from hqueue.watching.observer import FIRST_MAX, End, Observer

__all__ = ["Spans"]

Attributes = dict[str, "str | int"]


class Spans(Observer):
    """Makes spans, and puts their contexts into messages. Thread-safe.

    Args:
        tracer: makes the spans.
    """

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def put(
        self,
        queue: str,
        messages: Sequence[Message],
        count: int,
        partition: int | None,
        *,
        changeable: bool,
    ) -> tuple[Sequence[Message], End]:
        links = links_to(messages[:FIRST_MAX])
        attributes = _attributes("put", "send", queue, count)
        if partition is not None:
            attributes["messaging.destination.partition.id"] = str(partition)
        creates = changeable and not all(has_context(each.headers) for each in messages)
        span = self._tracer.start_span(
            f"put {queue}",
            kind=SpanKind.PRODUCER if creates else SpanKind.CLIENT,
            attributes=attributes,
            links=links,
        )
        if creates:
            messages = injected(messages, headers_of(span))

        def end(ids: Any, error: BaseException | None) -> None:
            if isinstance(ids, MessageIDs) and len(ids) == 1:
                ids = ids[0]
            if isinstance(ids, MessageID):
                span.set_attribute("messaging.message.id", str(ids))
            _end(span, error)

        return messages, end

    def create(self, queue: str, headers: Headers, size: int) -> Headers:
        if size > BYTES_MAX or has_context(headers):
            return headers
        span = self._tracer.start_span(
            f"create {queue}".rstrip(),
            kind=SpanKind.PRODUCER,
            attributes=_attributes("create", "create", queue, 1),
        )
        span.end()
        return (*headers, *headers_of(span))

    def received(
        self, queue: str, group: str | None, first: Sequence[ReceivedMessage], count: int
    ) -> None:
        attributes = _attributes("receive", "receive", queue, count)
        if group is not None:
            attributes["messaging.consumer.group.name"] = group
        _note_messages(attributes, first, count)
        self._tracer.start_span(
            f"receive {queue}",
            kind=SpanKind.CLIENT,
            attributes=attributes,
            links=links_to(first[:FIRST_MAX]),
        ).end()

    def settle(self, queue: str, group: str, answer: str, count: int) -> End:
        attributes = _attributes(answer, "settle", queue, count)
        attributes["messaging.consumer.group.name"] = group
        span = self._tracer.start_span(
            f"{answer} {queue or group}", kind=SpanKind.CLIENT, attributes=attributes
        )
        return lambda result, error: _end(span, error)

    def consuming(
        self, messages: Sequence[ReceivedMessage]
    ) -> contextlib.AbstractContextManager[Span]:
        """A span for the block in which a program processes messages that it was given."""
        first = messages[0]
        queue = first.queue if isinstance(first, ConsumedMessage) else ""
        attributes = _attributes("process", "process", queue, len(messages))
        return self.processing(f"process {queue}".rstrip(), attributes, messages)

    @contextlib.contextmanager
    def process(self, subscriber: str, messages: Sequence[ReceivedMessage]) -> Iterator[None]:
        attributes = _attributes("process", "process", "", len(messages))
        attributes["messaging.destination.subscription.name"] = subscriber
        with self.processing(f"process {subscriber}", attributes, messages):
            yield

    @contextlib.contextmanager
    def processing(
        self,
        name: str,
        attributes: Attributes,
        messages: Sequence[ReceivedMessage],
    ) -> Iterator[Span]:
        """A span for the processing of messages, which is the current one in the block. Its parent
        is the context of the message if there is one message alone.
        """
        _note_messages(attributes, messages, len(messages))
        parent: Context | None = None
        if len(messages) == 1:
            parent = context_in(messages[0].headers)
        span = self._tracer.start_span(
            name,
            context=parent,
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=links_to(messages[:FIRST_MAX]),
        )
        with use_span(span, end_on_exit=True, record_exception=True, set_status_on_exception=True):
            yield span

    def deliver(self, queue: str, subscriber: str, call: Any) -> End:
        attributes = _attributes("deliver", "send", queue, call.count)
        attributes["messaging.destination.subscription.name"] = subscriber
        span = self._tracer.start_span(
            f"deliver {queue}",
            kind=SpanKind.CLIENT,
            attributes=attributes,
            links=links_to(call.messages(FIRST_MAX)),
        )
        return lambda result, error: _end(span, error)


def _attributes(name: str, kind: str, queue: str, count: int) -> Attributes:
    attributes: Attributes = {
        "messaging.system": "hqueue",
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
    }
    if queue:
        attributes["messaging.destination.name"] = queue
    if count != 1:
        attributes["messaging.batch.message_count"] = count
    return attributes


def _note_messages(attributes: Attributes, first: Sequence[ReceivedMessage], count: int) -> None:
    if first:
        attributes["messaging.destination.partition.id"] = str(first[0].partition)
    if count == 1 and first:
        attributes["messaging.message.id"] = str(first[0].id)


def _end(span: Span, error: BaseException | None) -> None:
    if error is not None:
        span.set_attribute("error.type", type(error).__name__)
        # The text has no payload: errors of the library never do.
        text = str(error) if isinstance(error, HQueueError) else type(error).__name__
        span.set_status(Status(StatusCode.ERROR, text))
    span.end()
