"""What waits for a partition goes together; what is fenced does not go at all."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait

import pytest

from hqueue import Address, InvalidInputError, Message, Outcome, StoreUnavailableError
from hqueue.metadata.managers import HubInfo, Verdict
from hqueue_workers.hub.writing.committer import Committer
from hqueue_workers.hub.writing.owned_topic import FencedTopicError, OwnedTopic, Published
from hqueue_workers.node.runtime import Runtime
from tests.support.doubles import SteppedClock
from tests.support.looped import LoopThread
from tests.support.waiting import wait_for

WAIT_S = 60.0
VERDICT = Verdict(HubInfo(Address("hub", 1), "a"), 0, won=True)


Make = Callable[[], tuple[Sequence[Message], int, Mapping[str, int]] | None]


class Log:
    """A partition in memory. Appends wait while `gate` is not set."""

    def __init__(
        self, on_fence: Callable[[str, int], None], on_settled: Callable[[int | None], None]
    ) -> None:
        self.on_fence = on_fence
        self.on_settled = on_settled
        self.unsettled: tuple[int | None] | None = None
        """What will turn out to have become of an append of unknown outcome."""
        self.end = 0
        self.batches: list[list[bytes]] = []
        self.closed: list[dict[str, int]] = []
        self.owned: dict[str, int] = {}
        self.opened = 0
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)
        self.failure: Exception | None = None
        self.epochs: list[dict[str, int]] = []
        self.meet: list[tuple[str, int]] = []
        """Control records that are met when the slot of the next append is lost."""

    async def open(self) -> int:
        self.opened += 1
        return self.end

    def own(self, topic: str, epoch: int) -> None:
        self.owned[topic] = epoch

    def disown(self, topic: str) -> None:
        self.owned.pop(topic, None)

    async def close_ranges(self, topics: Mapping[str, int], floor: int = 0) -> int:
        self.closed.append(dict(topics))
        self.end = max(self.end, floor) + 1
        return self.end - 1

    async def append(self, make: Make) -> int | None:
        self.entered.release()
        if self.unsettled is not None:
            (first,), self.unsettled = self.unsettled, None
            self.on_settled(first)
        made = make()
        while not self.gate.is_set():
            await asyncio.sleep(0.001)
        if self.failure is not None:
            raise self.failure
        if self.meet:
            for topic, epoch in self.meet:
                self.on_fence(topic, epoch)
            self.meet = []
            made = make()
        if made is None:
            return None
        messages, floor, epochs = made
        self.epochs.append(dict(epochs))
        base = max(self.end, floor)
        self.end = base + len(messages)
        self.batches.append([message.value for message in messages])
        return base


class Scene:
    """A committer over a log in memory."""

    def __init__(self) -> None:
        self.thread = LoopThread()
        self.runtime = self.thread.call(lambda: Runtime(1))
        self.logs: list[Log] = []
        self.clock = SteppedClock(0.0)
        self.fenced: list[OwnedTopic] = []
        self.on_fence: Callable[[OwnedTopic], object] = self.fenced.append
        self.on_appended: Callable[..., object] = lambda *_: None

        def open_log(
            partition: int,
            on_fence: Callable[[str, int], None],
            on_settled: Callable[[int | None], None],
        ) -> Log:
            self.logs.append(Log(on_fence, on_settled))
            return self.logs[-1]

        self.committer = Committer(
            0,
            self.runtime,
            open_log,
            on_fence=self._fence,
            on_appended=self._note,
            clock=self.clock,
        )
        self.committer.open().result(WAIT_S)

    def _fence(self, owned: OwnedTopic) -> None:
        self.on_fence(owned)

    def _note(self, *appended: object) -> None:
        self.on_appended(*appended)

    @property
    def log(self) -> Log:
        return self.logs[-1]

    def own(self, topic: str, epoch: int = 0, first: int = 0) -> OwnedTopic:
        owned = OwnedTopic(topic, 0, epoch, VERDICT, 0.0, first=first)
        self.committer.register(owned)
        return owned

    def put(self, owned: OwnedTopic, *values: bytes) -> Future[Published]:
        messages = [Message(owned.name, value) for value in values]
        return self.committer.submit(owned, messages, sum(map(len, values)))

    def hold(self, owned: OwnedTopic) -> Future[Published]:
        """Let an append be under way that does not end before the gate is opened."""
        self.log.gate.clear()
        held = self.put(owned, b"first")
        assert self.log.entered.acquire(timeout=WAIT_S)
        return held


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.log.gate.set()
    made.committer.close(WAIT_S)
    made.thread.run(made.runtime.close())
    made.thread.close()


def test_what_waits_while_an_append_is_under_way_goes_together_in_its_order(scene: Scene) -> None:
    topics = [scene.own(f"t{number}") for number in range(3)]
    held = scene.hold(topics[0])
    waiting = [scene.put(topics[n % 3], b"%d a" % n, b"%d b" % n) for n in range(60)]
    scene.log.gate.set()
    wait([held, *waiting], WAIT_S)
    assert len(scene.log.batches) == 2
    assert scene.log.batches[1] == [b"%d %s" % (n, c) for n in range(60) for c in (b"a", b"b")]
    assert [each.result().id for each in waiting] == [1 + 2 * n for n in range(60)]
    assert all(each.result().count == 2 for each in waiting)


def test_a_batch_is_bounded_and_a_large_publish_goes_alone(scene: Scene) -> None:
    owned = scene.own("t")
    held = scene.hold(owned)
    large = bytes(3 * 1024 * 1024)
    waiting = [scene.put(owned, large) for _ in range(3)]
    scene.log.gate.set()
    wait([held, *waiting], WAIT_S)
    assert [len(batch) for batch in scene.log.batches] == [1, 1, 1, 1]


def test_ids_are_not_below_the_first_of_a_range(scene: Scene) -> None:
    owned = scene.own("t", first=1_000)
    assert scene.put(owned, b"a").result(WAIT_S).id == 1_000
    assert scene.put(owned, b"b").result(WAIT_S).id == 1_001


def test_what_is_fenced_while_it_waits_is_refused_and_the_others_go(scene: Scene) -> None:
    mine, lost = scene.own("mine", 3), scene.own("lost", 3)
    held = scene.hold(mine)
    waiting = [scene.put(owned, b"%d" % n) for n, owned in enumerate([lost, mine, lost, mine])]
    scene.log.meet = [("lost", 4), ("mine", 3), ("stranger", 9)]
    scene.log.gate.set()
    wait([held, *waiting], WAIT_S)
    assert [value for batch in scene.log.batches for value in batch] == [b"first", b"1", b"3"]
    for each in (waiting[0], waiting[2]):
        assert isinstance(each.exception(), FencedTopicError)
    assert scene.fenced == [lost]
    with pytest.raises(FencedTopicError):
        scene.put(lost, b"later")


def test_what_is_fenced_between_two_tries_for_a_slot_is_taken_out_of_the_batch(
    scene: Scene,
) -> None:
    mine, lost = scene.own("mine", 3), scene.own("lost", 3)
    scene.log.gate.clear()
    first = scene.put(lost, b"lost")
    assert scene.log.entered.acquire(timeout=WAIT_S)
    second = scene.put(mine, b"mine")
    scene.log.meet = [("lost", 4)]
    scene.log.gate.set()
    assert isinstance(first.exception(WAIT_S), FencedTopicError)
    assert second.result(WAIT_S).id == 0
    assert scene.log.batches == [[b"mine"]]


def test_a_topic_that_comes_again_with_a_higher_epoch_fences_what_waits_of_the_one_before(
    scene: Scene,
) -> None:
    before = scene.own("t", 3)
    held = scene.hold(before)
    late = scene.put(before, b"late")
    now = scene.own("t", 4)
    newer = scene.put(now, b"newer")
    scene.log.gate.set()
    held.result(WAIT_S)
    assert isinstance(late.exception(WAIT_S), FencedTopicError)
    newer.result(WAIT_S)
    assert scene.log.batches == [[b"first"], [b"newer"]]
    assert scene.log.owned == {"t": 4}
    assert scene.log.epochs == [{"t": 3}, {"t": 4}], "each by the ownership that took it in"


def test_ranges_that_are_closed_at_once_share_a_record(scene: Scene) -> None:
    held = scene.hold(scene.own("t"))
    closing = [scene.committer.close_range(f"t{n}", n + 1, 10 * n) for n in range(50)]
    scene.log.gate.set()
    held.result(WAIT_S)
    assert {each.result(WAIT_S) for each in closing} == {490}
    assert scene.log.closed == [{f"t{n}": n + 1 for n in range(50)}]


@pytest.mark.parametrize("outcome", Outcome)
def test_each_publish_of_a_failed_append_has_its_outcome_and_the_topic_stays(
    scene: Scene, outcome: Outcome
) -> None:
    owned = scene.own("t")
    scene.log.failure = StoreUnavailableError("away", outcome=outcome)
    for _ in range(2):
        error = scene.put(owned, b"a").exception(WAIT_S)
        assert isinstance(error, StoreUnavailableError)
        assert error.outcome is outcome
    scene.log.failure = None
    assert scene.put(owned, b"b").result(WAIT_S)
    assert owned.waiting == 0


def test_a_publish_that_can_be_no_batch_harms_no_other(scene: Scene) -> None:
    owned = scene.own("t")
    scene.log.failure = InvalidInputError("too large")
    assert isinstance(scene.put(owned, b"a").exception(WAIT_S), InvalidInputError)
    scene.log.failure = None
    assert scene.put(owned, b"b").result(WAIT_S)


def test_all_topics_are_lost_when_the_log_can_t_be_followed(scene: Scene) -> None:
    owned = scene.own("t")
    scene.log.failure = ValueError("the log can't be followed")
    assert isinstance(scene.put(owned, b"a").exception(WAIT_S), ValueError)
    wait_for(lambda: owned.fenced, "it is given up")
    assert scene.fenced == [owned]
    with pytest.raises(StoreUnavailableError):
        scene.own("t", 1)
    assert scene.committer.open().result(WAIT_S) == 0
    assert len(scene.logs) == 2
    assert scene.put(scene.own("t", 1), b"b").result(WAIT_S)


def test_one_without_topics_ends_after_a_while_and_one_with_a_topic_does_not(scene: Scene) -> None:
    owned = scene.own("t")
    scene.put(owned, b"a").result(WAIT_S)
    scene.clock.now_ms += 1e9
    assert not scene.committer.close_if_idle()
    assert scene.committer.drained(owned, WAIT_S)
    scene.committer.drop(owned)
    assert scene.log.owned == {}
    assert scene.committer.close_if_idle()
    with pytest.raises(StoreUnavailableError):
        scene.put(owned, b"b")


def test_a_topic_that_was_left_takes_nothing_more_and_the_others_go_on(scene: Scene) -> None:
    left, other = scene.own("left"), scene.own("other")
    held = scene.hold(left)
    scene.committer.drop(left)
    with pytest.raises(FencedTopicError):
        scene.put(left, b"late")
    scene.log.gate.set()
    assert held.result(WAIT_S).id == 0, "what waited is appended"
    with pytest.raises(FencedTopicError):
        scene.put(left, b"later")
    assert scene.put(other, b"other").result(WAIT_S)
    assert scene.log.batches == [[b"first"], [b"other"]]
    assert scene.log.owned == {"other": 0}


def test_what_waits_at_the_end_is_appended(scene: Scene) -> None:
    owned = scene.own("t")
    held = scene.hold(owned)
    waiting = [scene.put(owned, b"%d" % n) for n in range(3)]
    ending = threading.Thread(target=scene.committer.close, args=(WAIT_S,))
    ending.start()
    scene.log.gate.set()
    ending.join(WAIT_S)
    assert all(each.done() for each in (held, *waiting))
    assert scene.log.batches == [[b"first"], [b"0", b"1", b"2"]]


def fail(*_: object) -> None:
    raise SystemExit("a fault")


def test_what_is_in_the_log_is_reported_whatever_a_listener_raises(
    scene: Scene,
) -> None:
    owned = scene.own("t")
    scene.on_appended = fail
    published = scene.put(owned, b"a")
    assert published.result(WAIT_S).id == 0
    wait_for(lambda: owned.fenced, "what nobody looks at rightly any more is given up")
    assert scene.fenced == [owned]
    scene.on_appended = lambda *_: None
    assert scene.committer.open().result(WAIT_S) == 0
    assert scene.put(scene.own("t", 1), b"b").result(WAIT_S)


def test_a_callback_keeps_no_other_from_its_answer_whatever_it_raises(scene: Scene) -> None:
    owned = scene.own("t")
    held = scene.hold(owned)
    waiting = [scene.put(owned, b"%d" % n) for n in range(3)]
    waiting[0].add_done_callback(fail)
    scene.log.gate.set()
    assert held.result(WAIT_S)
    assert [each.result(WAIT_S).id for each in waiting] == [1, 2, 3]
    assert not owned.fenced
    assert scene.put(owned, b"next").result(WAIT_S)


def test_a_log_that_raises_what_is_no_exception_ends_those_that_wait_and_not_the_thread(
    scene: Scene,
) -> None:
    owned = scene.own("t")
    scene.log.failure = SystemExit("a fault")
    assert isinstance(scene.put(owned, b"a").exception(WAIT_S), SystemExit)
    scene.log.failure = None
    assert scene.committer.open().result(WAIT_S) == 0
    assert scene.put(scene.own("t", 1), b"b").result(WAIT_S)


def test_a_listener_of_fenced_topics_keeps_no_topic_from_being_given_up(
    scene: Scene,
) -> None:
    topics = [scene.own("a"), scene.own("b")]
    scene.on_fence = fail
    scene.log.failure = ValueError("the log can't be followed")
    assert isinstance(scene.put(topics[0], b"a").exception(WAIT_S), ValueError)
    wait_for(lambda: all(each.fenced for each in topics), "both are given up")
    scene.log.failure = None
    assert scene.committer.open().result(WAIT_S) == 0
