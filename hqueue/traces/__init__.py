"""Traces by OpenTelemetry: spans of what this process puts, consumes, processes and commits, and
the contexts of traces in the headers of messages.

    import hqueue.traces

    hqueue.traces.enable()
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hqueue.errors import InvalidInputError
from hqueue.message import Message, ReceivedMessage
from hqueue.runtime.extras import needing
from hqueue.watching.observers import OBSERVERS, observe

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, TracerProvider

    from hqueue.traces.spans import Spans

__all__ = ["Instrumentor", "context_of", "enable", "processing"]


def enable(tracer_provider: TracerProvider | None = None) -> None:
    """Make spans of what this process does from now on, and let messages carry their contexts in
    the headers ``traceparent`` and ``tracestate``. Needs the extra ``hqueue-hbase[traces]``, which
    is OpenTelemetry's API; the program installs and configures the SDK. Before this call the
    library makes no spans and adds no headers.

    Args:
        tracer_provider: makes the spans; OpenTelemetry's global provider if None.

    Raises:
        InvalidInputError: OpenTelemetry's API is not installed, or traces are enabled already.
    """
    with needing("traces", "opentelemetry", "opentelemetry-api"):
        from opentelemetry.trace import get_tracer  # noqa: PLC0415  (an extra)

        from hqueue.traces.spans import Spans  # noqa: PLC0415
    if _spans() is not None:
        raise InvalidInputError("traces are enabled already: enable them once in a process")
    observe(Spans(get_tracer("hqueue", tracer_provider=tracer_provider)))


def context_of(message: Message) -> Context | None:
    """The context that a message carries, as a parent for spans of the program; None if the message
    carries none, or a damaged one.
    """
    from hqueue.traces.propagation import context_in  # noqa: PLC0415  (an extra)

    return context_in(message.headers)


@contextlib.contextmanager
def processing(*messages: ReceivedMessage) -> Iterator[Span | None]:
    """A block in which the program processes messages that a consumer or a scan returned. Its span
    links to the contexts of the first 128 messages; the context of one message alone is the span's
    parent. Yields the span; None while traces are not enabled.
    """
    spans = _spans()
    if spans is None or not messages:
        yield None
        return
    with spans.consuming(messages) as span:
        yield span


def _spans() -> Spans | None:
    if not OBSERVERS:
        return None
    from hqueue.traces.spans import Spans  # noqa: PLC0415  (an extra)

    observers = (each.observer for each in OBSERVERS)
    return next((each for each in observers if isinstance(each, Spans)), None)


class Instrumentor:
    """The entry point by which ``opentelemetry-instrument`` enables traces in any process of
    HQueue: ``opentelemetry-instrument hqueue worker``.
    """

    def instrument(self, tracer_provider: Any = None, **options: object) -> None:
        """Enable traces, unless they are enabled already."""
        if _spans() is None:
            enable(tracer_provider)
