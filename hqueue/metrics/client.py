"""The metrics of programs that produce and consume. Needs the extra ``metrics``."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

from prometheus_client import CollectorRegistry

from hqueue.errors import HQueueError
from hqueue.message import ReceivedMessage
from hqueue.metrics.families import counter, histogram
from hqueue.watching.observer import End, Observer

__all__ = ["ClientMetrics"]


class ClientMetrics(Observer):
    """Counts what this process sends, receives and answers. Thread-safe.

    Args:
        registry: where the metrics are.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._sent = counter("hqueue_client_sent_messages", registry)
        self._sent_bytes = counter("hqueue_client_sent_bytes", registry)
        self._failed = counter("hqueue_client_failed_sends", registry)
        self._send_seconds = histogram("hqueue_client_send_seconds", registry)
        self._received = counter("hqueue_client_received_messages", registry)
        self._answered = counter("hqueue_client_answered_messages", registry)
        self._commit_seconds = histogram("hqueue_client_commit_seconds", registry)
        self._failed_commits = counter("hqueue_client_failed_commits", registry)
        self._processed = counter("hqueue_client_processed_messages", registry)
        self._process_seconds = histogram("hqueue_client_process_seconds", registry)

    def append(self, queue: str, count: int, size: int) -> End:
        began_s = time.monotonic()

        def end(result: Any, error: BaseException | None) -> None:
            if error is None:
                self._sent.labels(queue).inc(count)
                self._sent_bytes.labels(queue).inc(size)
                self._send_seconds.labels(queue).observe(time.monotonic() - began_s)
            else:
                self._failed.labels(queue, _outcome_of(error)).inc()

        return end

    def received(
        self, queue: str, group: str | None, first: Sequence[ReceivedMessage], count: int
    ) -> None:
        self._received.labels(queue, group or "").inc(count)

    def settle(self, queue: str, group: str, answer: str, count: int) -> End:
        began_s = time.monotonic()

        def end(result: Any, error: BaseException | None) -> None:
            if error is None:
                self._commit_seconds.labels(group).observe(time.monotonic() - began_s)
            else:
                self._failed_commits.labels(group, _outcome_of(error)).inc()

        return end

    def answered(self, queue: str, group: str, answer: str, count: int) -> None:
        self._answered.labels(queue, group, answer).inc(count)

    @contextlib.contextmanager
    def process(self, subscriber: str, messages: Sequence[ReceivedMessage]) -> Iterator[None]:
        began_s = time.monotonic()
        yield
        self._processed.labels(subscriber).inc(len(messages))
        self._process_seconds.labels(subscriber).observe(time.monotonic() - began_s)


def _outcome_of(error: BaseException) -> str:
    """Whether what failed is not applied, or its outcome unknown."""
    outcome = error.outcome if isinstance(error, HQueueError) else None
    return "unknown" if outcome is None else outcome.name.lower()
