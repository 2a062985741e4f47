"""What a worker claims, gives up and delivers, as it sees subscribers, workers and claims."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any, cast

import pytest

from hqueue import StoreUnavailableError
from hqueue.metadata import (
    Address,
    Coordination,
    PartitionKey,
    Presence,
    SubscriptionKey,
    WorkerRecord,
)
from hqueue.metadata.ports import MetadataStore
from hqueue.metadata.steps import OnStore, Pause, Work
from hqueue.runtime.stepwise import stepwise
from hqueue_workers.node.claims import Claims
from hqueue_workers.node.lease import Lease
from tests.support.worker_doubles import SteppedRuntime, settle

HERE = Address("127.0.0.1", 1)
ME, OTHER = "me", "other"


class Delivered:
    """A partition that is delivered; it stops when it is let."""

    def __init__(self) -> None:
        self.region_host: str | None = None
        self.subscribers: set[str] = set()
        self.may_stop = asyncio.Event()
        self.may_stop.set()
        self.end = ""
        self.elsewhere: Mapping[str, Presence] = {}

    def assign(self, presences: Mapping[str, Presence]) -> None:
        self.subscribers = set(presences)

    def see_elsewhere(self, presences: Mapping[str, Presence]) -> None:
        self.elsewhere = presences

    async def stop(self) -> None:
        await self.may_stop.wait()
        self.end = self.end or "stopped"

    def abandon(self) -> None:
        self.end = "abandoned"
        self.may_stop.set()


class Service(OnStore):
    """A coordination service that tells its views when it is asked to. Its records lie here."""

    def __init__(self) -> None:
        super().__init__(cast(MetadataStore, None))
        self.subscriptions = self.workers = self.owners = self
        self.listeners: list[Callable[[Any], None]] = []
        self.claimed: dict[PartitionKey, str] = {}
        self.answers = True
        self.when_claimed: list[Callable[[], None]] = []

    def watch(self, listener: Callable[[Any], None]) -> Service:
        self.listeners.append(listener)
        return self

    @stepwise
    def claim(self, worker: str, partitions: Collection[PartitionKey]) -> Work[set[PartitionKey]]:
        for key in partitions:
            self.claimed.setdefault(key, worker)
        claimed = {key for key in partitions if self.claimed[key] == worker}
        while self.when_claimed:
            self.when_claimed.pop()()
        return claimed
        yield

    @stepwise
    def release(self, partitions: Collection[PartitionKey]) -> Work[None]:
        if not self.answers:
            raise StoreUnavailableError("no answer")
        for key in partitions:
            if self.claimed.get(key) == ME:
                del self.claimed[key]
        yield Pause(0.0)

    def guard(self, owner: str, on_change: Callable[[], None]) -> Service:
        self.on_change = on_change
        return self

    @stepwise
    def lost(self, partitions: Collection[PartitionKey]) -> Work[set[PartitionKey]]:
        return {key for key in partitions if self.claimed.get(key) != ME}
        yield

    def close(self) -> None:
        pass


class Held:
    holds = True

    async def wait(self) -> None:
        while not self.holds:
            await asyncio.sleep(0)


class Scene:
    """A worker's claims, and the world that it sees."""

    def __init__(self) -> None:
        self.service = Service()
        self.lease = Held()
        self.runtime = SteppedRuntime()
        self.delivered: dict[PartitionKey, Delivered] = {}
        self.hosts: dict[PartitionKey, str | None] = {}
        self.missing: set[str] = set()
        self.claims: Claims[Delivered] = Claims(
            coordination=cast(Coordination, self.service),
            lease=cast(Lease, self.lease),
            runtime=self.runtime,
            regions=self._regions,
            serve=self._serve,
        )
        self.claims.watch()
        self.runtime.start(self.claims.run(ME))

    async def _regions(
        self, wanted: Collection[PartitionKey], unowned: Collection[str]
    ) -> Mapping[PartitionKey, str | None]:
        return {key: self.hosts.get(key) for key in wanted if key.queue not in self.missing}

    def _serve(self, key: PartitionKey) -> Delivered:
        self.delivered[key] = Delivered()
        return self.delivered[key]

    async def see(self, subscribers: Mapping[str, int], workers: Collection[str] = (ME,)) -> None:
        """Let it see subscribers, each of so many partitions, workers, and all claims."""
        present = {
            SubscriptionKey("q", partition, name): Presence(HERE)
            for name, count in subscribers.items()
            for partition in range(count)
        }
        records = {name: WorkerRecord(name, HERE, "host") for name in workers}
        for listener, view in zip(
            self.service.listeners, (present, records, dict(self.service.claimed)), strict=True
        ):
            listener(view)
        await settle()

    def mine(self) -> set[int]:
        return {key.partition for key, name in self.service.claimed.items() if name == ME}


def play(scene: Callable[[Scene], Any]) -> None:
    async def run() -> None:
        it = Scene()
        await scene(it)
        it.claims.close()
        await it.runtime.close()

    asyncio.run(run())


def key(partition: int) -> PartitionKey:
    return PartitionKey("q", partition)


def test_it_serves_what_has_subscribers_and_gives_up_what_has_none() -> None:
    async def scene(it: Scene) -> None:
        await it.see({"s": 3, "t": 1})
        assert it.mine() == {0, 1, 2}
        assert it.delivered[key(0)].subscribers == {"s", "t"}
        assert it.delivered[key(2)].subscribers == {"s"}
        await it.see({"t": 1})
        assert it.mine() == {0}
        assert it.delivered[key(0)].subscribers == {"t"}
        assert it.delivered[key(2)].end == "stopped"

    play(scene)


def test_it_shares_with_another_and_takes_over_when_that_is_gone() -> None:
    async def scene(it: Scene) -> None:
        it.service.claimed = {key(0): OTHER, key(1): OTHER, key(2): OTHER}
        await it.see({"s": 4}, [ME, OTHER])
        assert it.mine() == {3}
        del it.service.claimed[key(2)]  # The other has given one up, for it has more than half.
        await it.see({"s": 4}, [ME, OTHER])
        assert it.mine() == {2, 3}
        it.service.claimed = dict.fromkeys(map(key, (2, 3)), ME)
        await it.see({"s": 4}, [ME])
        assert it.mine() == {0, 1, 2, 3}

    play(scene)


def test_it_releases_a_partition_only_when_its_calls_have_ended() -> None:
    async def scene(it: Scene) -> None:
        await it.see({"s": 2})
        for delivered in it.delivered.values():
            delivered.may_stop.clear()
        await it.see({"s": 2}, [ME, OTHER])
        assert it.mine() == {0, 1}
        for delivered in it.delivered.values():
            delivered.may_stop.set()
        await settle()
        assert len(it.mine()) == 1

    play(scene)


@pytest.mark.parametrize("cut", ["lease", "service"])
def test_a_claim_that_could_not_be_released_is_released_later(cut: str) -> None:
    async def scene(it: Scene) -> None:
        await it.see({"s": 2})
        for delivered in it.delivered.values():
            delivered.may_stop.clear()
        await it.see({"s": 2}, [ME, OTHER])
        it.lease.holds, it.service.answers = cut != "lease", cut != "service"
        for delivered in it.delivered.values():
            delivered.may_stop.set()
        await settle()
        assert it.mine() == {0, 1}
        it.lease.holds = it.service.answers = True
        await it.see({"s": 2}, [ME, OTHER])
        assert it.mine() == {each.partition for each in it.claims.served}
        assert len(it.mine()) == 1

    play(scene)


def test_what_it_claimed_and_neither_serves_nor_is_to_have_it_releases() -> None:
    async def scene(it: Scene) -> None:
        await it.see({"s": 1})
        it.service.claimed[key(1)] = ME  # The plan changed before it could serve it.
        await it.see({"s": 1})
        assert it.mine() == {0}

    play(scene)


def test_a_claim_whose_answer_was_lost_is_served_or_released() -> None:
    async def scene(it: Scene) -> None:
        def lose_answer() -> None:
            raise StoreUnavailableError("no answer")

        it.service.when_claimed = [lose_answer]
        before = dict(it.service.claimed)
        await it.see({"s": 3})
        assert it.mine() == {0, 1, 2}
        assert not it.delivered
        for view in (before, it.service.claimed):  # What is seen of the claims may be older.
            it.service.listeners[-1](dict(view))
        await it.see({"s": 2})
        assert it.mine() == {each.partition for each in it.claims.served} == {0, 1}

    play(scene)


def test_what_is_being_given_up_ends_at_once_when_another_hand_took_it_away() -> None:
    async def scene(it: Scene) -> None:
        await it.see({"s": 1})
        it.delivered[key(0)].may_stop.clear()
        await it.see({})
        it.service.claimed[key(0)] = OTHER
        it.service.on_change()
        await settle()
        assert it.delivered[key(0)].end == "abandoned"
        assert it.service.claimed == {key(0): OTHER}

    play(scene)


def test_what_is_being_given_up_hears_who_is_present_now() -> None:
    async def scene(it: Scene) -> None:
        await it.see({"s": 1})
        it.delivered[key(0)].may_stop.clear()
        await it.see({})  # Its subscriber is gone; a call that it got may still be answered.
        assert it.mine() == {0}
        assert not it.delivered[key(0)].elsewhere
        await it.see({"s": 1})
        assert it.delivered[key(0)].elsewhere == {"s": Presence(HERE)}

    play(scene)


def test_a_lost_session_ends_everything_at_once_also_what_is_being_given_up() -> None:
    async def scene(it: Scene) -> None:
        await it.see({"s": 2})
        for delivered in it.delivered.values():
            delivered.may_stop.clear()
        await it.see({"s": 2}, [ME, OTHER])
        it.claims.revoke()
        assert {delivered.end for delivered in it.delivered.values()} == {"abandoned"}
        assert not it.claims.served

    play(scene)


def test_a_queue_that_is_away_for_a_moment_is_kept() -> None:
    async def scene(it: Scene) -> None:
        await it.see({"s": 2})
        it.missing = {"q"}
        await it.see({"s": 2, "t": 1})
        assert it.mine() == {0, 1}
        assert it.delivered[key(0)].subscribers == {"s", "t"}

    play(scene)


def test_at_the_end_it_hands_all_over() -> None:
    async def scene(it: Scene) -> None:
        await it.see({"s": 2})
        await it.claims.drain()
        assert it.service.claimed == {}
        assert {delivered.end for delivered in it.delivered.values()} == {"stopped"}
        await it.see({"s": 3})
        assert it.service.claimed == {}

    play(scene)


def test_at_the_end_it_waits_a_moment_for_its_lease() -> None:
    async def scene(it: Scene) -> None:
        await it.see({"s": 2})
        it.lease.holds = False
        draining = asyncio.ensure_future(it.claims.drain())
        await settle()
        assert {delivered.end for delivered in it.delivered.values()} == {"stopped"}
        assert it.service.claimed != {}
        it.lease.holds = True
        await draining
        assert it.service.claimed == {}

    play(scene)


def test_what_was_claimed_by_a_session_that_ended_meanwhile_is_not_served() -> None:
    async def scene(it: Scene) -> None:
        def lose_session() -> None:
            """Another claims one of them, and this worker has a session again."""
            it.service.claimed = {key(0): OTHER}
            it.claims.revoke()

        it.service.when_claimed = [lose_session]
        await it.see({"s": 3})
        assert set(it.delivered) <= it.service.claimed.keys() - {key(0)}
        await it.see({"s": 3}, [ME, OTHER])
        assert set(it.claims.served) == {key(1), key(2)}

    play(scene)


def test_a_claim_that_another_hand_removed_ends_at_once_and_is_claimed_again_if_it_is_free() -> (
    None
):
    async def scene(it: Scene) -> None:
        await it.see({"s": 3})
        first = dict(it.delivered)
        del it.service.claimed[key(0)]
        it.service.claimed[key(1)] = OTHER
        it.service.on_change()
        await settle()
        assert [first[key(n)].end for n in range(3)] == ["abandoned", "abandoned", ""]
        await it.see({"s": 3}, [ME, OTHER])
        assert it.mine() == {0, 2}
        assert it.claims.served[key(0)] is it.delivered[key(0)] is not first[key(0)]
        assert it.claims.served[key(2)] is first[key(2)]

    play(scene)
