"""What an error says of changes that were made, might have been made, or were not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from hqueue import Settings
from hqueue.errors import ClosedError, HQueueError, Outcome, RequestRefusedError
from hqueue.metadata.ports import ANY, NEW, Change, Version
from hqueue.runtime.clock import Deadline
from hqueue.runtime.steps import Work
from hqueue.zookeeper import ZooKeeperStore, session, writing
from hqueue.zookeeper.member import Member
from tests.conformance.test_lost_answers import ask
from tests.support.memory.zookeeper import MemoryZooKeeper
from tests.support.proxy import Fate, Proxy
from tests.support.zookeeper_faults import zookeeper_proxy

PATHS = [f"/top-{number}" for number in range(4)]


@pytest.fixture
def keeper() -> Iterator[MemoryZooKeeper]:
    with MemoryZooKeeper() as found:
        yield found


@pytest.fixture
def proxy(keeper: MemoryZooKeeper) -> Iterator[Proxy]:
    with zookeeper_proxy(f"127.0.0.1:{keeper.port}") as found:
        yield found


@pytest.fixture
def store(proxy: Proxy) -> Iterator[ZooKeeperStore]:
    opened = ZooKeeperStore(
        Settings(zookeeper=f"127.0.0.1:{proxy.port}", zookeeper_session_timeout_ms=20_000)
    )
    opened.records.create(dict.fromkeys(PATHS, b"before"))
    yield opened
    opened.close()


def outcome(error: type[HQueueError], operation: Callable[[], object]) -> Outcome:
    with pytest.raises(error) as caught:
        operation()
    return caught.value.outcome


def test_what_is_refused_when_a_look_up_has_cleared_the_doubt_was_not_done(
    keeper: MemoryZooKeeper, proxy: Proxy, store: ZooKeeperStore
) -> None:
    change = {PATHS[0]: Change(b"after", Version(0))}

    def write(fate: Fate) -> Outcome:
        return outcome(
            RequestRefusedError,
            lambda: ask(
                proxy,
                lambda: store.records.write(change),
                fate,
                lambda: keeper.refused.add(PATHS[0]),
            ),
        )

    assert write(Fate.LOSE_REQUEST) is Outcome.NOT_APPLIED


def test_what_was_sent_before_the_client_was_closed_may_have_been_done(
    proxy: Proxy, store: ZooKeeperStore
) -> None:
    change = {PATHS[0]: Change(b"after", Version(0))}
    assert (
        outcome(
            ClosedError,
            lambda: ask(proxy, lambda: store.records.write(change), Fate.LOSE_ANSWER, store.close),
        )
        is Outcome.UNKNOWN
    )


def test_of_changes_that_are_refused_alone_nothing_was_done(
    keeper: MemoryZooKeeper, store: ZooKeeperStore
) -> None:
    keeper.refused |= {*PATHS, "/new"}
    for changes in (
        dict.fromkeys(PATHS[:1], Change(b"after", ANY)),
        dict.fromkeys(PATHS, Change(b"after", ANY)),
        {"/new": Change(b"after", NEW)},
        {"/new/below": Change(b"after", NEW)},
    ):
        assert (
            outcome(RequestRefusedError, lambda: store.records.write(changes))  # noqa: B023
            is Outcome.NOT_APPLIED
        ), changes
    keeper.refused = {PATHS[0]}
    changes = dict.fromkeys(PATHS, Change(b"after", ANY))
    assert outcome(RequestRefusedError, lambda: store.records.write(changes)) is Outcome.UNKNOWN


@pytest.mark.parametrize("error", [ClosedError, RequestRefusedError])
def test_what_comes_after_changes_that_were_made_does_not_undo_them(
    keeper: MemoryZooKeeper,
    store: ZooKeeperStore,
    monkeypatch: pytest.MonkeyPatch,
    error: type[HQueueError],
) -> None:
    monkeypatch.setattr(writing, "TOGETHER_MAX", 1)
    monkeypatch.setattr(session, "PIPELINED_MAX", 1)
    primary, asked = store.session.members.primary, []

    def primary_until_it_ends(deadline: Deadline) -> Work[Any, Member]:
        asked.append(1)
        if len(asked) > 2:
            raise error("nothing more comes")
        return (yield from primary.steps(deadline))

    ending = SimpleNamespace(steps=primary_until_it_ends)
    monkeypatch.setattr(store.session.members, "primary", ending)
    changes = dict.fromkeys(PATHS, Change(b"after", ANY))
    assert outcome(error, lambda: store.records.write(changes)) is Outcome.UNKNOWN
    monkeypatch.undo()
    values = [record.value for record in store.records.read(PATHS).values()]
    assert values == [b"after"] + [b"before"] * 3
