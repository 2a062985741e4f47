"""Dead letters of a share group are counted once, by their reason, whatever gets lost."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

import hqueue
from hqueue import Message, ShareConsumer
from hqueue.errors import Outcome, StoreUnavailableError
from hqueue.metadata.ports import Change
from hqueue.sharing.acquired_message import AcquiredMessage
from hqueue.sharing.window import LetterCounts, Window
from hqueue.sharing.window_record import encode_window
from tests.support.backends import MemoryBackend
from tests.support.consumer_faces import LoopedShareConsumer
from tests.support.memory.memory_records import MemoryRecords

faces = pytest.mark.parametrize("face", [ShareConsumer, LoopedShareConsumer])


@pytest.fixture
def memory() -> MemoryBackend:
    return MemoryBackend()


@pytest.fixture
def client(memory: MemoryBackend) -> Iterator[hqueue.Client]:
    with memory.connect() as client:
        client.create_queue("q", partitions=1)
        yield client


def counts(client: hqueue.Client) -> tuple[int, int]:
    """How many dead letters the group counts: rejected ones, and those delivered too often."""
    (partition,) = client.describe_group("g").partitions
    assert partition.shared is not None
    return partition.shared.rejected, partition.shared.exhausted


def has_finished(client: hqueue.Client) -> bool:
    """Whether the group is done with all messages."""
    lags = [each.lag for each in client.describe_group("g").partitions]
    return bool(lags) and all(lag is not None and lag.messages == 0 for lag in lags)


def answer(consumer: Any, message: AcquiredMessage) -> None:
    """Acknowledge a third of the messages, reject a third, and release the others."""
    kind = int(message.value) % 3
    if kind == 0:
        consumer.acknowledge(message)
    elif kind == 1:
        consumer.reject(message, reason="not a number")
    else:
        consumer.release(message)


@faces
def test_each_dead_letter_is_counted_once_over_writes_that_get_lost(
    client: hqueue.Client, face: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.queue("q").put([Message("t", b"%d" % n) for n in range(60)], partition=0)
    chance, fates, write = random.Random(3), Counter[str](), MemoryRecords.write

    def lossy_write(records: MemoryRecords, changes: Mapping[str, Change], *guards: Any) -> Any:
        fate = chance.choice(["answered", "answered", "lost", "unanswered"])
        fates[fate] += 1
        written = None if fate == "lost" else write(records, changes, *guards)
        if fate != "answered":
            raise StoreUnavailableError("no answer", outcome=Outcome.UNKNOWN)
        return written

    with contextlib.ExitStack() as joined:
        consumers = []
        for _ in range(2):
            one = face("q", group="g", client=client, auto_acknowledge=False, deliveries_max=1)
            joined.callback(one.close, acknowledge=False)
            consumers.append(one)
        with monkeypatch.context() as patched:
            patched.setattr(MemoryRecords, "write", lossy_write)
            while not has_finished(client):
                one = chance.choice(consumers)
                with contextlib.suppress(StoreUnavailableError):
                    for message in one.poll(0, chance.randrange(1, 9)):
                        answer(one, message)
    assert min(fates["lost"], fates["unanswered"]) > 5
    letters = client.queue("q").dead_letters.waiting(group="g")
    reasons = Counter(each.reason for each in letters)
    assert set(reasons.values()) == {20}
    assert "not a number" in reasons
    assert counts(client) == (20, 20)


@faces
def test_counts_last_when_a_group_starts_over_with_another_log_and_end_with_a_reset(
    memory: MemoryBackend, client: hqueue.Client, face: Any
) -> None:
    path = "/hqueue/consumers/g/shares/q/0-0"
    records = client.coordination.store.records
    with (
        memory.connect(operation_timeout_ms=400) as soon,
        face("q", group="g", client=soon, auto_acknowledge=False) as consumer,
    ):
        assert consumer.poll(0) == []
        later = Window(int(hqueue.MessageID(2**42)), dead_letters=LetterCounts(3, 4))
        version = records.read([path])[path].version
        records.write({path: Change(encode_window(later, "test"), version)})
        client.queue("q").put(Message("t", b"1"), partition=0)
        (message,) = consumer.poll(30_000)
        assert counts(client) == (3, 4)
        consumer.reject(message)
        consumer.commit()
        assert counts(client) == (4, 4)
    client.reset_group("g", "q", "earliest")
    assert counts(client) == (0, 0)
