"""Owners of topics append by walking: what another owner's control record says holds for them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import pytest

from hqueue import InvalidInputError, Message, MessageID, Outcome, Settings, StoreUnavailableError
from hqueue.errors import OwnershipLostError, TopicFencedError, UnsupportedFormatError
from hqueue.format.cells import control_record, encode_bodies
from hqueue.log import Appended, PartitionReader, PartitionWriter
from hqueue.log.owned_writer import OwnedBatch, OwnedPartitionWriter, made
from hqueue.log.ports import header_of
from hqueue.log.steps import Work
from hqueue.message_id import id_of
from hqueue.runtime.clock import Deadline, drive
from hqueue.settings.limits import HEADER_GRACE_MS, MESSAGE_ID_MAX
from tests.support.doubles import SteppedClock
from tests.support.memory.cluster import MemoryCluster
from tests.support.memory.memory_store import MemoryStore
from tests.support.memory.network import Network
from tests.support.proxy import Fate

Result = TypeVar("Result")

START_MS = 1_700_000_000_000.0
TTL_S = 3_600


class Owner:
    """A hub's writer of partition 0, and what it reported."""

    def __init__(self, world: World) -> None:
        self.network = Network()
        self._clock = world.clock
        settings = Settings(zookeeper="unused:1")
        self.log = MemoryStore(world.cluster, settings, world.clock, self.network).log("q")
        self.fenced: list[tuple[str, int]] = []
        self.settled: list[tuple[OwnedBatch, Appended | None]] = []
        self.writer = OwnedPartitionWriter(
            0,
            on_fence=lambda topic, epoch: self.fenced.append((topic, epoch)),
            on_settled=lambda batch, appended: self.settled.append((batch, appended)),
            clock=world.clock,
        )
        self.do(self.writer.open)

    def deadline(self) -> Deadline:
        return Deadline(self._clock, 2_000)

    def do(self, decide: Callable[[Deadline], Work[Result]]) -> Result:
        deadline = self.deadline()
        return drive(decide(deadline), self.log, deadline)

    def append(self, topic: str, value: bytes = b"x", floor: int = 0) -> Appended:
        batch = OwnedBatch(encode_bodies([Message(topic, value)]), floor)
        appended = self.do(partial(self.writer.append, partial(made, batch)))
        assert appended is not None
        return appended

    def close(self, floor: int = 0, **epochs: int) -> MessageID:
        return self.do(partial(self.writer.close_ranges, epochs, floor=floor))


class World:
    """A queue of one partition in memory, in stepped time."""

    def __init__(self) -> None:
        self.clock = SteppedClock(START_MS)
        self.cluster = MemoryCluster(self.clock)
        self.cluster.create("q", 1, TTL_S, {}, "token")

    def values(self) -> list[tuple[str, int]]:
        """Topic and ID of what a reader finds."""
        reader = PartitionReader(0, Owner(self).log, clock=self.clock)
        found = []
        while batches := reader.read(Deadline(self.clock, 1_000)):
            for batch in batches:
                found += [
                    (entry.topic, batch.header.base + entry.first) for entry, _ in batch.cells
                ]
        return found


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def owner(world: World) -> Owner:
    owner = Owner(world)
    owner.writer.own("t", 1)
    return owner


def test_a_deposed_owner_meets_the_record_before_it_wins_another_slot(
    world: World, owner: Owner
) -> None:
    before = owner.append("t")
    other = Owner(world)
    closed = other.close(t=2)
    with pytest.raises(TopicFencedError) as caught:
        owner.append("t")
    assert caught.value.outcome is Outcome.NOT_APPLIED
    assert owner.fenced == [("t", 2)]
    assert before.base < closed
    assert world.values() == [("t", before.base)]
    other.writer.own("t", 2)
    assert other.append("t", floor=closed + 1).base > closed
    assert world.values()[-1][1] > closed


def test_a_batch_says_by_which_ownership_its_messages_were_taken_in(
    world: World, owner: Owner
) -> None:
    owner.append("t")
    owner.writer.own("u", 7)
    owner.writer.own("t", 2)  # By the same process, whose record comes later.
    both = encode_bodies([Message("t", b""), Message("u", b"")])
    owner.do(partial(owner.writer.append, partial(made, OwnedBatch(both, 0, {"t": 1}))))
    rows = owner.log.headers(0, 0, 10)
    assert [header_of(row).owner_epochs for row in rows] == [{"t": 1}, {"t": 1, "u": 7}]
    with pytest.raises(TopicFencedError):
        owner.do(partial(owner.writer.append, partial(made, OwnedBatch(both, 0, {"t": 3}))))


def test_one_that_made_its_batch_before_the_record_came_is_fenced_all_the_same(
    world: World, owner: Owner
) -> None:
    owner.append("t")
    calls = []

    def make() -> Work[OwnedBatch | None]:
        calls.append(1)
        if len(calls) > 1:
            return made(None)
        Owner(world).close(t=2)  # It stands still here, between making and sending.
        return made(OwnedBatch(encode_bodies([Message("t", b"late")])))

    assert owner.do(partial(owner.writer.append, make)) is None
    assert owner.fenced == [("t", 2)]
    assert len(world.values()) == 1


def test_a_record_of_the_same_epoch_or_of_another_topic_fences_nobody(
    world: World, owner: Owner
) -> None:
    Owner(world).close(t=1, u=9)
    owner.append("t")
    assert owner.fenced == []
    assert owner.writer.epoch_of("t") == 1


def test_its_own_record_fences_itself_below_that_epoch(owner: Owner) -> None:
    owner.writer.own("u", 1)
    owner.close(t=2, u=1)
    assert owner.fenced == [("t", 2)]
    owner.append("u")
    with pytest.raises(TopicFencedError):
        owner.append("t")


def test_ids_are_not_below_the_floor_neither_of_messages_nor_of_records(owner: Owner) -> None:
    floor = id_of(int(START_MS) + 60_000)
    assert owner.append("t", floor=floor).base == floor
    assert owner.close(t=1, floor=floor + 100) == floor + 100
    assert owner.writer.end == floor + 101


def test_many_topics_are_closed_by_as_many_records_as_they_fill(world: World, owner: Owner) -> None:
    names = {f"{number:04}" + "n" * 240: 5 for number in range(600)}
    for name in names:
        owner.writer.own(name, 4)
    last = Owner(world).close(**names)
    assert owner.append("t").base > last
    assert dict(owner.fenced) == names
    assert owner.writer.epoch_of("t") == 1


@pytest.mark.parametrize("fate", [Fate.LOSE_ANSWER, Fate.HOLD, Fate.LOSE_REQUEST])
def test_what_became_of_a_batch_in_doubt_is_settled_before_the_next(
    world: World, owner: Owner, fate: Fate
) -> None:
    fates = {"put_if_absent": fate}
    owner.network.fate = lambda operation: fates.get(operation, Fate.PASS)
    fates["backwards"] = Fate.LOSE_REQUEST
    batch = OwnedBatch(encode_bodies([Message("t", b"doubtful")]))
    with pytest.raises(StoreUnavailableError) as caught:
        owner.do(partial(owner.writer.append, partial(made, batch)))
    assert caught.value.outcome is Outcome.UNKNOWN
    assert owner.settled == []
    fates.clear()
    owner.network.deliver()
    after = owner.append("t")
    ((settled, appended),) = owner.settled
    assert settled.bodies.cells == batch.bodies.cells
    assert appended is not None
    assert world.values() == [("t", appended.base), ("t", after.base)]


def test_a_batch_in_doubt_whose_slot_another_took_is_settled_as_not_applied(
    world: World, owner: Owner
) -> None:
    owner.append("t")
    owner.network.fate = lambda operation: Fate.PASS if operation == "newest" else Fate.LOSE_REQUEST
    with pytest.raises(StoreUnavailableError) as caught:
        owner.append("t", b"doubtful")
    assert caught.value.outcome is Outcome.UNKNOWN
    Owner(world).close(t=2)
    owner.network.fate = lambda operation: Fate.PASS
    with pytest.raises(TopicFencedError) as fenced:
        owner.append("t")
    assert fenced.value.outcome is Outcome.NOT_APPLIED
    assert [appended for _, appended in owner.settled] == [None]
    assert len(world.values()) == 1


def test_one_that_stood_still_until_its_headers_were_collected_owns_nothing(
    world: World, owner: Owner
) -> None:
    owner.append("t")
    other = Owner(world)
    other.close(t=2)
    writer = PartitionWriter(0, world.clock)
    for _ in range(2):
        world.clock.now_ms += TTL_S * 1_000 + HEADER_GRACE_MS + 1
        other.do(partial(writer.append, encode_bodies([Message("u", b"")])))
    assert other.do(lambda _: writer.collect(world.clock.wall_ms() - TTL_S * 1_000)) > 0
    with pytest.raises(OwnershipLostError):
        owner.append("t")
    assert owner.fenced == []
    with pytest.raises(OwnershipLostError):
        owner.append("t")
    with pytest.raises(OwnershipLostError):
        owner.writer.own("t", 1)
    owner.do(owner.writer.open)
    with pytest.raises(TopicFencedError):
        owner.append("t")


def test_after_a_truncation_it_owns_nothing(world: World, owner: Owner) -> None:
    owner.append("t")
    world.clock.now_ms += 10_000
    world.cluster.disable("q")
    world.cluster.truncate("q")
    with pytest.raises(OwnershipLostError):
        owner.append("t")


def test_a_record_of_a_newer_release_ends_its_ownership(world: World, owner: Owner) -> None:
    other = PartitionWriter(0, world.clock)
    Owner(world).do(partial(other.append, control_record(b"\x02whatever")))
    with pytest.raises(UnsupportedFormatError) as caught:
        owner.append("t")
    assert caught.value.version == 2
    with pytest.raises(OwnershipLostError):
        owner.append("t")


def test_it_gets_in_between_others_and_calls_for_its_batch_again(
    world: World, owner: Owner
) -> None:
    owner.append("t")
    other = PartitionWriter(0, world.clock)
    others, calls = Owner(world), []

    def make() -> Work[OwnedBatch | None]:
        calls.append(1)
        if len(calls) < 3:
            others.do(partial(other.append, encode_bodies([Message("u", b"")] * 3)))
        return made(OwnedBatch(encode_bodies([Message("t", b"")])))

    appended = owner.do(partial(owner.writer.append, make))
    assert appended is not None
    assert appended.contended
    assert [topic for topic, _ in world.values()] == ["t", "u", "u", "t"]


def test_a_silent_owner_asks_nothing_of_the_store_for_a_second(owner: Owner) -> None:
    owner.append("t")
    owner.network.calls.clear()
    owner.append("t")
    assert dict(owner.network.calls) == {"put_if_absent": 1}


def test_senseless_input_is_refused_before_anything_is_sent(owner: Owner) -> None:
    owner.network.calls.clear()
    with pytest.raises(InvalidInputError):
        owner.writer.own("t", -1)
    with pytest.raises(InvalidInputError):
        owner.do(partial(owner.writer.close_ranges, {}))
    with pytest.raises(InvalidInputError):
        owner.do(partial(owner.writer.close_ranges, {"": 1}))
    with pytest.raises(InvalidInputError):
        owner.do(partial(owner.writer.close_ranges, {"t": 2**63}))
    with pytest.raises(InvalidInputError):
        owner.do(partial(owner.writer.close_ranges, {"t": 2}, floor=MESSAGE_ID_MAX))
    with pytest.raises(InvalidInputError):
        OwnedBatch(encode_bodies([Message("t", b"")]), -1)
    with pytest.raises(InvalidInputError):
        owner.do(partial(owner.writer.append, partial(made, OwnedBatch(control_record(b"")))))
    assert not owner.network.calls["put_if_absent"]
