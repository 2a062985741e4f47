"""What every store of ephemeral registrations must do, and the sessions that they live by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from hqueue.errors import HQueueError
from hqueue.metadata import MetadataStore
from hqueue.metadata.ports import (
    ANY,
    Attempt,
    Change,
    Group,
    GuardedWrite,
    Obstacle,
    Record,
    SessionState,
)
from hqueue.metadata.registration import Registration
from hqueue.runtime.clock import SYSTEM_CLOCK
from tests.support.waiting import wait_for

from .conftest import MetadataBackend

Open = Callable[[], MetadataStore]


@pytest.fixture
def root(metadata_backend: MetadataBackend) -> str:
    return metadata_backend.root


def group(root: str, number: int, *, who: bytes = b"me") -> Group:
    """Two registrations beside each other, below a record."""
    return {f"{root}/{number}/what": b"what", f"{root}/{number}/who": who}


def put(store: MetadataStore, *groups: Group, parents: bool = True) -> Attempt:
    return store.ephemerals.put(groups, is_own=lambda value: value == b"me", parents=parents)


def values(store: MetadataStore, *groups: Group) -> dict[str, bytes]:
    found = store.records.read(key for each in groups for key in each)
    return {key: record.value for key, record in found.items()}


# Groups


def test_what_is_registered_is_there_until_the_session_ends(open_store: Open, root: str) -> None:
    one, other = open_store(), open_store()
    groups = [group(root, number) for number in range(20)]
    attempt = put(one, *groups)
    assert attempt.obstacle is None
    assert attempt.session_id == one.session_id is not None
    assert values(other, *groups) == {key: v for each in groups for key, v in each.items()}
    one.close()
    assert values(other, *groups) == {}


def test_below_what_does_not_exist_nothing_is_registered_unless_it_may_be_made(
    open_store: Open, root: str
) -> None:
    store = open_store()
    store.records.create({f"{root}/0": b"v"})
    there, missing = group(root, 0), group(root, 1)
    assert put(store, there, missing, parents=False).obstacle == Obstacle(f"{root}/1/who", None)
    assert values(store, missing) == {}
    assert put(store, there, missing).obstacle is None
    assert len(values(store, there, missing)) == 4


def test_what_another_has_stays_and_the_rest_is_registered(open_store: Open, root: str) -> None:
    one, other = open_store(), open_store()
    taken, free = group(root, 0, who=b"other"), group(root, 1)
    put(one, taken)
    before = other.records.read(taken)
    assert put(other, group(root, 0), free).obstacle == Obstacle(f"{root}/0/who", b"other")
    assert other.records.read(taken) == before
    assert values(other, free) == free
    one.ephemerals.release(taken)
    assert put(other, group(root, 0)).obstacle is None


def test_what_can_only_be_of_one_who_is_dead_is_replaced(open_store: Open, root: str) -> None:
    one, other = open_store(), open_store()
    put(one, group(root, 0))
    before = other.records.read(group(root, 0))
    assert put(other, group(root, 0)).obstacle is None
    after = other.records.read(group(root, 0))
    assert all(after[key].changed > record.changed for key, record in before.items())
    one.close()
    assert other.records.read(group(root, 0)) == after, "it is the other's"


def test_what_is_registered_already_stays_as_it_is_and_gets_new_values(
    open_store: Open, root: str
) -> None:
    store = open_store()
    put(store, group(root, 0), group(root, 1))
    before = store.records.read(group(root, 0))
    assert put(store, group(root, 0), group(root, 1, who=b"new")).obstacle is None
    assert store.records.read(group(root, 0)) == before
    assert values(store, group(root, 1)) == group(root, 1, who=b"new")
    assert put(store, group(root, 0), group(root, 1)).obstacle is None, "whatever its value"


def test_a_group_whose_part_was_removed_is_made_whole(open_store: Open, root: str) -> None:
    one, other = open_store(), open_store()
    put(one, group(root, 0))
    other.records.delete({f"{root}/0/what": ANY})
    assert put(one, group(root, 0)).obstacle is None
    assert values(other, group(root, 0)) == group(root, 0)


# Claims


def test_of_many_that_claim_a_key_one_has_it(open_store: Open, root: str) -> None:
    keys = [f"{root}/owners/{number}" for number in range(60)]
    stores = [open_store() for _ in range(3)]
    with ThreadPoolExecutor(len(stores)) as pool:
        claimed = list(
            pool.map(
                lambda number: set(
                    stores[number].ephemerals.claim(dict.fromkeys(keys, b"%d" % number))
                ),
                range(3),
            )
        )
    assert sorted(key for each in claimed for key in each) == sorted(keys)
    found = stores[0].records.read(keys)
    for number, store in enumerate(stores):
        assert {key for key in keys if found[key].value == b"%d" % number} == claimed[number]
        assert set(store.ephemerals.claim(dict.fromkeys(keys, b"again"))) == claimed[number]


def test_only_what_is_this_session_s_is_released(open_store: Open, root: str) -> None:
    one, other = open_store(), open_store()
    claims = {f"{root}/a": b"one", f"{root}/b": b"one"}
    one.ephemerals.claim(claims)
    other.ephemerals.release([*claims, f"{root}/none"])
    assert values(other, claims) == claims
    one.ephemerals.release([f"{root}/a"], wait=False)
    one.ephemerals.release([f"{root}/a"])
    assert set(other.ephemerals.claim(dict.fromkeys(claims, b"other"))) == {f"{root}/a"}


def test_a_record_is_not_deleted_while_something_is_registered_below_it(
    open_store: Open, root: str
) -> None:
    one, other = open_store(), open_store()
    one.records.create({f"{root}/0": b"v"})
    put(one, group(root, 0), parents=False)
    assert set(other.records.delete({f"{root}/0": ANY})) == {f"{root}/0"}
    one.close()
    assert not other.records.delete({f"{root}/0": ANY})


# What goes by another's hand


def test_of_what_is_this_session_s_the_next_change_is_reported_once_by_whatever_hand(
    open_store: Open, root: str
) -> None:
    one, other = open_store(), open_store()
    keys = [f"{root}/top/{number}" for number in range(20)]
    one.ephemerals.claim(dict.fromkeys(keys[:16], b"one"))
    other.ephemerals.claim(dict.fromkeys(keys[16:18], b"other"))
    changed: list[str] = []
    assert one.ephemerals.own(keys, changed.append) == other.records.read(keys[:16])
    other.records.delete(dict.fromkeys(keys[:2], ANY))  # As an operator does.
    other.ephemerals.put([{keys[2]: b"other"}], is_own=lambda value: True)
    other.records.write({keys[3]: Change(b"new", ANY)})
    one.ephemerals.release([keys[4]])
    wait_for(lambda: len(changed) == 5, "each change is reported")
    assert sorted(changed) == sorted(keys[:5])
    other.records.write({keys[3]: Change(b"newer", ANY)})
    left = [keys[3], *keys[5:16]]
    assert one.ephemerals.own(keys, changed.append) == other.records.read(left)
    assert len(changed) == 5, "each is reported once"
    other.records.delete({keys[3]: ANY})
    wait_for(lambda: changed[5:] == [keys[3]], "it is reported after it was asked about again")
    assert not one.ephemerals.own([], changed.append)


def test_a_registration_comes_back_after_another_hand_or_a_session_s_end_took_it(
    open_store: Open, metadata_backend: MetadataBackend, root: str
) -> None:
    one, other = open_store(), open_store()
    groups = [group(root, number) for number in range(8)]
    failures: list[HQueueError] = []
    registration = Registration(
        one,
        groups,
        is_own=lambda value: False,
        on_obstacle=lambda obstacle: HQueueError("taken", path=obstacle.key),
        on_failure=failures.append,
        parents=True,
    )
    registration.begin()

    def is_there() -> bool:
        return values(other, *groups) == {key: v for each in groups for key, v in each.items()}

    assert is_there()
    other.records.delete({key: ANY for each in groups[2:6] for key in each})
    wait_for(is_there, "what was removed is there again")
    other.records.delete({f"{root}/7/what": ANY})
    wait_for(is_there, "and what was removed of one")
    metadata_backend.expire(one)
    wait_for(is_there, "and what went with the session")
    other.records.delete({key: ANY for each in groups for key in each})
    wait_for(is_there, "and what the next session registered")
    assert not failures
    registration.close()
    assert values(other, *groups) == {}


# Guarded writes


def test_where_something_is_registered_nothing_is_written(open_store: Open, root: str) -> None:
    one, other = open_store(), open_store()
    keys = [f"{root}/{number}" for number in range(3)]
    before = one.records.create(dict.fromkeys(keys, b"1"))
    writes = [GuardedWrite(key, b"2", f"{key}/who") for key in keys]
    put(one, group(root, 1), parents=False)
    assert other.ephemerals.write_where_absent(writes) == Obstacle(f"{root}/1/who", b"me")
    assert other.records.read(keys) == before
    one.close()
    assert other.ephemerals.write_where_absent(writes) is None
    after = other.records.read(keys)
    assert {record.value for record in after.values()} == {b"2"}
    assert all(after[key].version != before[key].version for key in keys)
    assert list(other.records.keys(f"{root}/1", 1)) == [], "nobody looked registered"


def test_where_a_record_is_missing_nothing_is_written(open_store: Open, root: str) -> None:
    store = open_store()
    before = store.records.create({f"{root}/0": b"1"})
    writes = [GuardedWrite(f"{root}/{number}", b"2", f"{root}/{number}/who") for number in (0, 1)]
    assert store.ephemerals.write_where_absent(writes) == Obstacle(f"{root}/1", None)
    assert store.records.read([f"{root}/0", f"{root}/1"]) == before
    assert store.ephemerals.write_where_absent([]) is None


# Watches


class Views:
    """A listener that keeps what was reported to it."""

    def __init__(self) -> None:
        self.told: list[Mapping[str, Record]] = []

    def __call__(self, view: Mapping[str, Record]) -> None:
        self.told.append(view)

    def await_values(self, expected: Mapping[str, bytes], what: str) -> None:
        def seen() -> bool:
            now = self.told[-1] if self.told else None
            return now is not None and {key: r.value for key, r in now.items()} == expected

        wait_for(seen, what, timeout_s=20)


def test_a_watch_tells_what_is_at_its_depth_and_each_change_of_it(
    open_store: Open, root: str
) -> None:
    one, other = open_store(), open_store()
    other.records.create({f"{root}/top/0/a": b"1"})
    views = Views()
    watch = one.watch(f"{root}/top", 2, views)
    views.await_values({f"{root}/top/0/a": b"1"}, "what is there")
    other.ephemerals.claim({f"{root}/top/1/b": b"1"})
    views.await_values({f"{root}/top/0/a": b"1", f"{root}/top/1/b": b"1"}, "what is registered")
    other.records.write({f"{root}/top/0/a": Change(b"2", ANY)})
    views.await_values({f"{root}/top/0/a": b"2", f"{root}/top/1/b": b"1"}, "what is written")
    assert views.told[-1] == one.records.list(f"{root}/top", 2)
    told = len(views.told)
    other.records.create({f"{root}/top/0/a/deeper": b"1", f"{root}/beside/0/a": b"1"})
    other.records.create({f"{root}/top/2": b"higher"})
    other.close()
    views.await_values({f"{root}/top/0/a": b"2"}, "what is gone")
    assert len(views.told) == told + 1
    watch.close()
    one.records.write({f"{root}/top/0/a": Change(b"3", ANY)})
    assert len(views.told) == told + 1


def test_what_is_made_again_with_the_same_value_is_a_change(open_store: Open, root: str) -> None:
    one, other = open_store(), open_store()
    views = Views()
    claim = {f"{root}/top/a": b"1"}
    other.ephemerals.claim(claim)
    one.watch(f"{root}/top", 1, views)
    views.await_values(claim, "the claim")
    first = views.told[-1]
    other.ephemerals.release(claim)
    other.ephemerals.claim(claim)
    wait_for(lambda: views.told[-1] not in (first, {}), "the claim that was made again")
    assert views.told[-1] == one.records.list(f"{root}/top", 1)


# Sessions


def test_a_session_that_ended_takes_what_was_present_with_it_and_another_begins(
    open_store: Open, metadata_backend: MetadataBackend, root: str
) -> None:
    one, other = open_store(), open_store()
    views = Views()
    claims = {f"{root}/top/{number}": b"1" for number in range(20)}
    one.ephemerals.claim(claims)
    before = one.session_id
    states: list[SessionState] = []
    closed: list[bool] = []
    one.on_state(states.append, lambda: closed.append(True))
    one.watch(f"{root}/top", 1, views)
    views.await_values(claims, "the claims")
    metadata_backend.expire(one)
    assert before != one.session_id is not None
    wait_for(lambda: not other.records.list(f"{root}/top", 1), "nothing is present")
    views.await_values({}, "its own watch goes on")
    assert SessionState.LOST in states
    wait_for(lambda: states[-1] is SessionState.CONNECTED, "it is connected again")
    assert set(one.ephemerals.claim(claims)) == set(claims)
    views.await_values(claims, "what is claimed again")
    assert not closed
    one.close()
    assert closed == [True]


def test_a_session_is_confirmed_for_as_long_as_it_is_kept(open_store: Open, root: str) -> None:
    store = open_store()
    store.records.list(root, 1)
    began_ms = SYSTEM_CLOCK.monotonic_ms()
    until_ms = store.confirm()
    kept_ms = store.session_timeout_ms
    assert began_ms + kept_ms <= until_ms <= SYSTEM_CLOCK.monotonic_ms() + kept_ms


def test_a_listener_is_told_the_state_now_and_no_more_when_it_is_closed(
    open_store: Open, metadata_backend: MetadataBackend, root: str
) -> None:
    store = open_store()
    store.records.list(root, 1)
    told: list[SessionState] = []
    watch = store.on_state(told.append)
    assert told == [SessionState.CONNECTED] == [store.state]
    watch.close()
    metadata_backend.expire(store)
    assert told == [SessionState.CONNECTED]
