"""A record that can't be read stands for itself: others go on, it is named, and it is repaired.

Every kind that groups, workers, subscribers and hubs keep in ZooKeeper, in every way in which it
can be unreadable. Topics' metadata is in ``test_topic_managers.py``, which knows its three stores.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from hqueue import MessageID
from hqueue.errors import HQueueError, UnsupportedFormatError
from hqueue.groups.members import GroupMembers
from hqueue.groups.offsets import GroupOffsets, Position
from hqueue.groups.paths import GroupPaths
from hqueue.groups.plan import GroupPlan
from hqueue.metadata import (
    Address,
    BrokerRecord,
    Coordination,
    PartitionKey,
    Presence,
    SubscriptionKey,
    WorkerRecord,
)
from hqueue.metadata.access_rules import AccessRule, AccessRules, Operation
from hqueue.metadata.append_keys import AppendKey, AppendKeys
from hqueue.metadata.managers import HubInfo
from hqueue.metadata.managers.hubs import Hubs
from hqueue.metadata.owners import Owners
from hqueue.metadata.ports import ANY, Change
from tests.support.garbage import GARBAGE, garbled
from tests.support.waiting import wait_for

from .conftest import OVER_FEW_METADATA_STORES, Open

HERE = Address("127.0.0.1", 5_001)
BAD, GOOD = PartitionKey("q", 0), PartitionKey("q", 1)
BAD_SUB, GOOD_SUB = (SubscriptionKey("q", number, "s") for number in (0, 1))


def fail(error: HQueueError) -> None:
    raise AssertionError(f"a registration failed: {error}")


@dataclasses.dataclass
class Case:
    """Two records of a kind; one of them is about to be made unreadable."""

    path: str
    """Where that one lies."""
    good: Callable[[], object]
    """Whether the other one is read as ever, by another session."""
    repaired: Callable[[], object]
    """Whether that one is read as ever."""
    repair: Callable[[], object] | None = None
    """What repairs it; None where its owner does so by itself."""
    named: Callable[[], object] | None = None
    """Gives the error that names it, or raises that."""


def member(one: Coordination, other: Coordination) -> Case:
    paths = GroupPaths(one.paths.root, "g")
    for name in ("bad", "good"):
        GroupMembers(one.store, paths).registration(name, {"q": 1}, fail).begin()
    seen = GroupMembers(other.store, paths)
    return Case(
        paths.member("bad"),
        lambda: seen.list().get("good") == {"q": 1} and seen.consuming("q") == ["bad", "good"],
        lambda: seen.list().get("bad") == {"q": 1},
    )


def plan(one: Coordination, other: Coordination) -> Case:
    paths = GroupPaths(one.paths.root, "g")
    GroupPlan(one.store, paths).write({BAD: "a"})
    told: list[Any] = []
    GroupPlan(other.store, paths).watch(told.append)
    wait_for(lambda: told == [{BAD: "a"}], "the plan is seen")
    return Case(
        paths.plan,
        lambda: told[-1] in (None, {BAD: "a"}, {BAD: "b"}),  # The one before is followed.
        lambda: told[-1] == {BAD: "b"},
        lambda: GroupPlan(one.store, paths).write({BAD: "b"}),  # As the leader does.
    )


def offset(one: Coordination, other: Coordination) -> Case:
    paths = GroupPaths(one.paths.root, "g")
    offsets, seen = GroupOffsets(one.store, paths), GroupOffsets(other.store, paths)
    known = offsets.take_over("a", [BAD, GOOD])

    def repair() -> None:
        found = offsets.read_or_create("operator", [BAD])
        moves = {BAD: (found[BAD], Position(MessageID(5)))}
        assert offsets.commit("operator", moves).keys() == {BAD}

    def good() -> bool:
        moved = offsets.commit("a", {k: (known[k], Position(MessageID(7))) for k in (BAD, GOOD)})
        known.update(moved)
        return moved.keys() == {GOOD} and seen.list()[GOOD].position.next == MessageID(7)

    return Case(
        paths.offset(BAD),
        good,
        lambda: seen.read([BAD])[BAD].position.next == MessageID(5),
        repair,
        lambda: seen.list()[BAD].unreadable,
    )


def claims(
    owners: Callable[[Coordination], Owners],
) -> Callable[[Coordination, Coordination], Case]:
    def case(one: Coordination, other: Coordination) -> Case:
        own, seen = owners(one), owners(other)
        assert own.claim("me", [BAD, GOOD]) == {BAD, GOOD}
        guard = own.guard("me", lambda: None)
        assert guard.lost([BAD, GOOD]) == set()
        (path,) = one.store.records.read(
            key for key in one.store.records.list(own._paths.owners, 2) if key.endswith("0")
        )

        def is_mended() -> bool:
            assert guard.lost([BAD, GOOD]) == set()  # As its owner asks after each change.
            return seen.list() == {BAD: "me", GOOD: "me"}

        return Case(
            path,
            lambda: seen.list().get(GOOD) == "me" and set(seen.inspect()[1]) <= {BAD},
            is_mended,
        )

    return case


def presence(part: str) -> Callable[[Coordination, Coordination], Case]:
    def case(one: Coordination, other: Coordination) -> Case:
        one.checkpoints.create(dict.fromkeys((BAD_SUB, GOOD_SUB), MessageID(0)))
        shown = Presence(HERE, frozenset("t"))
        one.subscriptions.register("q", "s", shown, [0, 1], fail)

        def listed(key: SubscriptionKey) -> bool:
            found = other.subscriptions.list("q").get(key)
            return found is not None and (found.address, found.topics) == (HERE, shown.topics)

        path = getattr(one.paths, part)(BAD_SUB)
        return Case(path, lambda: listed(GOOD_SUB), lambda: listed(BAD_SUB))

    return case


def checkpoint(one: Coordination, other: Coordination) -> Case:
    one.checkpoints.create(dict.fromkeys((BAD_SUB, GOOD_SUB), MessageID(3)))

    def read(key: SubscriptionKey) -> MessageID | None:
        found = other.checkpoints.inspect([BAD_SUB, GOOD_SUB])[0].get(key)
        return None if found is None else found.next

    def good() -> bool:
        made = other.checkpoints.create(dict.fromkeys((BAD_SUB, GOOD_SUB), MessageID(9)))
        return read(GOOD_SUB) == made[GOOD_SUB].next == MessageID(3)

    return Case(
        one.paths.subscriber(BAD_SUB),
        good,
        lambda: read(BAD_SUB) == MessageID(5),
        lambda: other.checkpoints.seek({BAD_SUB: MessageID(5)}),
        lambda: other.checkpoints.read(BAD_SUB),
    )


def worker(one: Coordination, other: Coordination) -> Case:
    for name in ("bad", "good"):
        one.workers.register(WorkerRecord(name, HERE, "rs"), fail)
    return Case(
        one.paths.worker("bad"),
        lambda: "good" in other.workers.list(),
        lambda: "bad" in other.workers.list(),
    )


def append_keys(one: Coordination, other: Coordination) -> Case:
    keys = AppendKeys(AppendKey(b"\x01" * 8, b"\x02" * 32, 5))
    one.append_keys.replace(None, keys)
    told: list[Any] = []
    other.append_keys.watch(told.append)
    wait_for(lambda: told and told[-1] is not None, "the keys are seen")

    def repair() -> None:
        one.store.records.delete({one.paths.append_keys: ANY})
        one.append_keys.replace(None, keys)

    return Case(
        one.paths.append_keys,
        lambda: True,  # There is no other; batches of notifications count no more.
        lambda: told[-1] is not None and len(told) > 1,
        repair,
        other.append_keys.read,
    )


def access_rules(one: Coordination, other: Coordination) -> Case:
    rule = AccessRule("p", frozenset({Operation.PUBLISH}))
    one.access_rules.change(lambda rules: rules.granted(rule))
    told: list[Any] = []
    other.access_rules.watch(told.append)
    wait_for(lambda: told and isinstance(told[-1], AccessRules), "the rules are seen")

    def repair() -> None:
        one.store.records.delete({one.paths.access_rules: ANY})
        one.access_rules.change(lambda rules: rules.granted(rule))

    def is_mended() -> bool:
        return isinstance(told[-1], AccessRules) and len(told) > 1

    return Case(
        one.paths.access_rules,
        lambda: True,  # There is no other; who reads it goes by the last rules.
        is_mended,
        repair,  # What can't be read is named; but it has no number that could be huge.
    )


def broker(part: str) -> Callable[[Coordination, Coordination], Case]:
    def case(one: Coordination, other: Coordination) -> Case:
        record = BrokerRecord(HERE, "cluster")
        other.brokers.claim(1, record)
        other.brokers.claim_queues(1, {"q": 4})
        assert one.brokers.claim(0, record)
        assert one.brokers.claim_queues(0, {"q": 4})
        guard = one.brokers.guard(0, record, lambda: None)
        path = one.paths.broker(0) if part == "cluster" else one.paths.broker_queue("q", 0)

        def is_mended() -> bool:
            assert guard.lost({"q": 4}) == (False, set())
            return other.brokers.list()[0] == record and other.brokers.list_queues()["q", 0] == 4

        return Case(
            path,
            lambda: 1 in other.brokers.list() and ("q", 1) in other.brokers.list_queues(),
            is_mended,
        )

    return case


def hub(one: Coordination, other: Coordination) -> Case:
    bad, good = (HubInfo(Address("127.0.0.1", port), "i") for port in (1, 2))
    for each in (bad, good):
        Hubs(one.store, one.paths.root, "q").register(each, on_failure=fail)
    seen = Hubs(other.store, other.paths.root, "q")
    return Case(
        f"{one.paths.root}/regions/q/hosts/{bad.address}/alive",
        lambda: good.address in seen.list() and seen.is_available(good),
        lambda: bad.address in seen.list() and seen.is_available(bad),
    )


KINDS: Mapping[str, Callable[[Coordination, Coordination], Case]] = {
    "member": member,
    "plan": plan,
    "offset": offset,
    "claim of a consumer": claims(
        lambda one: Owners(one.store, GroupPaths(one.paths.root, "g"), "consumer")
    ),
    "claim of a worker": claims(lambda one: one.owners),
    "address": presence("address"),
    "topics": presence("topics"),
    "checkpoint": checkpoint,
    "worker": worker,
    "append keys": append_keys,
    "access rules": access_rules,
    "broker": broker("cluster"),
    "queue of a broker": broker("queue"),
    "hub": hub,
}


@pytest.fixture
def pair(open_coordination: Open) -> Iterator[tuple[Coordination, Coordination]]:
    return open_coordination(), open_coordination()


@OVER_FEW_METADATA_STORES
@pytest.mark.parametrize("kind", KINDS)
def test_a_record_that_can_not_be_read_stops_no_other_and_is_repaired(
    pair: tuple[Coordination, Coordination], kind: str
) -> None:
    one, other = pair
    case = KINDS[kind](one, other)
    written = other.store.records.read([case.path])[case.path].value
    for how in GARBAGE:
        garbage = garbled(how, written)
        other.store.records.write({case.path: Change(garbage, ANY)})
        assert case.good(), f"the other one is read beside one that is {how}"
        if case.repair is None:
            wait_for(case.repaired, f"its owner has written over one that is {how}")
            assert other.store.records.read([case.path])[case.path].value == written
            continue
        assert other.store.records.read([case.path])[case.path].value == garbage
        if case.named is not None:
            named = _error(case.named)
            assert named.path == case.path
            assert len(str(named)) < 3_000
        case.repair()
        wait_for(case.repaired, f"one that is {how} is repaired")
        assert case.good()


def _error(named: Callable[[], object]) -> UnsupportedFormatError:
    try:
        found = named()
    except UnsupportedFormatError as exc:
        return exc
    assert isinstance(found, UnsupportedFormatError)
    return found
