"""What every coordination service must do: subscriptions, checkpoints, workers and claims."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from hqueue import (
    ClosedError,
    DeliveryOptions,
    HQueueError,
    InvalidInputError,
    MessageID,
    RequestRefusedError,
)
from hqueue.errors import CheckpointMovedError, SubscriberConnectedError, SubscriberNotFoundError
from hqueue.metadata import (
    Address,
    Checkpoint,
    Coordination,
    PartitionKey,
    Presence,
    SessionState,
    SubscriptionKey,
    WorkerRecord,
)
from hqueue.metadata.access_rules import AccessRule, AccessRules, Operation
from hqueue.metadata.append_keys import AppendKey, AppendKeys
from tests.conformance.conftest import Open
from tests.support.waiting import wait_for

HERE, THERE = Address("127.0.0.1", 5_001), Address("127.0.0.1", 5_002)
KEY = SubscriptionKey("q", 0, "s")


def fail(error: HQueueError) -> None:
    raise AssertionError(f"a registration failed: {error}")


def keys(count: int, subscriber: str = "s") -> list[SubscriptionKey]:
    return [SubscriptionKey("q", partition, subscriber) for partition in range(count)]


def register(
    coordination: Coordination,
    count: int = 1,
    presence: Presence | None = None,
    subscriber: str = "s",
) -> Any:
    coordination.checkpoints.create(dict.fromkeys(keys(count, subscriber), MessageID(0)))
    return coordination.subscriptions.register(
        "q", subscriber, presence or Presence(HERE), range(count), fail
    )


class Views:
    """A listener that keeps what was reported to it."""

    def __init__(self) -> None:
        self.told: list[Mapping[Any, Any]] = []
        self.calls_at_once = 0
        self._called = threading.Semaphore()

    def __call__(self, view: Mapping[Any, Any]) -> None:
        if not self._called.acquire(blocking=False):
            self.calls_at_once += 1
            return
        self.told.append(view)
        self._called.release()

    @property
    def last(self) -> Mapping[Any, Any] | None:
        return self.told[-1] if self.told else None

    def await_view(self, condition: Callable[[Mapping[Any, Any]], bool], what: str) -> None:
        wait_for(lambda: self.last is not None and condition(self.last), what, timeout_s=20)


# Subscriptions


def test_a_subscriber_is_present_from_its_registration_to_its_end(open_coordination: Open) -> None:
    one, other = open_coordination(), open_coordination()
    presence = Presence(
        HERE, frozenset({"a", "ä"}), DeliveryOptions(attempts_max=3, delay_ms=50, timeout_ms=1_000)
    )
    registration = register(one, 3, presence)
    listed = other.subscriptions.list("q")
    assert list(listed) == keys(3)
    for found in listed.values():
        assert found is not None
        assert (found.address, found.topics, found.delivery) == (
            HERE,
            presence.topics,
            presence.delivery,
        )
    assert other.subscriptions.list() == listed
    assert other.subscriptions.list("another") == {}
    registration.close()
    registration.close()
    assert other.subscriptions.list("q") == dict.fromkeys(keys(3))


def test_without_a_checkpoint_nobody_becomes_present_anywhere(coordination: Coordination) -> None:
    coordination.checkpoints.create({KEY: MessageID(0)})
    with pytest.raises(SubscriberNotFoundError):
        coordination.subscriptions.register("q", "s", Presence(HERE), [0, 1], fail)
    assert coordination.subscriptions.list("q") == {KEY: None}


def test_a_second_subscriber_of_the_same_name_is_refused_and_harms_nothing(
    open_coordination: Open,
) -> None:
    one, other = open_coordination(), open_coordination()
    registration = register(one, 2)
    before = one.subscriptions.list("q")
    other.checkpoints.create(dict.fromkeys(keys(3), MessageID(0)))
    with pytest.raises(SubscriberConnectedError):
        other.subscriptions.register("q", "s", Presence(THERE), range(3), fail)
    assert one.subscriptions.list("q") == {**before, SubscriptionKey("q", 2, "s"): None}
    assert registration.failure is None


def test_one_that_goes_while_another_waits_makes_room_for_it(open_coordination: Open) -> None:
    one, other = open_coordination(), open_coordination()
    register(one)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(register, other, 1, Presence(THERE))
        with pytest.raises(concurrent.futures.TimeoutError):
            waiting.result(0.3)
        one.close()
        waiting.result(20)
    (present,) = other.subscriptions.list("q").values()
    assert present is not None
    assert present.address == THERE


def test_a_new_one_at_the_very_same_address_replaces_the_old_which_can_not_be_alive(
    open_coordination: Open,
) -> None:
    one, other = open_coordination(), open_coordination()
    old = register(one, 2)
    before = one.subscriptions.list("q")
    register(other, 2)  # It can't have waited for a session that does not end.
    after = other.subscriptions.list("q")
    for key, presence in after.items():
        replaced = before[key]
        assert presence is not None
        assert replaced is not None
        assert presence.revision != replaced.revision
    old.close()
    one.close()
    assert other.subscriptions.list("q") == after, "the old one removes only what is its own"


def test_who_ends_its_session_is_gone_at_once_and_its_checkpoints_stay(
    open_coordination: Open,
) -> None:
    one, other = open_coordination(), open_coordination()
    register(one, 2)
    one.close()
    assert other.subscriptions.list("q") == dict.fromkeys(keys(2))
    assert len(other.checkpoints.read_many(keys(2))) == 2


def test_a_watch_tells_the_whole_view_first_and_after_each_change(open_coordination: Open) -> None:
    one, other = open_coordination(), open_coordination()
    views = Views()
    watch = one.subscriptions.watch(views)
    views.await_view(lambda view: not view, "the empty view")
    first = register(other, 50)
    views.await_view(lambda view: sorted(view) == keys(50), "50 partitions")
    second = register(other, 2, Presence(THERE, frozenset({"t"})), "s2")
    views.await_view(lambda view: len(view) == 52, "another subscriber")
    assert views.last is not None
    assert views.last[SubscriptionKey("q", 1, "s2")].topics == {"t"}
    first.close()
    views.await_view(lambda view: sorted(view) == keys(2, "s2"), "the first is gone")
    assert views.calls_at_once == 0
    watch.close()
    told = len(views.told)
    second.close()
    other.checkpoints.delete(keys(50))
    assert len(views.told) == told


def test_a_watch_sees_who_was_there_before_and_is_not_told_of_checkpoints(
    open_coordination: Open,
) -> None:
    one, other = open_coordination(), open_coordination()
    register(one)
    views = Views()
    other.subscriptions.watch(views)
    views.await_view(lambda view: list(view) == [KEY], "the one that is there")
    checkpoint = one.checkpoints.read(KEY)
    assert checkpoint is not None
    for number in range(1, 20):
        checkpoint = one.checkpoints.compare_and_set(KEY, checkpoint, MessageID(number))
    register(one, 1, subscriber="s2")
    views.await_view(lambda view: len(view) == 2, "a change that is one")
    assert all(len(view) < 3 for view in views.told)
    assert len(views.told) <= 3


def test_a_listener_that_fails_is_told_again(open_coordination: Open) -> None:
    one = open_coordination()
    views = Views()

    def listener(view: Mapping[Any, Any]) -> None:
        views(view)
        raise ValueError("a listener's own fault")

    one.subscriptions.watch(listener)
    views.await_view(lambda view: not view, "the empty view")
    register(one)
    views.await_view(lambda view: len(view) == 1, "the next view")


# Access rules


def test_rules_are_seen_by_others_and_of_changes_at_a_time_none_is_lost(
    open_coordination: Open,
) -> None:
    sessions = [open_coordination() for _ in range(4)]
    told: list[Any] = []
    watch = sessions[0].access_rules.watch(told.append)
    wait_for(lambda: told == [None], "there is no record")
    granted = [AccessRule(f"p{number}", frozenset({Operation.PUBLISH})) for number in range(12)]

    def grant(number: int) -> None:
        record = sessions[number % len(sessions)].access_rules
        record.change(lambda rules: rules.granted(granted[number]))

    with ThreadPoolExecutor(len(sessions)) as pool:
        list(pool.map(grant, range(len(granted))))
    wait_for(lambda: told[-1] == AccessRules(granted), "all rules are seen", timeout_s=20)
    found = sessions[1].access_rules.read()
    assert found is not None
    assert found.revision == told[-1].revision
    watch.close()


# Checkpoints


def test_a_checkpoint_that_exists_wins_over_one_to_be_created(coordination: Coordination) -> None:
    first = coordination.checkpoints.create({KEY: MessageID(5, 1)})
    both = keys(2)
    found = coordination.checkpoints.create(dict.fromkeys(both, MessageID(9)))
    assert found[both[0]] == first[KEY]
    assert found[both[0]].next == MessageID(5, 1)
    assert found[both[1]].next == MessageID(9)
    assert coordination.checkpoints.read_many(keys(3)) == found
    assert coordination.checkpoints.read(SubscriptionKey("q", 7, "s")) is None


def test_a_checkpoint_moves_only_from_what_was_known_of_it(open_coordination: Open) -> None:
    one, other = open_coordination().checkpoints, open_coordination().checkpoints
    known = one.create({KEY: MessageID(1)})[KEY]
    moved = one.compare_and_set(KEY, known, MessageID(2))
    assert moved.next == MessageID(2)
    with pytest.raises(CheckpointMovedError):
        other.compare_and_set(KEY, known, MessageID(3))
    assert other.read(KEY) == moved
    assert other.compare_and_set(KEY, moved, MessageID(2)).next == MessageID(2)


def test_a_checkpoint_never_goes_back_but_by_a_seek(coordination: Coordination) -> None:
    checkpoints = coordination.checkpoints
    known = checkpoints.create({KEY: MessageID(5)})[KEY]
    with pytest.raises(InvalidInputError):
        checkpoints.compare_and_set(KEY, known, MessageID(4, 32_767))
    assert checkpoints.read(KEY) == known
    checkpoints.seek({KEY: MessageID(1)})
    sought = checkpoints.read(KEY)
    assert sought is not None
    assert sought.next == MessageID(1)
    with pytest.raises(CheckpointMovedError):
        checkpoints.compare_and_set(KEY, known, MessageID(6))


def test_a_checkpoint_that_was_deleted_can_not_be_moved(coordination: Coordination) -> None:
    known = coordination.checkpoints.create({KEY: MessageID(5)})[KEY]
    coordination.checkpoints.delete([KEY])
    with pytest.raises(CheckpointMovedError):
        coordination.checkpoints.compare_and_set(KEY, known, MessageID(6))


def test_of_many_that_move_a_checkpoint_at_once_each_step_is_won_by_one(
    open_coordination: Open,
) -> None:
    sessions = [open_coordination() for _ in range(4)]
    sessions[0].checkpoints.create({KEY: MessageID(0)})

    def move(session: Coordination) -> list[Checkpoint]:
        won = []
        while len(won) < 25:
            known = session.checkpoints.read(KEY)
            assert known is not None
            try:
                won.append(
                    session.checkpoints.compare_and_set(
                        KEY, known, MessageID(known.next.timestamp + 1)
                    )
                )
            except CheckpointMovedError:
                continue
        return won

    with ThreadPoolExecutor(len(sessions)) as pool:
        won = [checkpoint for moved in pool.map(move, sessions) for checkpoint in moved]
    assert sorted(checkpoint.next.timestamp for checkpoint in won) == list(range(1, 101))
    assert len({checkpoint.revision for checkpoint in won}) == 100


def test_who_is_present_is_not_sought_nor_forgotten_and_nothing_changes(
    open_coordination: Open,
) -> None:
    one, other = open_coordination(), open_coordination()
    registration = register(one, 3)
    one.checkpoints.create({SubscriptionKey("q", 3, "s"): MessageID(0)})
    four = keys(4)
    before = other.checkpoints.read_many(four)
    with pytest.raises(SubscriberConnectedError):
        other.checkpoints.seek(dict.fromkeys(four, MessageID(9)))
    assert other.checkpoints.read_many(four) == before
    with pytest.raises(SubscriberConnectedError):
        other.checkpoints.delete(keys(3))
    assert other.checkpoints.read_many(four) == before
    registration.close()
    other.checkpoints.seek(dict.fromkeys(four, MessageID(9)))
    assert {c.next for c in other.checkpoints.read_many(four).values()} == {MessageID(9)}


def test_a_seek_makes_nobody_look_present_and_is_refused_where_nobody_is(
    coordination: Coordination,
) -> None:
    coordination.checkpoints.create(dict.fromkeys(keys(2), MessageID(0)))
    coordination.checkpoints.seek(dict.fromkeys(keys(2), MessageID(5)))
    assert coordination.subscriptions.list("q") == dict.fromkeys(keys(2))
    with pytest.raises(SubscriberNotFoundError):
        coordination.checkpoints.seek(dict.fromkeys(keys(3), MessageID(7)))
    found = coordination.checkpoints.read_many(keys(3))
    assert {key: checkpoint.next for key, checkpoint in found.items()} == dict.fromkeys(
        keys(2), MessageID(5)
    )


def test_what_was_deleted_is_forgotten_and_may_be_deleted_again(coordination: Coordination) -> None:
    coordination.checkpoints.create(dict.fromkeys([*keys(2), *keys(1, "s2")], MessageID(0)))
    coordination.checkpoints.delete(keys(2))
    coordination.checkpoints.delete(keys(2))
    assert list(coordination.subscriptions.list("q")) == keys(1, "s2")
    coordination.checkpoints.delete(keys(1, "s2"))
    assert coordination.subscriptions.list() == {}
    assert coordination.checkpoints.create({KEY: MessageID(3)})[KEY].next == MessageID(3)


# Workers


def test_a_worker_is_present_from_its_registration_to_its_end(open_coordination: Open) -> None:
    one, other = open_coordination(), open_coordination()
    views = Views()
    other.workers.watch(views)
    worker = WorkerRecord("w1", HERE, "rs1", 0)
    registration = one.workers.register(worker, fail)
    views.await_view(lambda view: dict(view) == {"w1": worker}, "the worker")
    busier = WorkerRecord("w1", HERE, "rs1", 7)
    one.workers.update(busier)
    views.await_view(lambda view: dict(view) == {"w1": busier}, "its load")
    second = WorkerRecord("w2", THERE, "rs2")
    other.workers.register(second, fail)
    assert one.workers.list() == {"w1": busier, "w2": second}
    registration.close()
    views.await_view(lambda view: dict(view) == {"w2": second}, "the first is gone")


def test_a_worker_of_a_name_that_is_taken_is_refused(open_coordination: Open) -> None:
    one, other = open_coordination(), open_coordination()
    one.workers.register(WorkerRecord("w1", HERE, "rs1"), fail)
    with pytest.raises(RequestRefusedError):
        other.workers.register(WorkerRecord("w1", THERE, "rs1"), fail)
    assert one.workers.list()["w1"].address == HERE
    with pytest.raises(InvalidInputError):
        other.workers.update(WorkerRecord("w1", THERE, "rs1"))


# Owners


def test_of_many_that_claim_a_partition_one_gets_it(open_coordination: Open) -> None:
    partitions = [PartitionKey("q", number) for number in range(40)]
    sessions = {f"w{number}": open_coordination() for number in range(4)}
    with ThreadPoolExecutor(len(sessions)) as pool:
        claimed = dict(
            zip(
                sessions,
                pool.map(lambda item: item[1].owners.claim(item[0], partitions), sessions.items()),
                strict=True,
            )
        )
    assert sorted(key for won in claimed.values() for key in won) == partitions
    listed = sessions["w0"].owners.list()
    assert listed == {key: worker for worker, won in claimed.items() for key in won}
    for worker, session in sessions.items():
        assert session.owners.claim(worker, partitions) == claimed[worker]


def test_only_who_has_a_claim_gives_it_up(open_coordination: Open) -> None:
    one, other = open_coordination(), open_coordination()
    first, second = PartitionKey("q", 0), PartitionKey("q", 1)
    assert one.owners.claim("w1", [first, second]) == {first, second}
    other.owners.release([first, second])
    assert one.owners.list() == {first: "w1", second: "w1"}
    one.owners.release([first])
    one.owners.release([first])
    assert other.owners.claim("w2", [first, second]) == {first}


def test_claims_end_with_their_session_and_a_watch_tells_so(open_coordination: Open) -> None:
    one, other = open_coordination(), open_coordination()
    views = Views()
    other.owners.watch(views)
    one.owners.claim("w1", [PartitionKey("q", 3), PartitionKey("q2", 0)])
    views.await_view(
        lambda view: view == {PartitionKey("q", 3): "w1", PartitionKey("q2", 0): "w1"},
        "both claims",
    )
    one.close()
    views.await_view(lambda view: not view, "the claims have ended")


# The keys of notifications


def test_of_many_that_make_the_first_keys_all_have_those_of_one(open_coordination: Open) -> None:
    sessions = [open_coordination() for _ in range(4)]
    assert sessions[0].append_keys.read() is None
    with ThreadPoolExecutor(4) as pool:
        made = list(
            pool.map(
                lambda each: each.append_keys.replace(None, AppendKeys(AppendKey.random(1))),
                sessions,
            )
        )
    assert made[0] is not None
    assert set(made) == {made[0]} == {each.append_keys.read() for each in sessions}


def test_keys_are_replaced_only_where_they_are_still_what_was_known(
    open_coordination: Open,
) -> None:
    one, other = open_coordination(), open_coordination()
    first = one.append_keys.replace(None, AppendKeys(AppendKey.random(1)))
    assert first is not None
    second = other.append_keys.replace(first, first.renewed(2))
    assert second is not None
    assert (second.previous, second.current.created_ms) == (first.current, 2)
    assert one.append_keys.replace(first, first.renewed(3)) == second
    assert one.append_keys.read() == second


def test_a_watch_tells_of_keys_that_are_made_and_renewed(open_coordination: Open) -> None:
    one, other = open_coordination(), open_coordination()
    told: list[AppendKeys | None] = []
    watch = one.append_keys.watch(told.append)
    wait_for(lambda: told == [None], "no worker is reported")
    first = other.append_keys.replace(None, AppendKeys(AppendKey.random(1)))
    assert first is not None
    wait_for(lambda: told[-1] is not None and told[-1].current == first.current, "the first")
    renewed = first.renewed(2)
    other.append_keys.replace(first, renewed)
    wait_for(lambda: told[-1] is not None and told[-1].current == renewed.current, "the next")
    assert told[-1] is not None
    assert told[-1].previous == first.current
    watch.close()


# The session


def test_a_listener_is_told_the_state_now_and_then_each_change(
    coordination: Coordination,
) -> None:
    told: list[SessionState] = []
    watch = coordination.on_state(told.append)
    assert told == [coordination.state]
    coordination.workers.list()
    wait_for(lambda: told[-1] is SessionState.CONNECTED, "it is connected", timeout_s=20)
    assert coordination.state is SessionState.CONNECTED
    watch.close()


def test_after_its_end_a_session_does_nothing(coordination: Coordination) -> None:
    coordination.workers.list()
    coordination.close()
    coordination.close()
    for operation in (
        coordination.subscriptions.list,
        lambda: coordination.checkpoints.read(KEY),
        lambda: coordination.checkpoints.create({KEY: MessageID(0)}),
        coordination.workers.list,
        lambda: coordination.owners.claim("w", [PartitionKey("q", 0)]),
    ):
        with pytest.raises(ClosedError):
            operation()


@pytest.mark.parametrize("name", ["", "a/b", "..", ".a", "a" * 201])
def test_a_name_that_can_not_be_is_refused_before_anything_happens(
    coordination: Coordination, name: str
) -> None:
    for key in (SubscriptionKey("q", 0, name), SubscriptionKey(name, 0, "s")):
        with pytest.raises(InvalidInputError):
            coordination.checkpoints.create({key: MessageID(0)})
        with pytest.raises(InvalidInputError):
            coordination.checkpoints.read(key)
    with pytest.raises(InvalidInputError):
        coordination.owners.claim("w", [PartitionKey(name, 0)])
    with pytest.raises(InvalidInputError):
        coordination.workers.register(WorkerRecord(name, HERE, "rs"), fail)
    assert coordination.subscriptions.list() == {}
