"""Many requests under way, by few threads."""

from __future__ import annotations

import asyncio
import os
import threading
import traceback
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
    batching,
    pipeline,
)
from hqueue.metadata.managers.following import Asked, follow
from hqueue.metadata.outcomes import partly_done
from hqueue.metadata.ports import ANY, NEW, Version
from hqueue.runtime.steps import Work
from hqueue.runtime.stepwise import stepwise
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

    @stepwise
    def read(self, keys: Iterable[str]) -> Work[Any, dict[str, FieldRecord]]:
        self._pass(keys)
        return (yield from super().read.steps(keys))

    @stepwise
    def write(self, changes: Mapping[str, FieldChange]) -> Work[Any, dict[str, Version | None]]:
        self._pass(changes)
        return (yield from super().write.steps(changes))

    @stepwise
    def delete(self, versions: Mapping[str, Version]) -> Work[Any, dict[str, bool]]:
        self._pass(versions)
        return (yield from super().delete.steps(versions))

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


def answer_to(asked: Asked) -> Future[Any]:
    """The answer to a single request."""

    def ask() -> Work[Any, Any]:
        return (yield asked)

    return follow(ask())


def test_who_waits_gets_what_work_makes_of_the_answers_or_its_error(store: GatedFields) -> None:
    store.open.set()
    line = Pipeline(store, 20)

    def write() -> Work[Any, tuple[Version, str]]:
        return (yield line.write("a", change(1, NEW))), "made"

    def read_both() -> Work[Any, tuple[Any, Any]]:
        return (yield line.read("a")), (yield line.read("b"))

    def refuse(*keys: str) -> Work[Any, None]:
        for key in keys:
            yield line.read(key)
        raise BadVersionError("no")

    assert follow(write()).result(30)[1] == "made"
    found, other = follow(read_both()).result(30)
    assert (found.fields, other) == ({"f": b"1"}, None)
    for refused in (follow(refuse("a")), follow(refuse("a", "b"))):
        with pytest.raises(BadVersionError):
            refused.result(30)


def test_what_waits_goes_together(store: GatedFields) -> None:
    line = Pipeline(store, 20)
    first = [answer_to(line.read("a")), answer_to(line.read("b"))]
    wait_for(lambda: store.asked, "something is asked")
    later = [answer_to(line.read(f"k{number}")) for number in range(600)]
    store.open.set()
    for future in first + later:
        assert future.result(30) is None
    assert sum(map(len, store.asked)) == 602
    assert max(map(len, store.asked)) == batching.TOGETHER_MAX
    assert len(store.asked) <= 8


def test_changes_of_a_record_keep_their_order_also_deletions(store: GatedFields) -> None:
    store.open.set()
    line = Pipeline(store, 20)
    for _ in range(50):
        asked: list[Future[Any]] = [
            answer_to(line.write("k", change(0, NEW))),
            answer_to(line.write("k", change(1))),
            answer_to(line.delete("k", ANY)),
            answer_to(line.write("k", change(2, NEW))),
            answer_to(line.write("k", change(3))),
        ]
        answers = [future.result(30) for future in asked]
        assert not any(answer is None or answer is False for answer in answers)
        assert answer_to(line.delete("k", ANY)).result(30)


def test_threads_end_with_the_requests(store: GatedFields) -> None:
    before = threading.active_count()
    line = Pipeline(store, 20)
    asked = [answer_to(line.write(f"k{n}", change(n, NEW))) for n in range(2_000)]
    assert threading.active_count() - before <= batching.ASKING_MAX
    store.open.set()
    for future in asked:
        assert future.result(30) is not None
    wait_for(lambda: threading.active_count() <= before, "the threads have ended")


def test_a_key_that_is_under_way_starts_no_threads(store: GatedFields) -> None:
    before = threading.active_count()
    line = Pipeline(store, 20)
    asked = [answer_to(line.write("k", change(n))) for n in range(300)]
    wait_for(lambda: threading.active_count() <= before + 1, "one thread is left")
    store.open.set()
    assert [future.result(30) for future in asked] == [None] * 300


def test_threads_end_though_a_change_waits_for_its_elder(store: GatedFields) -> None:
    before = set(threading.enumerate())
    store.free = {"b"}
    line = Pipeline(store, 20)
    elder = answer_to(line.write("a", change(0, NEW)))
    wait_for(lambda: store.asked, "the elder is under way")
    younger = answer_to(line.write("a", change(1)))
    assert answer_to(line.write("b", change(0, NEW))).result(30) is not None
    wait_for(lambda: len({*threading.enumerate()} - before) == 1, "one thread is left")
    store.open.set()
    assert None not in (elder.result(30), younger.result(30))


def test_no_more_wait_than_the_bound(store: GatedFields) -> None:
    line = Pipeline(store, 0.01, waiting_max=5)
    asked: list[Future[Any]] = []

    def ask_more() -> None:
        for number in range(100):
            asked.append(answer_to(line.read(f"k{number}")))

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
    sent = answer_to(line.write("k", change(0, NEW)))
    wait_for(lambda: store.asked, "it is sent")
    waiting = answer_to(line.write("k", change(1)))
    assert not sent.cancel()
    assert waiting.cancel()
    last = answer_to(line.write("k", change(2)))
    store.open.set()
    assert last.result(30) == 1
    with pytest.raises(CancelledError):
        waiting.result(30)


def test_an_error_is_the_answer_to_each_and_the_next_are_asked(store: GatedFields) -> None:
    line = Pipeline(store, 20)
    store.error = KeyError("broken")
    asked: list[Future[Any]] = [
        answer_to(line.read("a")),
        answer_to(line.write("b", change(1))),
        answer_to(line.delete("c", ANY)),
    ]
    store.open.set()
    for future in asked:
        with pytest.raises(KeyError):
            future.result(30)
    store.error = None
    assert answer_to(line.write("b", change(1, NEW))).result(30) is not None


def test_what_was_asked_for_is_done_after_the_end(store: GatedFields) -> None:
    line = Pipeline(store, 20)
    asked = [answer_to(line.write(f"k{n}", change(n, NEW))) for n in range(300)]
    line.close()
    line.close()
    for refused in (
        lambda: answer_to(line.read("a")),
        lambda: answer_to(line.write("a", change(1))),
        lambda: answer_to(line.delete("a", ANY)),
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
        answer_to(line.write("k", change(depth, NEW if depth == 0 else ANY))).result(30)
        if depth < 4:
            inner: Future[Any] = answer_to(line.write("k", change(depth)))
            inner.add_done_callback(lambda _: more(depth + 1))
            inner.result(30)
        nested.append(answer_to(line.read("k")).result(30))

    for future in [answer_to(line.write(f"k{n}", change(n))) for n in range(5)]:
        future.add_done_callback(lambda _: more(0))
    store.open.set()
    wait_for(lambda: len(nested) == 25, "all have ended")


def test_a_callback_that_fails_harms_no_other(store: GatedFields) -> None:
    line = Pipeline(store, 20)
    first = answer_to(line.read("a"))
    first.add_done_callback(lambda _: 1 / 0)
    second = answer_to(line.read("b"))
    store.open.set()
    assert (first.result(30), second.result(30)) == (None, None)


def test_of_a_batch_that_fails_each_caller_has_an_error_of_its_own(store: GatedFields) -> None:
    store.error = StoreUnavailableError("away", outcome=Outcome.UNKNOWN, path="x")
    line = Pipeline(store, 20)
    asked = [answer_to(line.write(f"k{number}", change(number))) for number in range(3)]
    asked += [answer_to(line.read(f"k{number}")) for number in range(3)]
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
    first, second = (traceback.extract_tb(error.__traceback__) for error in errors[:2])
    assert len(second) < len(first), "what others raise is not in it"


def test_of_a_batch_in_which_some_fail_each_learns_what_came_of_its_own(store: GatedFields) -> None:
    failed = StoreUnavailableError("away", outcome=Outcome.UNKNOWN)
    line = Pipeline(store, 20)
    first = answer_to(line.write("k", change(0)))
    wait_for(lambda: store.asked, "something is asked")
    second = [answer_to(line.delete(key, ANY)) for key in ("a", "b", "c")]
    store.error = partly_done(failed, {"k": None, "a": True, "b": False, "c": failed})
    store.open.set()
    assert first.result(30) is None
    assert [future.result(30) for future in second[:2]] == [True, False]
    assert second[2].exception(30) is failed


def test_a_forked_child_starts_afresh(store: GatedFields) -> None:
    line = Pipeline(store, 20)
    held = [answer_to(line.write(f"k{n}", change(n, NEW))) for n in range(10)]
    wait_for(lambda: store.asked, "something is under way")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            line.store = MemoryFields()
            answer_to(line.write("k0", change(0, NEW))).result(30)
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
    assert most - before <= 2 * batching.THREADS_MAX + pipeline.SCANS_MAX
