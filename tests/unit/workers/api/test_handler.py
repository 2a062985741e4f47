"""Calls of the Thrift API, without a wire: what each ends with, and how it is counted."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest

import hqueue
from hqueue import (
    CorruptLogError,
    HQueueError,
    IdempotencyKeyReusedError,
    InvalidInputError,
    Outcome,
    QueueNotFoundError,
    RequestRefusedError,
    StoreUnavailableError,
)
from hqueue.engine import Engine
from hqueue.errors import (
    ClockSkewError,
    IdempotencyKeyTooOldError,
    NotAQueueError,
    QueueDisabledError,
)
from hqueue_workers.api.failures import (
    ScannerBusyError,
    ScannerNotFoundError,
    exception_of,
)
from hqueue_workers.api.handler import Handler
from hqueue_workers.api.queues import FRESH_MS
from hqueue_workers.api.scanners import ScannerTable
from hqueue_workers.api.structs import API
from tests.support.awaited import Awaited
from tests.support.backends import MemoryBackend
from tests.support.doubles import SteppedClock
from tests.support.interposed import Interposed
from tests.support.looped import LoopThread
from tests.support.proxy import Fate

NOT_APPLIED, UNKNOWN = API.TOutcome.NOT_APPLIED, API.TOutcome.UNKNOWN
Counted = list[tuple[str, str]]


class Served:
    """A handler over memory, and the calls that it counted."""

    def __init__(self, client: hqueue.Client, thread: LoopThread) -> None:
        self.clock = SteppedClock()
        self.counted: Counted = []
        scanners = ScannerTable(count_max=2, bytes_max=2**20, idle_ms=1_000, clock=self.clock)
        handler = Handler(client, scanners, 2**20, self.clock, self._count)
        self.handler: Any = Awaited(handler, thread)

    def _count(self, method: str, result: str, took_ms: float) -> None:
        self.counted.append((method, result))


class Held:
    """Waits until it may go on, and then does not know."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.count = 0

    def __call__(self) -> hqueue.QueueDescription:
        self.count += 1
        self.begun.set()
        assert self.go_on.wait(10)
        raise StoreUnavailableError("the master stayed away", outcome=Outcome.NOT_APPLIED)


@pytest.fixture
def cluster() -> MemoryBackend:
    return MemoryBackend()


@pytest.fixture
def client(cluster: MemoryBackend) -> Iterator[hqueue.Client]:
    with cluster.connect() as connected:
        connected.create_queue("q", partitions=2)
        yield connected


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    made = LoopThread()
    yield made
    made.close()


@pytest.fixture
def served(client: hqueue.Client, thread: LoopThread) -> Served:
    return Served(client, thread)


def struct(value: bytes) -> Any:
    return API.subscriber.TMessage(topic=b"t", value=value)


@pytest.mark.parametrize(
    ("error", "kind", "condition", "outcome", "name"),
    [
        (InvalidInputError("x"), "TIllegalArgument", None, None, "illegal_argument"),
        (ScannerNotFoundError("x"), "TScannerNotFound", None, None, "scanner_not_found"),
        (QueueNotFoundError("x"), "TQueueStateError", 0, NOT_APPLIED, "queue_state"),
        (
            QueueDisabledError("x", outcome=Outcome.UNKNOWN),
            "TQueueStateError", 1, UNKNOWN, "queue_state",
        ),
        (NotAQueueError("x"), "TQueueStateError", 2, NOT_APPLIED, "queue_state"),
        (
            StoreUnavailableError("x", outcome=Outcome.NOT_APPLIED),
            "TUnavailable",
            None,
            NOT_APPLIED,
            "unavailable",
        ),
        (
            StoreUnavailableError("x", outcome=Outcome.UNKNOWN),
            "TUnavailable", None, UNKNOWN, "unavailable",
        ),
        (ScannerBusyError("x"), "TUnavailable", None, NOT_APPLIED, "unavailable"),
        (
            IdempotencyKeyReusedError("x", count=1, count_before=2),
            "TIdempotencyKeyError", 0, NOT_APPLIED, "idempotency_key",
        ),
        (
            IdempotencyKeyTooOldError("x"),
            "TIdempotencyKeyError", 1, NOT_APPLIED, "idempotency_key",
        ),
        (CorruptLogError("x"), "TServiceError", None, NOT_APPLIED, "service_error"),
        (ClockSkewError("x"), "TServiceError", None, NOT_APPLIED, "service_error"),
        (RequestRefusedError("x"), "TServiceError", None, NOT_APPLIED, "service_error"),
    ],
)  # fmt: skip
def test_every_error_is_one_that_the_idl_declares(
    error: HQueueError, kind: str, condition: int | None, outcome: int | None, name: str
) -> None:
    raised, counted = exception_of(error)
    assert (type(raised), counted) == (getattr(API, kind), name)
    assert getattr(raised, "condition", None) == condition
    assert getattr(raised, "outcome", None) == outcome
    assert raised.message.startswith("x")


def test_what_a_lost_answer_left_open_is_said(
    cluster: MemoryBackend, client: object, thread: LoopThread
) -> None:
    with cluster.lossy() as way, way.connect(operation_timeout_ms=100) as lossy:
        served = Served(lossy, thread)
        served.handler.putMessage("q", struct(b"before"))
        way.set_fate(lambda _: Fate.LOSE_REQUEST)
        with pytest.raises(API.TUnavailable) as raised:
            served.handler.getQueueLocations("q")
        assert raised.value.outcome == NOT_APPLIED
        way.set_fate(lambda _: Fate.LOSE_ANSWER)
        with pytest.raises(API.TUnavailable) as raised:
            served.handler.putMessage("q", struct(b"lost"))
        assert raised.value.outcome == UNKNOWN
    assert served.counted == [
        ("putMessage", "ok"), ("getQueueLocations", "unavailable"), ("putMessage", "unavailable"),
    ]  # fmt: skip


def test_a_fault_of_its_own_is_declared_too(client: hqueue.Client, thread: LoopThread) -> None:
    def fail(name: str) -> None:
        raise ZeroDivisionError(name)

    served = Served(cast(hqueue.Client, Interposed(client, locations=fail)), thread)
    with pytest.raises(API.TServiceError) as raised:
        served.handler.getQueueLocations("q")
    assert (raised.value.outcome, served.counted) == (
        NOT_APPLIED, [("getQueueLocations", "service_error")],
    )  # fmt: skip
    assert "q" not in raised.value.message.split()


def test_without_room_for_a_scanner_nothing_is_asked(served: Served) -> None:
    scan = API.TMessageScan()
    opened = [served.handler.messageScannerOpen("q", 0, scan) for _ in range(2)]
    for queue in ("q", "no-such-queue"):
        with pytest.raises(API.TUnavailable) as raised:
            served.handler.messageScannerOpen(queue, 0, scan)
        assert raised.value.outcome == NOT_APPLIED
    served.handler.messageScannerClose(opened[0])
    served.handler.messageScannerOpen("q", 1, scan)


@pytest.mark.parametrize("passed_ms", [0.0, FRESH_MS])
def test_a_queue_that_was_deleted_and_made_again_is_opened_again(
    served: Served, client: hqueue.Client, passed_ms: float
) -> None:
    def put(partition: int) -> None:
        served.handler.putMessageWithPid("q", partition, struct(b"v"))

    put(0)
    with pytest.raises(API.TIllegalArgument):
        put(2)
    client.disable_queue("q")
    client.delete_queue("q")
    served.clock.now_ms += passed_ms
    with pytest.raises(API.TQueueStateError) as raised:
        put(0)
    assert raised.value.condition == API.TQueueCondition.NOT_FOUND
    client.create_queue("q", partitions=3)
    put(2)


def test_a_queue_that_is_known_is_used_though_nobody_says_what_it_is_now(
    served: Served, client: hqueue.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Engine(client).open("q")
    puts, looks = 3, Held()
    monkeypatch.setattr(served.handler._queues, "_open_queue", lambda name: opened)
    monkeypatch.setattr(opened, "describe", looks)

    def put() -> None:
        served.handler.putMessage("q", struct(b"v"))

    put()
    served.clock.now_ms += FRESH_MS
    looker = threading.Thread(target=put, daemon=True)
    looker.start()
    assert looks.begun.wait(10)
    for _ in range(puts):
        put()
    looks.go_on.set()
    looker.join(10)
    put()
    assert [name for name, _ in served.counted] == ["putMessage"] * (puts + 3)
    assert {result for _, result in served.counted} == {"ok"}
    assert looks.count == 1
    served.clock.now_ms += FRESH_MS
    put()
    assert looks.count == 2
