"""What waits to be appended is bounded in what it takes of memory."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from hqueue.rpc.services import load
from hqueue_workers.hub.metrics import HubMetrics
from hqueue_workers.hub.serving.service import HubService

IDL: Any = load("hub")
STRUCTS: Any = load("subscriber")
PENDING_BYTES_MAX = 1024 * 1024
MESSAGES = 5_000


class Waiting:
    """Publishes that are appended when the test wants it."""

    def __init__(self) -> None:
        self.publishes: list[Future[Any]] = []

    def publish(self, *given: Any, **named: Any) -> Future[Any]:
        self.publishes.append(Future())
        return self.publishes[-1]


@pytest.mark.parametrize(("headers", "taken"), [(0, 2), (4, 1)])
def test_messages_of_no_bytes_take_memory_too(headers: int, taken: int) -> None:
    waiting: Any = Waiting()
    queue: Any = SimpleNamespace(publishing=waiting)
    nothing: Any = None
    service = HubService(
        {"q": queue},
        HubMetrics(dict, lambda: 0),
        PENDING_BYTES_MAX,
        runtime=nothing,
        session_ms=0,
        callbacks=nothing,
    )
    message = STRUCTS.TMessage(topic=b"", value=b"", headers=[STRUCTS.THeader(b"n", b"")] * headers)

    def publish() -> Future[Any]:
        return service.publishMessages(b"q", b"me", b"t", [message] * MESSAGES, False)

    for _ in range(taken):
        publish()
    with pytest.raises(IDL.TBusy):
        publish()
    for each in waiting.publishes:
        each.set_exception(ValueError("the log is gone"))
    assert service.pending_bytes == 0
