"""What a handle on a queue's log refuses, and that its parts and the facade share it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, cast

import pytest

from hqueue import ClosedError, InvalidInputError, MessageID, Queue, QueueDescription, Scan
from hqueue.format.cells import encode_values
from hqueue.handle import QueueLog
from hqueue.log.table_ports import AsyncLogPort, LogPort
from hqueue.runtime.clock import Clock
from hqueue.runtime.loop import blocking
from hqueue.settings.connection import Settings
from tests.support.doubles import Rows, SteppedClock

DESCRIPTION = QueueDescription("q", 3, 60, {})


def handle(rows: Rows | None = None, **settings: Any) -> tuple[QueueLog, SteppedClock]:
    """A handle on a queue in memory that is read only."""
    clock = SteppedClock(1_000_000)
    log = QueueLog(
        DESCRIPTION,
        lambda: blocking(lambda: dataclasses.replace(DESCRIPTION, ttl_seconds=90)),
        port=cast(LogPort, rows or Rows()),
        loop_port=cast(AsyncLogPort, None),
        on_append=lambda *_: None,
        settings=Settings(**settings),
        clock=cast(Clock, clock),
    )
    return log, clock


@pytest.mark.parametrize(
    "use",
    [
        lambda log: log.appender.append(encode_values("t", [b"v"]), 0),
        lambda log: log.appender.claim_epoch("producer", 0),
        lambda log: log.appender.current_epoch("producer"),
        lambda log: log.reader.open(0, Scan(), 1_000),
        lambda log: Queue(log, cast(Any, None), cast(Any, None)).scan(),
    ],
)
def test_one_that_was_closed_appends_and_opens_nothing(use: Callable[[QueueLog], object]) -> None:
    log, _ = handle()
    Queue(log, cast(Any, None), cast(Any, None)).close()
    with pytest.raises(ClosedError) as caught:
        use(log)
    assert caught.value.facts == {"queue": "q"}


@pytest.mark.parametrize("partition", [-1, 3, True, None, "0", 1.0])
@pytest.mark.parametrize(
    "use",
    [
        lambda log, partition: log.reader.open(partition, Scan(), 1_000),
        lambda log, partition: log.reader.offsets([partition]),
        lambda log, partition: log.reader.lag({partition: MessageID(0)}),
        lambda log, partition: log.reader.count_before(partition, MessageID(0)),
        lambda log, partition: log.reader.id_at(partition, 0),
        lambda log, partition: log.reader.headers(partition, 0, None),
        lambda log, partition: next(log.reader.verify([partition], now_ms=lambda deadline: 0)),
    ],
)
def test_a_partition_that_is_not_there_is_an_error(
    use: Callable[[QueueLog, object], object], partition: object
) -> None:
    with pytest.raises(InvalidInputError, match="there is no such partition") as caught:
        use(handle()[0], partition)
    assert caught.value.facts == {"queue": "q", "partition": partition, "partitions": 3}


def test_a_key_or_a_partition_is_chosen_and_never_both() -> None:
    choose = handle()[0].appender.choose_partition
    assert [choose(2, None), choose(None, None)] == [2, None]
    # CRC-32 of the key's UTF-8, as every release and every other client has it.
    keys = ("123456789", b"123456789", b"a", "ü")
    assert [choose(None, key) for key in keys] == [2, 2, 0, 1]
    for partition, key in ((1, "a"), (3, None), (None, 5)):
        with pytest.raises(InvalidInputError):
            choose(partition, cast(Any, key))


def test_all_partitions_are_asked_where_none_is_named() -> None:
    rows = Rows()
    rows.append(1, b"v")
    reader = handle(rows)[0].reader
    assert [each.partition for each in reader.offsets()] == [0, 1, 2]
    assert [each.count for each in reader.offsets()] == [0, 1, 0]
    assert [each.partition for each in reader.offsets([2, 1])] == [2, 1]
    assert [each.partition for each in reader.offsets([])] == []


def test_an_operation_is_bounded_by_the_settings() -> None:
    log, clock = handle(operation_timeout_ms=250)
    deadline = log.deadline()
    clock.now_ms += 249
    assert not deadline.expired
    clock.now_ms += 1
    assert deadline.expired


def test_what_the_queue_is_now_is_asked_each_time() -> None:
    log, _ = handle()
    assert (log.name, log.partitions) == ("q", 3)
    assert log.describe().ttl_seconds == 90
    queue = Queue(log, cast(Any, None), cast(Any, None))
    assert (queue.name, queue.partitions, queue.describe()) == ("q", 3, log.describe())
    assert repr(queue) == "Queue('q', partitions=3)"
