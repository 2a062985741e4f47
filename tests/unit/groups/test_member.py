"""Members of one group, over a metadata store in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from hqueue import MessageID
from hqueue.errors import ClosedError, RequestRefusedError
from hqueue.groups.assignors import Assignor, GroupView, assign_range, assign_sticky
from hqueue.groups.member import GroupMember
from hqueue.groups.offsets import UNSET, GroupOffsets, Offset, Position
from hqueue.groups.paths import GroupPaths
from hqueue.metadata import PartitionKey, SessionState
from hqueue.metadata.encoding import encode_offset
from hqueue.metadata.owners import Owners
from hqueue.metadata.ports import ANY, Change
from hqueue.metadata.steps import Work
from hqueue.runtime.program_loop import ProgramLoop
from tests.support.looped import LoopThread
from tests.support.memory.metadata import MemoryServer, MemorySession
from tests.support.steps_in_loop import StepsInLoop
from tests.support.stopping import stopped_at
from tests.support.waiting import wait_for

PATHS = GroupPaths("/hqueue", "a group, of any characters/")
KEYS = tuple(PartitionKey("q", number) for number in range(4))
PARTITIONS: Mapping[PartitionKey, str | None] = dict.fromkeys(KEYS)


class Consumer:
    """A member, and what its consumer knows of it: it gives up at once what it is asked for."""

    def __init__(
        self,
        session: MemorySession,
        name: str,
        *,
        thread: LoopThread | None = None,
        assignor: Assignor = assign_sticky,
        eager: bool = False,
        static: bool = False,
    ) -> None:
        self.session = session
        self.positions: dict[PartitionKey, Position] = {}
        self.lost: set[PartitionKey] = set()
        member = GroupMember(
            session,
            PATHS,
            name,
            {"q": 1},
            assignor=assign_range if eager else assignor,
            eager=eager,
            static=static,
        )
        self.member: Any = member if thread is None else StepsInLoop(member, thread)
        self.member.join()
        self.member.see_partitions(PARTITIONS)

    def turn(self) -> set[PartitionKey]:
        """What a consumer does before it hands out messages; what it may hand out of."""
        changes = self.member.changes()
        self.member.accept(changes.assigned)
        self.lost |= changes.lost
        for key in changes.lost:
            self.positions.pop(key, None)
        self.positions |= {key: offset.position for key, offset in changes.assigned.items()}
        if changes.revoked:
            known = changes.revoked & self.positions.keys()
            revoked = {key: self.positions.pop(key) for key in known}
            self.member.commit(revoked)
            self.member.release(changes.revoked)
        return set(self.positions) if self.member.certain() else set()


@pytest.fixture(params=["threads", "asyncio"])
def join(
    metadata_server: MemoryServer, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Consumer]]:
    """Members, each with a session of its own: of threads, or of one event loop."""
    joined: list[Consumer] = []
    thread = None if request.param == "threads" else LoopThread()

    def join_one(name: str, **options: Any) -> Consumer:
        loop = None if thread is None else thread.call(ProgramLoop)
        joined.append(Consumer(metadata_server.open(loop), name, thread=thread, **options))
        return joined[-1]

    yield join_one
    for consumer in joined:
        consumer.member.close()
        consumer.session.close()
    if thread is not None:
        thread.close()


def settle(*consumers: Consumer, shares: tuple[int, ...]) -> None:
    """Wait until all partitions are shared so, each by one."""

    def settled() -> bool:
        owned = [consumer.turn() for consumer in consumers]
        assert sum(map(len, owned)) == len(set().union(*owned)), "a partition with two owners"
        return sorted(map(len, owned)) == sorted(shares)

    wait_for(settled, f"they share {shares}")


@pytest.mark.parametrize("eager", [False, True], ids=["sticky", "range"])
def test_members_share_the_partitions_as_they_come_and_go(
    join: Callable[..., Consumer], eager: bool
) -> None:
    first = join("a", eager=eager)
    settle(first, shares=(4,))
    second = join("b", eager=eager)
    settle(first, second, shares=(2, 2))
    third = join("c", eager=eager)
    settle(first, second, third, shares=(1, 1, 2))
    second.member.close()
    settle(first, third, shares=(2, 2))


def test_what_stays_is_not_touched_when_another_joins(join: Callable[..., Consumer]) -> None:
    first = join("a")
    settle(first, shares=(4,))
    second = join("b")
    given_up: set[PartitionKey] = set()

    def shared() -> bool:
        before = set(first.positions)
        first.turn()
        given_up.update(before - set(first.positions))
        return len(second.turn()) == 2

    wait_for(shared, "the second has its share")
    assert given_up == set(second.positions)


def test_an_offset_is_where_the_next_owner_begins(join: Callable[..., Consumer]) -> None:
    first = join("a")
    settle(first, shares=(4,))
    assert first.positions == dict.fromkeys(KEYS, UNSET)
    first.positions = {key: Position(MessageID(2_000 + key.partition), 7) for key in KEYS}
    assert not first.member.commit(first.positions)
    first.member.close()
    second = join("b")
    settle(second, shares=(4,))
    assert second.positions == first.positions


def test_a_member_whose_session_ends_loses_all_and_commits_nothing_any_more(
    join: Callable[..., Consumer], metadata_server: MemoryServer
) -> None:
    first = join("a")
    settle(first, shares=(4,))
    held = set(first.positions)
    second = join("b")
    first.session.suspend()

    def taken_over() -> bool:
        certain = first.member.certain()
        owned = second.turn()
        assert not (owned and certain), "both may hand out"
        return len(owned) == 4

    wait_for(taken_over, "the other has all of it")
    first.session.resume()
    assert first.member.commit(dict.fromkeys(held, Position(MessageID(9_000)))) == held
    settle(first, second, shares=(2, 2))
    assert first.lost == held
    offsets = GroupOffsets(metadata_server.open(), PATHS).read(KEYS)
    assert all(offset.position.next < MessageID(9_000) for offset in offsets.values())


def test_what_was_handed_out_before_its_session_ended_is_not_committed_by_its_next_claim(
    join: Callable[..., Consumer],
) -> None:
    first = join("a")
    settle(first, shares=(4,))
    handed = dict.fromkeys(first.positions, Position(MessageID(9_000)))
    first.session.expire()
    assigned: dict[PartitionKey, Offset] = {}

    def claimed_again() -> bool:
        first.member.certain()
        changes = first.member.changes()
        assigned.update(changes.assigned)
        # It is out of the group for a moment: a plan may be without it.
        for key in changes.revoked:
            assigned.pop(key, None)
        first.member.release(changes.revoked)
        return len(assigned) == 4

    wait_for(claimed_again, "it has all of them again")
    assert first.member.commit(handed) == handed.keys()
    first.member.accept(assigned)
    assert not first.member.commit(handed)


def test_a_plan_that_can_not_be_read_moves_nothing_and_is_replaced(
    metadata_server: MemoryServer, join: Callable[..., Consumer]
) -> None:
    first, second = join("a"), join("b")
    settle(first, second, shares=(2, 2))
    held = [set(first.turn()), set(second.turn())]
    records = metadata_server.open().records
    records.write({PATHS.plan: Change(b"no plan", ANY)})
    wait_for(lambda: records.read([PATHS.plan])[PATHS.plan].value != b"no plan", "it is replaced")
    settle(first, second, shares=(2, 2))
    assert [first.turn(), second.turn()] == held


def test_there_is_one_consumer_of_an_id(join: Callable[..., Consumer]) -> None:
    settle(join("a"), shares=(4,))
    with pytest.raises(RequestRefusedError):
        join("a")


def test_a_claim_that_it_does_not_know_of_is_released(
    join: Callable[..., Consumer], metadata_server: MemoryServer
) -> None:
    first, second = join("a"), join("b")
    settle(first, second, shares=(2, 2))
    taken = next(iter(first.positions))
    # As if the answer to its claim had been lost, and then it was another's turn.
    first.member._claiming.taken_away([taken])
    first.positions.pop(taken)
    first.member.see_partitions(PARTITIONS)
    settle(first, second, shares=(2, 2))


def test_a_claim_of_a_session_that_was_taken_for_over_and_lives_is_released(
    join: Callable[..., Consumer],
) -> None:
    first = join("a")
    settle(first, shares=(4,))
    second = join("b")
    wait_for(lambda: first.member.pending.revoked, "it must give some up")
    first.session.lose_sight()
    settle(first, second, shares=(2, 2))


def test_a_claim_under_way_while_its_session_was_taken_for_over_is_made_again(
    join: Callable[..., Consumer],
) -> None:
    first = join("a")
    settle(first, shares=(4,))
    with stopped_at(first.session.ephemerals, "claim", after=True) as (claimed, go_on):
        first.session.expire()
        assert claimed.wait(60)
        first.session.lose_sight()
        go_on.set()
        settle(first, shares=(4,))


def test_a_release_that_outlasts_the_session_leaves_what_was_claimed_after_it(
    join: Callable[..., Consumer], metadata_server: MemoryServer
) -> None:
    first = join("a")
    settle(first, shares=(4,))
    second = join("b")
    revoked: set[PartitionKey] = set()

    def asked() -> bool:
        revoked.update(first.member.changes().revoked)
        return len(revoked) == 2

    wait_for(asked, "it must give up two")
    owners = Owners(metadata_server.open(), PATHS, "consumer")
    ephemerals = first.session.ephemerals

    def lost() -> bool:
        changes = first.member.changes()
        if changes.lost:
            first.positions = {key: offset.position for key, offset in changes.assigned.items()}
        return bool(changes.lost)

    with stopped_at(ephemerals, "release") as (under_way, go_on):
        releasing = threading.Thread(target=first.member.release, args=(revoked,))
        releasing.start()
        assert under_way.wait(30)
        second.member.close()
        first.session.expire()
        wait_for(lost, "it knows that its session was lost")
        go_on.set()
        releasing.join(30)
    settle(first, shares=(4,))
    assert owners.list() == dict.fromkeys(KEYS, "a")
    assert all(map(first.member.owns, KEYS))


def test_a_release_that_comes_when_its_session_is_over_leaves_what_was_claimed_after_it(
    join: Callable[..., Consumer], metadata_server: MemoryServer
) -> None:
    first = join("a")
    settle(first, shares=(4,))
    second = join("b")
    revoked: set[PartitionKey] = set()

    def asked() -> bool:
        revoked.update(first.member.changes().revoked)
        return len(revoked) == 2

    wait_for(asked, "it must give up two")
    second.member.close()
    first.session.expire()
    wait_for(lambda: first.turn() and all(map(first.member.owns, KEYS)), "it has all again")
    first.member.release(revoked)
    owners = Owners(metadata_server.open(), PATHS, "consumer")
    assert owners.list() == dict.fromkeys(KEYS, "a")
    assert all(map(first.member.owns, KEYS))


def test_one_whose_session_ends_while_it_claims_takes_no_offset_from_the_next_owner(
    join: Callable[..., Consumer], metadata_server: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = join("a")
    settle(first, shares=(4,))
    second = join("b")
    take_over = second.member._offsets.take_over
    stands_still, go_on, goes_on = threading.Event(), threading.Event(), threading.Event()

    class StandStill:
        """A step that takes long."""

        def do(self, store: MemorySession) -> None:
            stands_still.set()
            assert go_on.wait(30)

    def slow(*arguments: Any) -> Work[dict[PartitionKey, Offset]]:
        yield StandStill()
        try:
            return (yield from take_over(*arguments))
        finally:
            goes_on.set()

    monkeypatch.setattr(second.member._offsets, "take_over", slow)

    def claims() -> bool:
        first.turn()
        return stands_still.is_set()

    wait_for(claims, "the second has claims")
    second.session.suspend()
    settle(first, shares=(4,))
    second.session.resume()
    go_on.set()
    assert goes_on.wait(30)
    position = Position(MessageID(5_000))
    assert not first.member.commit(dict.fromkeys(KEYS, position))


def test_one_that_fails_says_so(join: Callable[..., Consumer]) -> None:
    def fails_without_partitions(view: GroupView) -> dict[PartitionKey, str]:
        if not view.partitions:
            raise TypeError("a fault")
        return assign_sticky(view)

    first = join("a", assignor=fails_without_partitions)
    settle(first, shares=(4,))
    first.member.see_partitions({})
    wait_for(lambda: first.member.failure, "it has failed")
    assert "TypeError" in str(first.member.failure)


def test_no_lock_is_held_while_a_leader_plans_and_what_is_seen_meanwhile_counts(
    join: Callable[..., Consumer],
) -> None:
    plans, go_on = threading.Event(), threading.Event()

    def slow(view: GroupView) -> dict[PartitionKey, str]:
        if len(view.partitions) > 4:
            plans.set()
            assert go_on.wait(30)
        return assign_sticky(view)

    first = join("a", assignor=slow)
    settle(first, shares=(4,))

    def partitions(count: int) -> Mapping[PartitionKey, None]:
        return {PartitionKey("q", number): None for number in range(count)}

    try:
        first.member.see_partitions(partitions(5))
        assert plans.wait(30)
        other = threading.Thread(
            target=lambda: first.member.see_partitions(partitions(6)), daemon=True
        )
        other.start()
        other.join(10)
        assert not other.is_alive(), "as a loop that other members live in would wait"
    finally:
        go_on.set()
    settle(first, shares=(6,))


def test_one_that_leaves_keeps_what_it_has_until_it_gives_that_up(
    join: Callable[..., Consumer],
) -> None:
    first, second = join("a"), join("b")
    settle(first, second, shares=(2, 2))
    kept = set(first.positions)
    first.member.leave()
    revoked: set[PartitionKey] = set()

    def asked() -> bool:
        revoked.update(first.member.changes().revoked)
        return revoked == kept

    wait_for(asked, "it must give up all")
    assert not any(map(first.member.owns, KEYS))
    assert not second.turn() & kept
    first.member.release(revoked)
    wait_for(lambda: len(second.turn()) == 4, "the other has all of it")


def test_it_owns_for_a_while_only_what_no_session_can_end_for_so_long(
    join: Callable[..., Consumer],
) -> None:
    first = join("a")
    settle(first, shares=(4,))
    timeout_ms = first.session.session_timeout_ms
    assert all(first.member.owns(key, timeout_ms / 2) for key in KEYS)
    assert not first.member.owns(KEYS[0], 2 * timeout_ms)
    assert not first.member.owns(PartitionKey("q", 4))
    first.session.suspend()
    wait_for(lambda: not first.member.owns(KEYS[0], timeout_ms / 2), "it is not certain")
    first.member.close()  # It waits for no connection.
    assert first.session.state is not SessionState.CONNECTED


def test_without_offsets_nothing_is_kept_of_how_far_it_is(metadata_server: MemoryServer) -> None:
    session = metadata_server.open()
    member = GroupMember(session, PATHS, "a", {"q": 1}, assignor=assign_sticky, commits=False)
    member.join()
    member.see_partitions(PARTITIONS)
    assigned: dict[PartitionKey, Offset] = {}

    def has_all() -> bool:
        assigned.update(member.changes().assigned)
        return len(assigned) == 4

    wait_for(has_all, "it has all")
    assert {offset.position for offset in assigned.values()} == {UNSET}
    assert member.commit(dict.fromkeys(KEYS, UNSET)) == []
    assert GroupOffsets(session, PATHS).list() == {}
    member.close()
    session.close()


# Nodes that go by another's hand


def test_a_second_consumer_of_an_instance_id_is_refused_and_never_touches_the_first_one_s_place(
    join: Callable[..., Consumer], metadata_server: MemoryServer
) -> None:
    first, other = join("static", static=True), join("other")
    settle(first, other, shares=(2, 2))
    had, path = set(first.positions), PATHS.member("static")
    store = metadata_server.open()
    before = store.records.read([path])
    changed: list[str] = []
    first.session.ephemerals.own([path], changed.append)
    second = metadata_server.open()
    with pytest.raises(RequestRefusedError, match="another consumer with this ID"):
        Consumer(second, "static", static=True)
    second.close()
    assert store.records.read([path]) == before
    assert changed == [], "it never was another's"
    settle(first, other, shares=(2, 2))
    assert (set(first.positions), first.lost, first.member.failure) == (had, set(), None)


def test_a_second_consumer_that_is_killed_while_it_waits_leaves_the_first_in_the_group(
    join: Callable[..., Consumer], metadata_server: MemoryServer
) -> None:
    first = join("static", static=True)
    settle(first, shares=(4,))
    path, second = PATHS.member("static"), metadata_server.open()
    before = metadata_server.open().records.read([path])
    asked, put = threading.Event(), second.ephemerals.put

    def notice(*args: Any, **options: Any) -> Any:
        attempt = put(*args, **options)
        asked.set()
        return attempt

    second.ephemerals.put = notice  # type: ignore[method-assign]
    errors: list[Exception] = []

    def wait() -> None:
        try:
            Consumer(second, "static", static=True)
        except Exception as exc:
            errors.append(exc)

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert asked.wait(30)
    second.close()
    waiting.join(30)
    assert isinstance(errors[0], ClosedError)
    assert metadata_server.open().records.read([path]) == before
    settle(first, shares=(4,))


def test_a_static_member_that_left_has_a_successor_at_once_and_nothing_moves(
    join: Callable[..., Consumer],
) -> None:
    first, other = join("static", static=True), join("other")
    settle(first, other, shares=(2, 2))
    had, others = set(first.positions), set(other.positions)
    first.member.close()
    again = join("static", static=True)
    settle(again, other, shares=(2, 2))
    assert (set(again.positions), set(other.positions)) == (had, others)
    first.session.close()
    settle(again, other, shares=(2, 2))
    assert (set(again.positions), again.lost, other.lost) == (had, set(), set())


def test_a_static_member_that_died_has_a_successor_when_its_session_is_over_and_nothing_moves(
    join: Callable[..., Consumer],
) -> None:
    first, other = join("static", static=True), join("other")
    settle(first, other, shares=(2, 2))
    had, others = set(first.positions), set(other.positions)
    first.session.suspend()
    again = join("static", static=True)
    settle(again, other, shares=(2, 2))
    assert (set(again.positions), set(other.positions), other.lost) == (had, others, set())
    first.session.resume()
    wait_for(lambda: first.member.failure, "the one whose session ended says what is the matter")
    assert isinstance(first.member.failure, RequestRefusedError)
    first.member.close()
    settle(again, other, shares=(2, 2))


@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
def test_a_member_whose_node_is_removed_is_in_the_group_again(
    join: Callable[..., Consumer], metadata_server: MemoryServer, static: bool
) -> None:
    first, second = join("a", static=static), join("b", static=static)
    settle(first, second, shares=(2, 2))
    operator = metadata_server.open()
    for _ in range(3):
        operator.records.delete({PATHS.member("b"): ANY})
        wait_for(lambda: operator.records.read([PATHS.member("b")]), "it is registered again")
    settle(first, second, shares=(2, 2))
    assert first.member.failure is second.member.failure is None


def test_a_claim_that_is_removed_is_lost_and_claimed_again_unless_another_was_quicker(
    join: Callable[..., Consumer], metadata_server: MemoryServer
) -> None:
    first, second = join("a"), join("b")
    settle(first, second, shares=(2, 2))
    assert not first.member.commit(dict.fromkeys(first.positions, Position(MessageID(5))))
    had, operator = set(first.positions), metadata_server.open()
    removed, taken = sorted(had)
    operator.ephemerals.put([{PATHS.owner(taken): b"?"}], is_own=lambda value: True)
    operator.records.delete({PATHS.owner(removed): ANY})
    wait_for(lambda: (first.turn(), first.lost)[1] == had, "it hears of both")
    wait_for(lambda: removed in first.turn(), "it has again what nobody else has")
    assert first.positions[removed] == Position(MessageID(5))
    assert taken not in first.positions
    assert not first.member.owns(taken)
    operator.close()
    settle(first, second, shares=(2, 2))
    assert set(first.positions) == had


def test_what_somebody_writes_over_a_member_or_a_claim_is_written_over_again(
    join: Callable[..., Consumer], metadata_server: MemoryServer
) -> None:
    first, second = join("a"), join("b")
    settle(first, second, shares=(2, 2))
    operator = metadata_server.open()
    paths = [PATHS.member("a"), PATHS.member("b"), *map(PATHS.owner, KEYS)]
    before = {path: record.value for path, record in operator.records.read(paths).items()}
    for value in (b"", b"no record", b'{"version": 2}'):
        operator.records.write({path: Change(value, ANY) for path in paths})
        wait_for(
            lambda: {p: r.value for p, r in operator.records.read(paths).items()} == before,
            "all is as it was",
        )
    settle(first, second, shares=(2, 2))
    assert first.member.failure is second.member.failure is None


def test_a_member_whose_offset_was_removed_takes_it_over_where_it_committed_last(
    join: Callable[..., Consumer],
) -> None:
    one = join("one")
    settle(one, shares=(4,))
    committed = Position(MessageID(7), 7)
    assert not one.member.commit(dict.fromkeys(KEYS, committed))
    path = PATHS.offset(KEYS[1])
    records = one.session.records
    records.delete({path: records.read([path])[path].version})
    assert one.member.commit(dict.fromkeys(KEYS, Position(MessageID(9), 9))) == {KEYS[1]}
    wait_for(lambda: len(one.turn()) == 4 and KEYS[1] in one.lost, "it has the partition again")
    assert one.lost == {KEYS[1]}
    assert one.positions[KEYS[1]] == committed
    assert GroupOffsets(one.session, PATHS).read(KEYS)[KEYS[1]].position == committed
    assert not one.member.commit(dict.fromkeys(KEYS, Position(MessageID(11), 11)))


@pytest.mark.parametrize("value", [b"no record", None])
def test_a_member_whose_offset_was_written_over_goes_on_from_what_is_there(
    join: Callable[..., Consumer], value: bytes | None
) -> None:
    one = join("one")
    settle(one, shares=(4,))
    assert not one.member.commit(dict.fromkeys(KEYS, Position(MessageID(7), 7)))
    there = encode_offset(MessageID(3), 3, "another program removed") if value is None else value
    one.session.records.write({PATHS.offset(KEYS[1]): Change(there, ANY)})
    assert one.member.commit({KEYS[1]: Position(MessageID(9), 9)}) == {KEYS[1]}
    got: dict[PartitionKey, Offset] = {}

    def comes_again() -> bool:
        got.update(one.member.changes().assigned)
        return KEYS[1] in got

    wait_for(comes_again, "it has the partition again")
    assert (got[KEYS[1]].unreadable is not None) == (value is not None)
    assert got[KEYS[1]].position == (Position(MessageID(3), 3) if value is None else UNSET)
    one.member.accept(got)
    assert not one.member.commit({KEYS[1]: Position(MessageID(11), 11)})


def test_what_is_given_up_while_its_commit_is_refused_comes_to_another(
    join: Callable[..., Consumer],
) -> None:
    one = join("one")
    settle(one, shares=(4,))
    two = join("two")
    revoked: set[PartitionKey] = set()

    def is_to_give_up() -> bool:
        revoked.update(one.member.changes().revoked)
        return bool(revoked)

    wait_for(is_to_give_up, "it must give something up")
    paths = {PATHS.offset(key): Change(b"no record", ANY) for key in revoked}
    one.session.records.write(paths)
    at = dict.fromkeys(revoked, Position(MessageID(9), 9))
    assert one.member.commit(at) == revoked
    one.member.release(revoked)
    for key in revoked:
        one.positions.pop(key)
    settle(one, two, shares=(2, 2))
    assert not revoked & one.positions.keys()


def test_members_share_the_partitions_also_if_the_plan_is_made_beside_the_loop(
    join: Callable[..., Consumer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hqueue.groups.member.HERE_MAX", 0)
    first, second = join("a"), join("b")
    settle(first, second, shares=(2, 2))
    assert first.member.failure is second.member.failure is None


def test_an_idle_member_says_so_and_leaves_its_group(
    metadata_server: MemoryServer, join: Callable[..., Consumer]
) -> None:
    said: list[bool] = []

    async def on_idle() -> None:
        said.append(bool(session.records.read([PATHS.member("a")])))

    session = metadata_server.open()
    idle = GroupMember(
        session,
        PATHS,
        "a",
        {"q": 1},
        assignor=assign_sticky,
        idle_ms_max=200,
        on_idle=on_idle,
    )
    idle.join()
    idle.see_partitions(PARTITIONS)
    wait_for(lambda: idle.idle, "it leaves")
    settle(join("b"), shares=(4,))
    assert said == [True], "before it leaves"
    assert idle.failure is None
    idle.close()
    session.close()
