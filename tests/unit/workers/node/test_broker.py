"""Who of a cluster's workers registers it, and the queues that are there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping

import pytest

from hqueue import HQueueError, SettingsError, StoreUnavailableError
from hqueue.metadata import Address, BrokerRecord
from hqueue.metadata.encoding import encode_broker
from hqueue.metadata.ports import ANY, Change
from hqueue.runtime.clock import SystemClock
from hqueue_workers.node import broker as broker_module
from hqueue_workers.node.broker import BrokerRegistration
from hqueue_workers.node.runtime import Runtime
from tests.support.memory.metadata import MemoryCoordination, MemoryServer

CLUSTER = "cluster-a"
FIRST, SECOND = Address("127.0.0.1", 1), Address("127.0.0.1", 2)
LOOK_MS = 5.0


class Scene:
    """Workers of a cluster, each with a session of its own, and the cluster's queues."""

    def __init__(self) -> None:
        self.server = MemoryServer(session_timeout_ms=200)
        self.seen = MemoryCoordination(self.server).brokers
        self.queues: dict[str, int] = {"q": 4}
        self.error: HQueueError | None = None
        self.looks = 0

    def list_queues(self) -> Mapping[str, int]:
        self.looks += 1
        if self.error is not None:
            raise self.error
        return dict(self.queues)

    @contextlib.asynccontextmanager
    async def worker(
        self,
        address: Address,
        cluster: str = CLUSTER,
        clock: SystemClock | None = None,
        runtime: Runtime | None = None,
    ) -> AsyncIterator[tuple[BrokerRegistration, MemoryCoordination, asyncio.Task[None]]]:
        runtime = runtime or Runtime(2, clock or SystemClock())
        session = MemoryCoordination(self.server)
        registration = BrokerRegistration(
            brokers=session.brokers,
            runtime=runtime,
            broker=0,
            record=BrokerRecord(address, cluster),
            queues=self.list_queues,
            look_every_ms=LOOK_MS,
        )
        task = asyncio.get_running_loop().create_task(registration.run())
        try:
            yield registration, session, task
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, HQueueError):
                await task
            registration.close()
            session.close()
            await runtime.close()


async def until(condition: Callable[[], object], what: str) -> None:
    ends = asyncio.get_running_loop().time() + 20
    while not condition():
        assert asyncio.get_running_loop().time() < ends, what
        await asyncio.sleep(0.005)


def test_a_worker_registers_the_cluster_and_every_queue() -> None:
    async def run() -> None:
        scene = Scene()
        async with scene.worker(FIRST):
            await until(lambda: scene.seen.list_queues() == {("q", 0): 4}, "the queue")
            assert scene.seen.list() == {0: BrokerRecord(FIRST, CLUSTER)}
            scene.queues["later"] = 2
            await until(
                lambda: scene.seen.list_queues() == {("q", 0): 4, ("later", 0): 2}, "a later one"
            )

    asyncio.run(run())


def test_a_queue_that_is_made_again_with_more_partitions_is_registered_with_these() -> None:
    async def run() -> None:
        scene = Scene()
        async with scene.worker(FIRST):
            await until(lambda: scene.seen.list_queues() == {("q", 0): 4}, "the queue")
            scene.queues["q"] = 8
            await until(lambda: scene.seen.list_queues() == {("q", 0): 8}, "with 8 partitions")

    asyncio.run(run())


class AheadClock(SystemClock):
    """It can be put forward."""

    ahead_ms = 0.0

    def monotonic_ms(self) -> float:
        return super().monotonic_ms() + self.ahead_ms


def test_a_queue_that_is_missing_for_a_moment_stays_and_a_deleted_one_goes() -> None:
    async def run() -> None:
        scene = Scene()
        told: list[Mapping[tuple[str, int], int]] = []
        scene.seen.watch_queues(told.append)
        clock = AheadClock()
        async with scene.worker(FIRST, clock=clock):
            await until(lambda: told and told[-1] == {("q", 0): 4}, "the queue")
            for _ in range(3):  # As when it is truncated: away for a look or two.
                del scene.queues["q"]
                looks = scene.looks
                await until(lambda looks=looks: scene.looks > looks + 1, "it was looked")
                scene.queues["q"] = 4
                looks = scene.looks
                await until(lambda looks=looks: scene.looks > looks + 1, "it was looked again")
            assert told[-1] == {("q", 0): 4}
            assert told.count({}) <= 1, "it never went away, but before it first came"
            del scene.queues["q"]
            looks = scene.looks
            await until(lambda: scene.looks > looks + 1, "it was looked")
            clock.ahead_ms = broker_module.GONE_AFTER_MS
            await until(lambda: told[-1] == {}, "it is deleted")

    asyncio.run(run())


def test_of_two_workers_one_holds_the_registration_and_the_other_takes_over_at_its_end() -> None:
    async def run() -> None:
        scene = Scene()
        async with scene.worker(FIRST) as (first, session, _):
            await until(lambda: scene.seen.list_queues() == {("q", 0): 4}, "the first holds it")
            async with scene.worker(SECOND) as (second, _session, _task):
                await second.check()
                assert (first.holds, second.holds) == (True, False)
                session.close()
                await until(lambda: second.holds, "the second takes over")
                await until(lambda: scene.seen.list_queues() == {("q", 0): 4}, "and the queue")
                assert scene.seen.list() == {0: BrokerRecord(SECOND, CLUSTER)}

    asyncio.run(run())


def test_who_ends_in_order_gives_the_registration_up_at_once() -> None:
    async def run() -> None:
        scene = Scene()
        async with scene.worker(FIRST) as (first, *_):
            await until(lambda: scene.seen.list_queues() == {("q", 0): 4}, "the first holds it")
            async with scene.worker(SECOND) as (second, _session, _task):
                await first.release()
                await until(lambda: second.holds, "the second takes over")
                await until(lambda: scene.seen.list_queues() == {("q", 0): 4}, "and the queue")
                assert scene.seen.list() == {0: BrokerRecord(SECOND, CLUSTER)}
                assert not first.holds
                await first.release()
                assert scene.seen.list() == {0: BrokerRecord(SECOND, CLUSTER)}

    asyncio.run(run())


def test_after_a_lost_session_all_is_registered_again() -> None:
    async def run() -> None:
        scene = Scene()
        async with scene.worker(FIRST) as (first, session, _):
            await until(lambda: scene.seen.list_queues() == {("q", 0): 4}, "registered")
            session.store.expire()
            assert scene.seen.list() == {}
            first.revoke()  # As the worker does when its lease says so.
            await until(lambda: scene.seen.list_queues() == {("q", 0): 4}, "registered again")
            assert scene.seen.list() == {0: BrokerRecord(FIRST, CLUSTER)}

    asyncio.run(run())


def test_an_id_that_another_cluster_has_ends_the_worker_that_comes_second() -> None:
    async def run() -> None:
        scene = Scene()
        async with scene.worker(FIRST) as (first, *_):
            await until(lambda: first.holds, "the first holds it")
            async with scene.worker(SECOND, "cluster-b") as (second, _, task):
                with pytest.raises(SettingsError) as caught:
                    await second.check()
                assert caught.value.registered_by == str(FIRST)
                with pytest.raises(SettingsError):
                    await asyncio.wait_for(asyncio.shield(task), 20)
            assert scene.seen.list() == {0: BrokerRecord(FIRST, CLUSTER)}

    asyncio.run(run())


def test_while_hbase_stays_away_what_was_registered_stays() -> None:
    async def run() -> None:
        scene = Scene()
        async with scene.worker(FIRST) as (first, *_):
            await until(lambda: scene.seen.list_queues() == {("q", 0): 4}, "registered")
            scene.error = StoreUnavailableError("no answer")
            looks = scene.looks
            await until(lambda: scene.looks > looks, "it was asked")
            assert first.holds
            assert scene.seen.list_queues() == {("q", 0): 4}

    asyncio.run(run())


def test_a_look_that_takes_long_is_followed_by_a_rest_of_many_times_that() -> None:
    class SlowClock(SystemClock):
        """Each look at it is 40 ms after the one before."""

        def __init__(self) -> None:
            super().__init__()
            self.ms = 0.0

        def monotonic_ms(self) -> float:
            self.ms += 40
            return self.ms

    class Noting(Runtime):
        def __init__(self) -> None:
            super().__init__(2, SlowClock())
            self.rests_ms: list[float] = []

        async def wait(self, changed: asyncio.Event, timeout_ms: float) -> None:
            self.rests_ms.append(timeout_ms)
            await super().wait(changed, LOOK_MS)

    async def run() -> None:
        scene = Scene()
        runtime = Noting()
        async with scene.worker(FIRST, runtime=runtime) as (first, *_):
            await until(lambda: first.holds, "it holds it")
            looks = scene.looks
            await until(lambda: scene.looks > looks + 1, "it has looked")
            # What else looks at the clock takes some of it, too.
            assert runtime.rests_ms[-1] >= 40 * broker_module.REST_SHARE

    asyncio.run(run())


def test_between_two_looks_it_waits_also_after_something_changed() -> None:
    class Waiting(Runtime):
        idle = 0

        async def wait(self, changed: asyncio.Event, timeout_ms: float) -> None:
            self.idle += not changed.is_set()
            await super().wait(changed, timeout_ms)

    async def run() -> None:
        scene = Scene()
        runtime = Waiting(2)
        async with scene.worker(FIRST, runtime=runtime) as (registration, _, _task):
            await until(lambda: registration.holds, "it is held")
            registration.revoke()
            await until(lambda: registration.holds, "it is held again")
            for _ in range(3):
                idle = runtime.idle
                await until(lambda idle=idle: runtime.idle > idle, "nothing is under way")

    asyncio.run(run())


def test_what_another_hand_removes_or_overwrites_is_registered_again() -> None:
    async def run() -> None:
        scene = Scene()
        scene.queues = {"q": 4, "other": 2}
        async with scene.worker(FIRST) as (holder, _, _):
            await until(lambda: len(scene.seen.list_queues()) == 2, "all is registered")
            records = MemoryCoordination(scene.server).store.records
            paths = ["/hqueue/brokers/ids/0", "/hqueue/brokers/topics/q/0"]
            paths.append("/hqueue/brokers/topics/other/0")
            before = {path: record.value for path, record in records.read(paths).items()}

            def is_whole() -> bool:
                return {p: each.value for p, each in records.read(paths).items()} == before

            for path in paths:
                records.delete({path: ANY})
                await until(is_whole, f"{path} is there again")
                records.write({path: Change(b"no record", ANY)})
                await until(is_whole, f"{path} has its value again")
            assert holder.holds

    asyncio.run(run())


def test_who_lost_the_registration_to_another_worker_leaves_the_queues_to_that_one() -> None:
    async def run() -> None:
        scene = Scene()
        async with scene.worker(FIRST) as (first, _, _):
            await until(lambda: scene.seen.list_queues() == {("q", 0): 4}, "it is registered")
            other = MemoryCoordination(scene.server)
            path, record = "/hqueue/brokers/ids/0", encode_broker(BrokerRecord(SECOND, CLUSTER))
            other.store.ephemerals.put([{path: record}], is_own=lambda value: True)
            await until(lambda: not first.holds, "it notices")
            await until(lambda: not scene.seen.list_queues(), "the queues are free")
            other.close()
            await until(lambda: first.holds, "it takes over again")
            await until(lambda: scene.seen.list_queues() == {("q", 0): 4}, "with the queues")

    asyncio.run(run())
