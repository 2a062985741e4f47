"""Many requests under way, by few threads."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import CancelledError, Future
from typing import Any

import pytest

from hqueue import BufferFullError, ClosedError, HQueueError, Outcome, StoreUnavailableError
from hqueue.errors import BadVersionError
from hqueue.metadata.fields import FieldChange, FieldRecord
from hqueue.metadata.managers import (
    MemoryFields,
    Pipeline,
    Rows,
    SubscriptionDataManager,
    TopicOwnershipManager,
    TopicPersistenceManager,
    Versioned,
    pipeline,
)
from hqueue.metadata.outcomes import partly_done
from hqueue.metadata.ports import ANY, NEW, Version
from tests.support.metadata_kinds import owner, ranges, subscription
from tests.support.waiting import wait_for

LAYOUT = Rows("/hqueue", "q")


class GatedFields(MemoryFields):
    """A store that answers when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.open = threading.Event()
        self.asked: list[list[str]] = []
        self.free: set[str] = set()
        """Keys that it answers for at any time."""
        self.error: BaseException | None = None

    def read(self, keys: Iterable[str]) -> dict[str, FieldRecord]:
        self._pass(keys)
        return super().read(keys)

    def write(self, changes: Mapping[str, FieldChange]) -> dict[str, Version | None]:
        self._pass(changes)
        return super().write(changes)

    def delete(self, versions: Mapping[str, Version]) -> dict[str, bool]:
        self._pass(versions)
        return super().delete(versions)

    def _pass(self, keys: Iterable[str]) -> None:
        self.asked.append([*keys])
        assert self.free.issuperset(keys) or self.open.wait(30)
        if self.error is not None:
            raise self.error


@pytest.fixture
def store() -> GatedFields:
    return GatedFields()


def change(number: int, version: Version = ANY) -> FieldChange:
    return FieldChange({"f": b"%d" % number}, version)


def same(answer: Any) -> Any:
    """What is made of an answer: the answer."""
    return answer


def test_who_waits_gets_what_is_made_of_the_answer_or_its_error(store: GatedFields) -> None:
    store.open.set()
    line = Pipeline(store, 20)

    def refuse(answer: object) -> object:
        raise BadVersionError("no")

    written = line.write("a", change(1, NEW), lambda version: (version, "made"))
    assert written.result(30)[1] == "made"
    read = line.read("a", lambda found: line.read("b", lambda other: (found, other)))
    found, other = read.result(30)
    assert (found.fields, other) == ({"f": b"1"}, None)
    for refused in (line.read("a", refuse), line.read("a", lambda _: line.read("b", refuse))):
        with pytest.raises(BadVersionError):
            refused.result(30)


def test_what_waits_goes_together(store: GatedFields) -> None:
    line = Pipeline(store, 20)
    first = [line.read("a", same), line.read("b", same)]
    wait_for(lambda: store.asked, "something is asked")
    later = [line.read(f"k{number}", same) for number in range(600)]
    store.open.set()
    for future in first + later:
        assert future.result(30) is None
    assert sum(map(len, store.asked)) == 602
    assert max(map(len, store.asked)) == pipeline.TOGETHER_MAX
    assert len(store.asked) <= 8


def test_changes_of_a_record_keep_their_order_also_deletions(store: GatedFields) -> None:
    store.open.set()
    line = Pipeline(store, 20)
    for _ in range(50):
        asked: list[Future[Any]] = [
            line.write("k", change(0, NEW), same),
            line.write("k", change(1), same),
            line.delete("k", ANY, same),
            line.write("k", change(2, NEW), same),
            line.write("k", change(3), same),
        ]
        answers = [future.result(30) for future in asked]
        assert not any(answer is None or answer is False for answer in answers)
        assert line.delete("k", ANY, same).result(30)


def test_threads_end_with_the_requests(store: GatedFields) -> None:
    before = threading.active_count()
    line = Pipeline(store, 20)
    asked = [line.write(f"k{n}", change(n, NEW), same) for n in range(2_000)]
    assert threading.active_count() - before <= pipeline.ASKING_MAX
    store.open.set()
    for future in asked:
        assert future.result(30) is not None
    wait_for(lambda: threading.active_count() <= before, "the threads have ended")


def test_a_key_that_is_under_way_starts_no_threads(store: GatedFields) -> None:
    before = threading.active_count()
    line = Pipeline(store, 20)
    asked = [line.write("k", change(n), same) for n in range(300)]
    wait_for(lambda: threading.active_count() <= before + 1, "one thread is left")
    store.open.set()
    assert [future.result(30) for future in asked] == [None] * 300


def test_threads_end_though_a_change_waits_for_its_elder(store: GatedFields) -> None:
    before = set(threading.enumerate())
    store.free = {"b"}
    line = Pipeline(store, 20)
    elder = line.write("a", change(0, NEW), same)
    wait_for(lambda: store.asked, "the elder is under way")
    younger = line.write("a", change(1), same)
    assert line.write("b", change(0, NEW), same).result(30) is not None
    wait_for(lambda: len({*threading.enumerate()} - before) == 1, "one thread is left")
    store.open.set()
    assert None not in (elder.result(30), younger.result(30))


def test_no_more_wait_than_the_bound(store: GatedFields) -> None:
    line = Pipeline(store, 0.01, waiting_max=5)
    asked: list[Future[Any]] = []

    def ask_more() -> None:
        for number in range(100):
            asked.append(line.read(f"k{number}", same))

    with pytest.raises(BufferFullError) as caught:
        ask_more()
    assert caught.value.waiting == 5
    line = Pipeline(store, 0.01, waiting_max=5)
    for _ in range(5):
        line.run(lambda: store.open.wait(30))
    with pytest.raises(BufferFullError):
        line.run(lambda: None)
    store.open.set()
    for future in asked:
        future.result(30)


def test_work_that_found_no_thread_takes_no_room_and_its_error_says_so(
    store: GatedFields, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    line = Pipeline(store, 0.01, waiting_max=1)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        for _ in range(3):
            with pytest.raises(HQueueError, match="starts no more threads") as refused:
                line.run(int)
            assert not isinstance(refused.value, (ClosedError, BufferFullError))
    assert line.run(int).result(30) == 0


def test_what_is_cancelled_before_it_is_sent_is_not_sent(store: GatedFields) -> None:
    line = Pipeline(store, 20)
    sent = line.write("k", change(0, NEW), same)
    wait_for(lambda: store.asked, "it is sent")
    waiting = line.write("k", change(1), same)
    assert not sent.cancel()
    assert waiting.cancel()
    last = line.write("k", change(2), same)
    store.open.set()
    assert last.result(30) == 1
    with pytest.raises(CancelledError):
        waiting.result(30)


def test_an_error_is_the_answer_to_each_and_the_next_are_asked(store: GatedFields) -> None:
    line = Pipeline(store, 20)
    store.error = KeyError("broken")
    asked: list[Future[Any]] = [
        line.read("a", same),
        line.write("b", change(1), same),
        line.delete("c", ANY, same),
    ]
    store.open.set()
    for future in asked:
        with pytest.raises(KeyError):
            future.result(30)
    store.error = None
    assert line.write("b", change(1, NEW), same).result(30) is not None


def test_what_was_asked_for_is_done_after_the_end(store: GatedFields) -> None:
    line = Pipeline(store, 20)
    asked = [line.write(f"k{n}", change(n, NEW), same) for n in range(300)]
    line.close()
    line.close()
    for refused in (
        lambda: line.read("a", same),
        lambda: line.write("a", change(1), same),
        lambda: line.delete("a", ANY, same),
        lambda: line.run(lambda: None),
    ):
        with pytest.raises(ClosedError):
            refused()
    store.open.set()
    assert all(future.result(30) is not None for future in asked)


def test_a_callback_may_ask_for_more_and_wait_for_it(store: GatedFields) -> None:
    line = Pipeline(store, 20)
    nested: list[object] = []

    def more(depth: int) -> None:
        line.write("k", change(depth, NEW if depth == 0 else ANY), same).result(30)
        if depth < 4:
            inner: Future[Any] = line.write("k", change(depth), same)
            inner.add_done_callback(lambda _: more(depth + 1))
            inner.result(30)
        nested.append(line.read("k", same).result(30))

    for future in [line.write(f"k{n}", change(n), same) for n in range(5)]:
        future.add_done_callback(lambda _: more(0))
    store.open.set()
    wait_for(lambda: len(nested) == 25, "all have ended")


def test_a_callback_that_fails_harms_no_other(store: GatedFields) -> None:
    line = Pipeline(store, 20)
    first = line.read("a", same)
    first.add_done_callback(lambda _: 1 / 0)
    second = line.read("b", same)
    store.open.set()
    assert (first.result(30), second.result(30)) == (None, None)


def test_of_a_batch_that_fails_each_caller_has_an_error_of_its_own(store: GatedFields) -> None:
    store.error = StoreUnavailableError("away", outcome=Outcome.UNKNOWN, path="x")
    line = Pipeline(store, 20)
    asked = [line.write(f"k{number}", change(number), same) for number in range(3)]
    asked += [line.read(f"k{number}", same) for number in range(3)]
    store.open.set()
    errors = [future.exception(30) for future in asked]
    assert len({id(error) for error in errors}) == len(errors)
    for error in errors:
        assert isinstance(error, StoreUnavailableError)
        assert (str(error), error.outcome) == (str(store.error), Outcome.UNKNOWN)
        assert error.__cause__ is store.error, "it says where it came from"
    for _ in range(3):
        with pytest.raises(StoreUnavailableError):
            asked[0].result(30)
    assert errors[1] is not None
    assert errors[1].__traceback__ is None, "what others raise is not in it"


def test_of_a_batch_in_which_some_fail_each_learns_what_came_of_its_own(store: GatedFields) -> None:
    failed = StoreUnavailableError("away", outcome=Outcome.UNKNOWN)
    line = Pipeline(store, 20)
    first = line.write("k", change(0), same)
    wait_for(lambda: store.asked, "something is asked")
    second = [line.delete(key, ANY, same) for key in ("a", "b", "c")]
    store.error = partly_done(failed, {"k": None, "a": True, "b": False, "c": failed})
    store.open.set()
    assert first.result(30) is None
    assert [future.result(30) for future in second[:2]] == [True, False]
    assert second[2].exception(30) is failed


def test_a_forked_child_starts_afresh(store: GatedFields) -> None:
    line = Pipeline(store, 20)
    held = [line.write(f"k{n}", change(n, NEW), same) for n in range(10)]
    wait_for(lambda: store.asked, "something is under way")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            line.store = MemoryFields()
            line.write("k0", change(0, NEW), same).result(30)
            code = 0 if line.run(lambda: 7).result(30) == 7 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    store.open.set()
    for future in held:
        future.result(30)


def test_hundreds_of_operations_are_awaited_with_few_threads() -> None:
    line = Pipeline(MemoryFields(), 20)
    owners = TopicOwnershipManager(line, LAYOUT)
    persistence = TopicPersistenceManager(line, LAYOUT)
    subscriptions = SubscriptionDataManager(line, LAYOUT)
    before, most = threading.active_count(), 0

    async def topic(number: int) -> None:
        nonlocal most
        name = f"t{number}"
        version = await asyncio.wrap_future(owners.write_owner_info(name, owner(number), NEW))
        read = await asyncio.wrap_future(owners.read_owner_info(name))
        assert read == Versioned(owner(number), version)
        await asyncio.wrap_future(
            persistence.write_topic_persistence_info(name, ranges(number), NEW)
        )
        await asyncio.wrap_future(
            subscriptions.create_subscription_data(name, "s", subscription(number))
        )
        found = await asyncio.wrap_future(subscriptions.read_subscriptions(name))
        assert found["s"].value == subscription(number)
        with pytest.raises(BadVersionError):
            await asyncio.wrap_future(owners.write_owner_info(name, owner(0), NEW))
        most = max(most, threading.active_count())

    async def all_topics() -> None:
        await asyncio.gather(*(topic(number) for number in range(300)))

    asyncio.run(all_topics())
    assert most - before <= 2 * pipeline.THREADS_MAX + pipeline.SCANS_MAX
