"""Push delivery of delayed messages, on real servers."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

import hqueue
from hqueue import Message, Subscription
from hqueue.metadata import SubscriptionKey
from tests.support.waiting import wait_for

from .pushing import Received, WorkerProcess, put_numbers

DELAY_MS = 6_000


@pytest.mark.usefixtures("server")
def test_delayed_messages_come_when_they_are_due_although_a_worker_is_killed_meanwhile(
    make: Callable[..., hqueue.Queue],
    start: Callable[..., WorkerProcess],
    pushing: hqueue.Client,
) -> None:
    queue = make(2)
    first = start(checkpoint_ms=100)
    got = Received()
    dues_ms: dict[bytes, int] = {}

    def put_delayed(numbers: range, delay_ms: int) -> None:
        for number in numbers:
            value = b"delayed %d" % number
            dues_ms[value] = time.time_ns() // 1_000_000 + delay_ms
            queue.put(Message("t", value).delayed(dues_ms[value]), partition=number % 2)

    def named() -> list[int]:
        keys = [SubscriptionKey(queue.name, partition, "s") for partition in range(2)]
        found = pushing.coordination.checkpoints.read_many(keys)
        return [sum(delay.messages for delay in found[key].delays) for key in keys]

    with queue.subscriber(Subscription("s"), got):
        put_delayed(range(40), DELAY_MS)
        values = put_numbers(queue, range(40))
        got.await_values(values)
        wait_for(lambda: named() == [20, 20], "the checkpoints name them")
        second = start(checkpoint_ms=100)
        wait_for(lambda: len(second.owns(queue)) == 1, "they share the partitions")
        first.kill()
        put_delayed(range(40, 60), 500)
        values += put_numbers(queue, range(40, 60))
        got.await_values([*values, *dues_ms])
        wait_for(lambda: named() == [0, 0], "none is left")
    since_ms = time.time() * 1e3 - time.monotonic() * 1e3
    for call, at_s in zip(got.calls, got.at_s, strict=True):
        for message in call:
            assert since_ms + at_s * 1e3 >= dues_ms.get(message.value, 0) - 50
    assert set(got.values) == {*values, *dues_ms}
    paths = [f"{pushing.settings.zookeeper_root}/delays/{queue.name}/{each}/s" for each in range(2)]
    records = pushing.coordination.store.records
    wait_for(lambda: not any(records.keys(path, 1) for path in paths), "no record is left")
