"""How workers share out the groups of consumers, and what they show of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from unittest import mock

import pytest

import hqueue
from hqueue import Message, PartitionKey, StoreUnavailableError
from hqueue.groups.offsets import GroupOffsets, Position
from hqueue.groups.paths import GroupPaths
from hqueue.metadata import Address, WorkerRecord
from hqueue_workers.delivery.group_lag_meter import GroupLagMeter
from hqueue_workers.node.metrics import Metrics
from tests.support.backends import MemoryBackend
from tests.support.worker_doubles import SteppedRuntime

EVERY_MS = 10_000.0


class SlowRuntime(SteppedRuntime):
    """One in which each look takes so long; it ends when it should sleep."""

    def __init__(self, took_ms: float = 0.0) -> None:
        super().__init__()
        self.took_ms = took_ms

    async def coordinate(self, work: object) -> object:
        self.stepped.now_ms += self.took_ms
        return await super().read(work)  # type: ignore[arg-type]

    async def sleep_ms(self, duration_ms: float) -> None:
        self.slept_ms.append(duration_ms)
        raise asyncio.CancelledError


class Cluster:
    """A queue with five messages in its first partition, and the groups that consume it."""

    def __init__(self) -> None:
        self.client = MemoryBackend().connect()
        self.queue = self.client.create_queue("q", partitions=2)
        self.ids = [self.queue.put(Message("t", b"x"), partition=0) for _ in range(5)]

    def commit(self, group: str, consumed: int) -> None:
        """Let a group be so far in the first partition."""
        key = PartitionKey("q", 0)
        offsets = GroupOffsets(self.client.coordination.store, GroupPaths("/hqueue", group))
        known = offsets.take_over("test", [key])[key]
        offsets.commit("test", {key: (known, Position(self.ids[consumed]))})

    def add_worker(self, name: str) -> None:
        record = WorkerRecord(name, Address("127.0.0.1", 7070), "host")
        self.client.coordination.workers.register(record, lambda error: None)

    def measure(self, worker: str, took_ms: float = 0.0) -> tuple[GroupLagMeter, list[float]]:
        """What one worker has found when it first rests, and how long it rests."""

        async def run() -> tuple[GroupLagMeter, list[float]]:
            runtime = SlowRuntime(took_ms)
            meter = GroupLagMeter(self.client, runtime)
            with pytest.raises(asyncio.CancelledError):
                await meter.run(worker)
            return meter, runtime.slept_ms

        return asyncio.run(asyncio.wait_for(run(), 30))


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.add_worker("w")
    return made


def page(meter: GroupLagMeter) -> list[str]:
    """What is shown of groups."""
    text = Metrics().page([], 0, meter.measured).decode()
    return [
        line
        for line in text.splitlines()
        if line.startswith(("hqueue_group", "hqueue_share_group"))
    ]


def test_the_lag_of_a_group_is_shown_by_partition(cluster: Cluster) -> None:
    cluster.commit('a "b"', 2)
    meter, slept_ms = cluster.measure("w")
    members, messages, age = page(meter)
    assert members == 'hqueue_group_members{group="a \\"b\\""} 0.0'
    labels = 'group="a \\"b\\"",partition="0",queue="q"'
    assert messages == f"hqueue_group_lag_messages{{{labels}}} 3.0"
    assert age.startswith(f"hqueue_group_lag_seconds{{{labels}}} ")
    assert float(age.split()[-1]) >= 0
    assert slept_ms == [EVERY_MS]


def test_each_group_is_measured_by_one_worker_and_few_change_when_one_comes(
    cluster: Cluster,
) -> None:
    groups = [f"g{number}" for number in range(60)]
    for group in groups:
        cluster.commit(group, 0)

    def shared(workers: list[str]) -> dict[str, str]:
        found = [(each.group, w) for w in workers for each in cluster.measure(w)[0].measured]
        assert sorted(group for group, _ in found) == sorted(groups), "each once"
        return dict(found)

    cluster.add_worker("v")
    before = shared(["v", "w"])
    assert min(Counter(before.values()).values()) >= 15
    cluster.add_worker("x")
    after = shared(["v", "w", "x"])
    assert {after[group] for group in groups if after[group] != before[group]} == {"x"}


def test_a_share_group_shows_what_its_consumers_have(cluster: Cluster) -> None:
    with hqueue.ShareConsumer(
        "q", group="g", client=cluster.client, auto_acknowledge=False
    ) as consumer:
        messages = consumer.poll(20_000)
        consumer.release(messages[1], messages[2])
        consumer.release(*consumer.poll(20_000, 1))
        again = consumer.poll(20_000, 1)
        consumer.reject(messages[0])
        consumer.commit()
        shown = page(cluster.measure("w")[0])
        assert (len(messages), again[0].deliveries) == (5, 3)
    labels = '{group="g",partition="0",queue="q"} '
    by_reason = [line.split(labels[1:-2]) for line in shown if "rejected_messages" in line]
    assert [rest for name, *found in by_reason for rest in found] == [
        ',reason="rejected"} 1.0',
        ',reason="exhausted"} 0.0',
    ]
    lines = [line.partition(labels) for line in shown if line.startswith("hqueue_share_group_")]
    found = {name: float(value) for name, here, value in lines if here}
    assert found.pop("hqueue_share_group_acquired_seconds") > 0
    assert found == {
        "hqueue_share_group_acquired_messages": 3,
        "hqueue_share_group_redelivered_messages": 1,
        "hqueue_share_group_released_messages": 1,
        "hqueue_share_group_delayed_messages": 0,
    }


def test_a_worker_that_is_not_present_shows_none(cluster: Cluster) -> None:
    cluster.commit("g", 1)
    assert page(cluster.measure("gone")[0]) == []


def test_measuring_takes_a_twentieth_of_the_time_at_most(cluster: Cluster) -> None:
    assert cluster.measure("w", 100.0)[1] == [EVERY_MS]
    assert cluster.measure("w", 1_000.0)[1] == [20_000.0]


def test_what_can_not_be_measured_is_not_shown(cluster: Cluster) -> None:
    cluster.commit("away", 1)
    cluster.commit("broken", 1)
    cluster.commit("fine", 1)
    path = GroupPaths("/hqueue", "broken").offset(PartitionKey("q", 0))
    store = cluster.client.coordination.store
    store.records.write(
        {path: hqueue.metadata.ports.Change(b"no record", hqueue.metadata.ports.ANY)}
    )
    describe = cluster.client.describe_group
    measured = cluster.measure("w")[0]
    assert [each.group for each in measured.measured] == ["away", "broken", "fine"]
    lags = [line for line in page(measured) if line.startswith("hqueue_group_lag_messages")]
    assert ["broken" in line for line in lags] == [False, False], "only the others are known"

    def away(group: str) -> hqueue.GroupDescription:
        if group == "fine":
            raise StoreUnavailableError("away")
        return describe(group)

    with mock.patch.object(cluster.client, "describe_group", away):
        assert [each.group for each in cluster.measure("w")[0].measured] == ["away", "broken"]
    cluster.client.disable_queue("q")
    shown = page(cluster.measure("w")[0])
    assert [line.partition("{")[0] for line in shown] == ["hqueue_group_members"] * 3
