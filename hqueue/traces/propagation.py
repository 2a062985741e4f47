"""Contexts of traces in the headers of messages: W3C's ``traceparent`` and ``tracestate``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from hqueue.message import Headers, Message, ReceivedMessage
from hqueue.settings.limits import BATCH_BYTES_MAX, BATCH_HEADERS_MAX
from hqueue.settings.reserved import unreserved

__all__ = ["INJECTED_MAX", "context_in", "has_context", "headers_of", "injected", "links_to"]

PARENT, STATE = "traceparent", "tracestate"
VALUE_BYTES_MAX = 512
"""A longer value is ignored, as a damaged one is."""
INJECTED_MAX = 1_000
"""A larger batch is put as it is: its headers would cost more than its trace is worth."""
BYTES_MAX = BATCH_BYTES_MAX // 2
"""So are messages with more bytes together, so that headers never make a batch too large."""

_W3C = TraceContextTextMapPropagator()


def has_context(headers: Headers) -> bool:
    """Whether a message has a context of its own, damaged or not: it stays as it is."""
    return any(name.lower() in (PARENT, STATE) for name, _ in headers)


def headers_of(span: Span) -> Headers:
    """The headers that carry the context of a span; none if the span has no valid context."""
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, set_span_in_context(span, Context()))
    return tuple((name, value.encode()) for name, value in carrier.items())


def context_in(headers: Headers) -> Context | None:
    """The context that a message's headers carry; None if they carry none, or a damaged one."""
    carrier = {
        name: value.decode("ascii", "replace")
        for name, value in headers
        if name in (PARENT, STATE) and len(value) <= VALUE_BYTES_MAX
    }
    if PARENT not in carrier:
        return None
    context = _W3C.extract(carrier, Context())
    return context if get_current_span(context).get_span_context().is_valid else None


def links_to(messages: Iterable[Message]) -> list[Link]:
    """Links to the contexts of these messages, each context once."""
    links = {}
    for message in messages:
        context = context_in(message.headers) if message.headers else None
        if context is not None:
            found = get_current_span(context).get_span_context()
            links[found.trace_id, found.span_id] = Link(found)
    return list(links.values())


def injected(messages: Sequence[Message], headers: Headers) -> Sequence[Message]:
    """The messages with these headers behind their own; those that have a context as they are. All
    stay as they are if they are too many or too large.
    """
    added = sum(len(name) + len(value) for name, value in headers) * len(messages)
    if not headers or len(messages) > INJECTED_MAX:
        return messages
    if sum(each.size for each in messages) + added > BYTES_MAX:
        return messages
    if sum(len(each.headers) for each in messages) + 2 * len(messages) > BATCH_HEADERS_MAX:
        return messages
    return [each if has_context(each.headers) else _with(each, headers) for each in messages]


def _with(message: Message, headers: Headers) -> Message:
    own = message.headers
    if isinstance(message, ReceivedMessage):
        own = unreserved(own)
    return Message(message.topic, message.value, message.key, (*own, *headers))
