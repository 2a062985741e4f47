"""What a sender does with each answer, and when."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hqueue import DeadLetter, MessageID, Queue, ReceivedMessage, StoreUnavailableError
from hqueue.errors import CheckpointMovedError
from hqueue.metadata import Checkpoint, Checkpoints, DeliveryOptions, SubscriptionKey
from hqueue.metadata.delay_records import DelayRecords
from hqueue.metadata.delays import Delay
from hqueue.metadata.unanswered_calls import UnansweredCalls
from hqueue.runtime.steps import Work
from hqueue.runtime.stepwise import stepwise
from hqueue_workers.delivery.checkpoint import CheckpointUpdater
from hqueue_workers.delivery.connection_pool import (
    ConnectionPool,
    LostCallError,
    NoAnswerError,
)
from hqueue_workers.delivery.cursor import SubscriberCursor
from hqueue_workers.delivery.sender import MessageSender
from hqueue_workers.delivery.wire import Call, Reply, encode_message
from hqueue_workers.node.lease import Lease
from hqueue_workers.node.metrics import DeliveryMetrics, Metrics
from tests.support.memory.metadata import MemoryCoordination
from tests.support.worker_doubles import LATER, Service, SteppedRuntime, settle

KEY = SubscriptionKey("q", 0, "s")
DONE, RETRY, REJECT = 0, 1, 2


def message(place: int) -> ReceivedMessage:
    """The message at an ID."""
    return ReceivedMessage(
        "t", b"%d" % place, MessageID.from_int(place), 0, key=b"key", headers=[("n", b"v")]
    )


class Calls:
    """A cursor of one message a call, at the IDs 0, 1, 2, …"""

    def __init__(self, count: int) -> None:
        self.count = count
        self.position = 0
        self.repeated: list[int] = []
        self.closed = False

    async def ready(self) -> int:
        if self.position >= self.count:
            await asyncio.Event().wait()
        return self.position

    async def take(
        self,
        until: int | None,
        may_have: Callable[[int], bool],
        messages_max: int,
        now_ms: float,
        delayed_max: int,
    ) -> Call | None:
        place = self.position
        if until is not None:
            self.repeated.append(until)
        elif not may_have(place):
            return None
        data = encode_message(message(place))
        return Call(place, place + 1, (data,), ((place,),))

    def advance(self, place: int) -> None:
        self.position = place

    def close(self) -> None:
        self.closed = True


class Subscriber:
    """A channel whose subscriber gives these answers, one after another, and then done."""

    def __init__(self, answers: Sequence[int | Reply | NoAnswerError]) -> None:
        self.answers = list(answers)
        self.got: list[int] = []
        self.alone: list[bool] = []
        """Whether each call had no other beside it."""

    @contextlib.asynccontextmanager
    async def connection(self, *, alone: bool = False) -> AsyncIterator[Subscriber]:
        self.alone.append(alone)
        yield self

    async def call(self, call: Call, timeout_s: float) -> Reply:
        self.got.append(call.first)
        answer = self.answers.pop(0) if self.answers else DONE
        if isinstance(answer, NoAnswerError):
            raise answer
        return answer if isinstance(answer, Reply) else Reply(answer)


class MovingCheckpoint(Service):
    """A checkpoint that moves from revision to revision, until another moves it."""

    def __init__(self) -> None:
        self.written: list[int] = []
        self.unanswered: list[UnansweredCalls | None] = []
        """Those of each write."""
        self.connected = True
        self.others: dict[SubscriptionKey, Checkpoint] = {}
        self.taken = False

    @stepwise
    def compare_and_set(
        self,
        key: SubscriptionKey,
        known: Checkpoint,
        next_id: MessageID,
        unanswered: UnansweredCalls | None = None,
        delays: tuple[Delay, ...] = (),
    ) -> Work[object, Checkpoint]:
        if self.taken:
            raise CheckpointMovedError("taken")
        assert known.revision == len(self.written)
        assert int(next_id) > int(known.next) or unanswered is not None
        self.written.append(int(next_id))
        self.unanswered.append(unanswered)
        yield LATER
        return Checkpoint(next_id, known.revision + 1, unanswered, delays)

    def delays(self, key: SubscriptionKey) -> DelayRecords:
        return DelayRecords(MemoryCoordination().store, "/delays")

    @stepwise
    def is_connected(self, key: SubscriptionKey) -> Work[object, bool]:
        yield LATER
        return self.connected

    @stepwise
    def inspect(
        self, keys: Iterable[SubscriptionKey]
    ) -> Work[object, tuple[dict[SubscriptionKey, Checkpoint], dict[SubscriptionKey, Any]]]:
        yield LATER
        return {key: self.others[key] for key in keys if key in self.others}, {}


class Held:
    """A lease that may be taken away."""

    def __init__(self) -> None:
        self.certain = True
        self.lapses = 0
        """So often it does not hold when it is looked at, and then again."""
        self.again = asyncio.Event()

    @property
    def holds(self) -> bool:
        self.lapses -= 1
        return self.certain and self.lapses < 0

    async def wait(self) -> None:
        while not self.certain:
            await self.again.wait()


class Letters:
    """A queue's dead letters, which can be put as soon as there is no failure left."""

    def __init__(self) -> None:
        self.failures: list[Exception] = []
        self.letters: list[DeadLetter] = []

    def put(self, letters: Sequence[DeadLetter]) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.letters.extend(letters)


class Scene:
    """A sender with everything around it."""

    def __init__(
        self,
        answers: Sequence[int | Reply | NoAnswerError],
        count: int = 3,
        kept: UnansweredCalls | None = None,
        partition: int = 0,
        **options: Any,
    ) -> None:
        self.runtime = SteppedRuntime()
        self.cursor = Calls(count)
        self.subscriber = Subscriber(answers)
        self.checkpoints = MovingCheckpoint()
        self.dead_letters = Letters()
        self.lease = Held()
        self.checkpoint = CheckpointUpdater(
            KEY._replace(partition=partition),
            Checkpoint(MessageID.from_int(0), 0, kept),
            cast(Checkpoints, self.checkpoints),
            self.runtime,
        )
        self.metrics = Metrics()
        self.sender = MessageSender(
            cast(Queue, SimpleNamespace(dead_letters=self.dead_letters)),
            cursor=cast(SubscriberCursor, self.cursor),
            pool=cast(ConnectionPool, self.subscriber),
            checkpoint=self.checkpoint,
            options=DeliveryOptions(**options),
            lease=cast(Lease, self.lease),
            runtime=self.runtime,
            metrics=DeliveryMetrics(self.metrics, KEY),
        )


def play(scene: Callable[[], Any]) -> None:
    asyncio.run(scene())


def test_retries_pause_longer_and_longer_and_repeat_the_same_call() -> None:
    async def scene() -> None:
        it = Scene([RETRY] * 5, backoff_ms_min=100, backoff_ms_max=1_000)
        await settle()
        assert it.subscriber.got == [0] * 6 + [1, 2]
        assert it.runtime.slept_ms == [100, 200, 400, 800, 1_000]
        assert it.cursor.repeated == [1] * 5
        await it.sender.stop(0)
        assert it.checkpoints.written == [3]
        assert it.cursor.closed

    play(scene)


def test_no_answer_is_no_attempt() -> None:
    async def scene() -> None:
        it = Scene([NoAnswerError("gone")] * 10, attempts_max=2, backoff_ms_min=1)
        await settle()
        assert it.subscriber.got == [0] * 11 + [1, 2]
        assert it.dead_letters.letters == []

    play(scene)


def lost(timed_out: bool = False) -> LostCallError:
    return LostCallError("gone", timed_out=timed_out)


def test_a_message_whose_calls_are_lost_is_a_dead_letter_and_the_count_is_written() -> None:
    async def scene() -> None:
        it = Scene(
            [lost(), NoAnswerError("refused"), lost(timed_out=True), Reply(RETRY), lost()],
            unanswered_calls_max=3,
            backoff_ms_min=1,
        )
        await settle()
        await settle()
        assert it.subscriber.got == [0] * 5 + [1, 2]
        assert it.subscriber.alone == [False, *[True] * 4, False, False]
        (letter,) = it.dead_letters.letters
        assert (letter.message, letter.attempts) == (message(0), 4)
        assert letter.reason == ("the subscriber did not answer 3 calls with this message alone")
        counts = [each and each.count for each in it.checkpoints.unanswered]
        assert (counts, it.checkpoints.written) == ([1, 2, None], [0, 0, 1])

    play(scene)


@pytest.mark.parametrize("why", ["refused", "stopped in order", "paused", "never"])
def test_a_call_that_says_nothing_of_its_messages_does_not_count(why: str) -> None:
    async def scene() -> None:
        error = NoAnswerError("refused") if why == "refused" else lost()
        most = 0 if why == "never" else 2
        it = Scene([error] * 10, unanswered_calls_max=most, backoff_ms_min=1)
        it.checkpoints.connected = why != "stopped in order"
        if why == "paused":
            it.lease.lapses = 20  # It is looked at twice for each call.
        await settle()
        await settle()
        assert it.subscriber.got == [0] * 11 + [1, 2]
        assert (it.dead_letters.letters, it.checkpoints.written) == ([], [])

    play(scene)


def test_the_count_goes_on_where_the_worker_before_left_it() -> None:
    async def scene() -> None:
        kept = UnansweredCalls(MessageID.from_int(0), MessageID.from_int(1), 2)
        it = Scene([lost()], count=1, unanswered_calls_max=3, kept=kept)
        await settle()
        assert [letter.message for letter in it.dead_letters.letters] == [message(0)]

    play(scene)


def test_suspected_messages_wait_for_those_of_lower_partitions_but_not_for_ever() -> None:
    async def scene() -> None:
        kept = UnansweredCalls(MessageID.from_int(0), MessageID.from_int(1), 2)
        it = Scene([], count=1, kept=kept, partition=1, timeout_ms=10_000, backoff_ms_max=5_000)
        it.checkpoints.others[KEY] = Checkpoint(MessageID.from_int(0), 7, kept)
        while not it.subscriber.got:
            await settle()
        assert it.runtime.slept_ms == [1_000] * 30, "the other did not change for so long"

    play(scene)


def test_used_up_attempts_end_with_the_dead_letters() -> None:
    async def scene() -> None:
        it = Scene([DONE, RETRY, 77, RETRY], attempts_max=3, backoff_ms_min=1)
        await settle()
        # A status that nobody knows is a retry.
        assert it.subscriber.got == [0, 1, 1, 1, 2]
        (letter,) = it.dead_letters.letters
        assert letter == DeadLetter(message(1), "s", "the subscriber's attempts are used up", 3)

    play(scene)


def test_the_dead_letter_has_the_last_reason_that_its_own_call_was_answered_with() -> None:
    async def scene() -> None:
        it = Scene(
            [
                *(Reply(RETRY, "A: 1"), Reply(RETRY, "B: 2"), NoAnswerError("gone"), Reply(RETRY)),
                *(Reply(RETRY), Reply(RETRY), Reply(RETRY)),
                *(Reply(RETRY, "C: 3"), Reply(REJECT)),
                Reply(REJECT, "D: 4"),
                Reply(REJECT),
            ],
            count=5,
            attempts_max=3,
            backoff_ms_min=1,
        )
        await settle()
        await settle()
        used_up, rejected = "the subscriber's attempts are used up", "rejected by the subscriber"
        assert [letter.reason for letter in it.dead_letters.letters] == [
            f"{used_up}: B: 2", used_up, rejected, f"{rejected}: D: 4", rejected,
        ]  # fmt: skip

    play(scene)


def test_dead_letters_that_could_not_be_put_are_put_the_next_time() -> None:
    async def scene() -> None:
        it = Scene([RETRY] * 3, count=1, attempts_max=2, backoff_ms_min=1)
        it.dead_letters.failures.append(StoreUnavailableError("away"))
        await settle()
        assert it.subscriber.got == [0] * 3
        assert [letter.attempts for letter in it.dead_letters.letters] == [3]
        assert it.checkpoints.written == [1]

    play(scene)


def test_a_rejected_call_is_buried_before_the_next_is_made() -> None:
    async def scene() -> None:
        it = Scene([REJECT])
        await settle()
        (letter,) = it.dead_letters.letters
        assert (letter.message.value, letter.subscriber, letter.attempts) == (b"0", "s", 1)
        assert it.subscriber.got == [0, 1, 2]
        # What lies with the dead letters is not to come again.
        assert it.checkpoints.written == [1]

    play(scene)


def test_nothing_is_sent_while_the_session_is_not_certain() -> None:
    async def scene() -> None:
        it = Scene([])
        it.lease.certain = False
        await settle()
        assert it.subscriber.got == []
        it.lease.certain = True
        it.lease.again.set()
        await settle()
        assert it.subscriber.got == [0, 1, 2]

    play(scene)


def test_a_message_is_as_old_as_was_asked_for_when_it_is_sent() -> None:
    async def scene() -> None:
        it = Scene([], count=1, delay_ms=2_000_000)
        await settle()
        assert it.runtime.slept_ms == [1_000_000]
        assert it.subscriber.got == [0]

    play(scene)


def test_a_worker_whose_clock_is_days_behind_delays_no_message_longer_than_was_asked_for() -> None:
    async def scene() -> None:
        it = Scene([], count=3, delay_ms=2_000)
        it.runtime.stepped.now_ms = -5 * 86_400_000.0
        await settle()
        assert it.runtime.slept_ms == [2_000]
        assert it.subscriber.got == [0, 1, 2]

    play(scene)


def test_whoever_lost_the_checkpoint_stops() -> None:
    async def scene() -> None:
        it = Scene([], count=1)
        await settle()
        it.checkpoints.taken = True
        await it.checkpoint.write()
        it.cursor.count = 2
        assert it.checkpoint.moved_by_others
        assert not it.checkpoint.due
        await it.sender.stop(0)
        assert it.checkpoints.written == []

    play(scene)


@pytest.mark.parametrize("ending", ["stop", "abandon"])
def test_whoever_delivers_no_more_shows_no_more(ending: str) -> None:
    async def scene() -> None:
        it = Scene([])
        await settle()
        shown = b'subscriber="s"'
        assert shown in it.metrics.page((), 0, ())
        if ending == "stop":
            await it.sender.stop(0)
        else:
            it.sender.abandon()
            await settle()
        assert shown not in it.metrics.page((), 0, ())

    play(scene)
