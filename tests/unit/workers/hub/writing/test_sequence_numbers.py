"""What publishers number is in a topic once: by what was appended, settled, and read."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait

import pytest

import hqueue
from hqueue import (
    Address,
    HQueueError,
    HubClient,
    InvalidInputError,
    Message,
    MessageID,
    Outcome,
    StoreUnavailableError,
)
from hqueue.metadata.managers import HubInfo, Verdict
from hqueue.runtime.thread_pool import ThreadPool
from hqueue.topics.exchanges import Exchange
from hqueue_workers.hub.limits import HubLimits
from hqueue_workers.hub.serving.callers import Named
from hqueue_workers.hub.writing.committer import Committer
from hqueue_workers.hub.writing.owned_topic import (
    OwnedTopic,
    Publish,
    Published,
    PublishSequence,
    UnknownSequenceNumbersError,
)
from hqueue_workers.hub.writing.sequence_numbers import (
    PUBLISHER,
    SEQUENCE_NUMBER,
    LastMessage,
    SequenceNumbers,
    last_messages_of,
    with_sequence_numbers,
)
from hqueue_workers.hub.writing.sequence_searches import THREADS, SequenceSearches
from hqueue_workers.node.runtime import Runtime
from tests.support.backends import MemoryBackend
from tests.support.hubs import HubThread
from tests.support.looped import LoopThread
from tests.support.stopping import stopped_at
from tests.support.waiting import wait_for

WAIT_S = 60.0
QUEUE = "q"
VERDICT = Verdict(HubInfo(Address("hub", 1), "a"), 0, won=True)


def topic(name: str = "t", known_from: int = 0) -> OwnedTopic:
    return OwnedTopic(name, 0, 0, VERDICT, 0.0, known_from=known_from)


def publish(owned: OwnedTopic, number: int, count: int = 1, since: int = 0) -> Publish:
    messages = [Message(owned.name, b"%d" % (number + n)) for n in range(count)]
    return Publish(owned, messages, 1, Future(), PublishSequence("me", number, since))


def test_what_is_noted_is_left_out_later() -> None:
    sequence_numbers, owned = SequenceNumbers(), topic()
    sequence_numbers.note([(publish(owned, 5, 3), 100)])
    assert sequence_numbers.last_message(owned, "me", 0) == LastMessage(7, 102)
    assert sequence_numbers.last_message(owned, "you", 0) is None
    again = publish(owned, 6, 4)
    assert sequence_numbers.leave_out(again) == LastMessage(7, 102)
    assert (again.duplicates, [m.value for m in again.messages], again.last_sequence_number) == (
        2,
        [b"8", b"9"],
        9,
    )
    sequence_numbers.leave_out(again)
    assert (again.duplicates, len(again.messages)) == (2, 2), "looked at again nothing more is"
    whole = publish(owned, 5, 3)
    sequence_numbers.leave_out(whole)
    assert (whole.duplicates, whole.messages) == (3, [])


def test_what_lies_before_is_learned_once_and_joined_with_what_was_noted() -> None:
    sequence_numbers, owned = SequenceNumbers(), topic(known_from=50)
    with pytest.raises(UnknownSequenceNumbersError):
        sequence_numbers.leave_out(publish(owned, 1, since=49))
    assert sequence_numbers.leave_out(publish(owned, 1, since=50)) is None
    sequence_numbers.note([(publish(owned, 9), 60)])
    sequence_numbers.learn(owned, 10, 50, {"me": LastMessage(4, 20), "you": LastMessage(2, 30)})
    assert owned.known_from == 10
    assert sequence_numbers.last_message(owned, "me", 10) == LastMessage(9, 60)
    assert sequence_numbers.last_message(owned, "you", 10) == LastMessage(2, 30)


def test_the_topic_that_was_used_longest_ago_is_forgotten_and_has_to_be_learned_again() -> None:
    sequence_numbers, first, second = SequenceNumbers(publishers_max=1), topic("a"), topic("b")
    sequence_numbers.note([(publish(first, 1), 7)])
    sequence_numbers.note([(publish(second, 1), 8)])
    assert first.known_from == 8
    with pytest.raises(UnknownSequenceNumbersError):
        sequence_numbers.last_message(first, "me", 0)
    assert sequence_numbers.last_message(second, "me", 0) == LastMessage(1, 8)
    sequence_numbers.learn(first, 0, 7, {"me": LastMessage(1, 7)})
    assert first.known_from == 8, "what was learned up to an earlier ID leaves a gap"
    sequence_numbers.drop(second)
    assert sequence_numbers.last_message(second, "me", 0) is None


def test_one_publisher_is_learned_by_itself_and_joined_with_what_was_noted() -> None:
    sequence_numbers, owned = SequenceNumbers(publishers_max=2), topic(known_from=50)
    sequence_numbers.note([(publish(owned, 9), 60)])
    sequence_numbers.learn_alone(owned, "me", 10, 50, LastMessage(4, 20))
    assert sequence_numbers.knows(owned, "me", 10)
    assert not sequence_numbers.knows(owned, "me", 9)
    assert not sequence_numbers.knows(owned, "you", 10)
    assert sequence_numbers.last_message(owned, "me", 10) == LastMessage(9, 60)
    sequence_numbers.note([(publish(owned, 12), 70)])
    assert sequence_numbers.last_message(owned, "me", 10) == LastMessage(12, 70)
    with pytest.raises(UnknownSequenceNumbersError):
        sequence_numbers.last_message(owned, "you", 10)
    sequence_numbers.learn_alone(owned, "you", 0, 49, LastMessage(1, 1))
    assert not sequence_numbers.knows(owned, "you", 0), (
        "what was learned up to an earlier ID leaves a gap"
    )
    for name in ("you", "other"):
        sequence_numbers.learn_alone(owned, name, 0, 50, None)
        assert sequence_numbers.last_message(owned, name, 0) is None
    assert not sequence_numbers.knows(owned, "me", 10), (
        "the one that was asked for longest ago goes"
    )
    sequence_numbers.drop(owned)
    assert not sequence_numbers.knows(owned, "you", 0)


@pytest.mark.parametrize("store", ["zookeeper", "hbase"])
def test_more_publishers_of_a_topic_than_can_be_remembered_keep_nobody_from_publishing_once(
    store: str,
) -> None:
    backend = MemoryBackend()
    with backend.connect(metadata_store=store) as client:
        client.create_queue(QUEUE, partitions=1)

    def publish_all(sequence_numbers: range) -> list[int]:
        duplicates = []
        own = backend.connect(metadata_store=store)
        with own, HubThread(own, QUEUE, limits=HubLimits(publishers_max=8)) as hub:
            for publisher in range(20):
                with hqueue.connect_hubs(
                    [hub.address], queue=QUEUE, publisher=f"p{publisher}"
                ) as caller:
                    for number in sequence_numbers:
                        done = caller.topic("t").publish_idempotent([b"v"], sequence_number=number)
                        duplicates.append(done.duplicates)
        return duplicates

    assert publish_all(range(3)) == [0] * 60
    assert publish_all(range(4)) == [1, 1, 1, 0] * 20, "what another owner appended is there"
    with backend.connect(metadata_store=store) as client, client.queue(QUEUE).scan() as scanner:
        assert len([message for message in scanner if message.topic == "t"]) == 80


def test_numbers_are_carried_by_headers() -> None:
    given = [Message("t", b"a", headers=[("x", b"y")])] * 2
    assert with_sequence_numbers(given, None) == (given, 6)
    made, size = with_sequence_numbers(given, PublishSequence("me", 4, 0))
    assert made[1].headers == (("x", b"y"), (PUBLISHER, b"me"), (SEQUENCE_NUMBER, b"5"))
    assert size == sum(each.size for each in made)
    read = [
        hqueue.ReceivedMessage("t", b"", MessageID.from_int(n), 0, headers=each.headers)
        for n, each in enumerate(made)
    ]
    strange = [
        hqueue.ReceivedMessage(
            "t",
            b"",
            MessageID(1, 0),
            0,
            headers=((PUBLISHER, publisher), (SEQUENCE_NUMBER, number)),
        )
        for publisher, number in (
            (b"me", b"-7"),
            (b"me", b"9" * 5_000),
            (b"me", b"9" * 20),
            (b"me", b""),
            (b"me", b"\xc2\xb2"),
            (b"m" * 201, b"7"),
            (b"\xff", b"7"),
        )
    ]
    assert last_messages_of([*read, *strange]) == {"me": LastMessage(5, 1)}


Make = Callable[[], tuple[Sequence[Message], int, Mapping[str, int]] | None]


class Log:
    """A partition in memory whose appends fail as they are told to."""

    def __init__(self, on_settled: Callable[[int | None], None]) -> None:
        self.on_settled = on_settled
        self.end = 0
        self.values: list[bytes] = []
        self.fails: list[bool] = []
        """Whether the appends that fail next, with an unknown outcome, are in the log."""
        self._unsettled: list[int | None] = []

    async def open(self) -> int:
        return self.end

    def own(self, topic: str, epoch: int) -> None:
        """Nobody else owns it."""

    def disown(self, topic: str) -> None:
        """Nobody else owns it."""

    async def close_ranges(self, topics: Mapping[str, int], floor: int = 0) -> int:
        raise NotImplementedError

    async def append(self, make: Make) -> int | None:
        while self._unsettled:
            self.on_settled(self._unsettled.pop())
        made = make()
        if made is None:
            return None
        fails = bool(self.fails)
        stored = self.fails.pop(0) if fails else True
        base = self.end
        if stored:
            self.values += [message.value for message in made[0]]
            self.end += len(made[0])
        if fails:
            self._unsettled.append(base if stored else None)
            raise StoreUnavailableError("away", outcome=Outcome.UNKNOWN)
        return base


@pytest.fixture
def committer() -> Iterator[tuple[Committer, Log]]:
    logs: list[Log] = []

    def open_log(partition: int, on_fence: object, on_settled: Callable[[int | None], None]) -> Log:
        logs.append(Log(on_settled))
        return logs[-1]

    thread = LoopThread()
    runtime = thread.call(lambda: Runtime(1))
    made = Committer(0, runtime, open_log)
    made.open().result(WAIT_S)
    yield made, logs[0]
    made.close(WAIT_S)
    thread.run(runtime.close())
    thread.close()


def submit(to: Committer, owned: OwnedTopic, number: int, count: int = 1) -> Future[Published]:
    asked = publish(owned, number, count)
    return to.submit(owned, asked.messages, 1, asked.sequence)


@pytest.mark.parametrize("stored", [True, False])
def test_an_unknown_outcome_is_settled_before_the_same_numbers_are_judged(
    committer: tuple[Committer, Log], *, stored: bool
) -> None:
    to, log = committer
    owned = topic()
    to.register(owned)
    log.fails = [stored]
    assert submit(to, owned, 1, 2).exception(WAIT_S) is not None
    again = submit(to, owned, 1, 3).result(WAIT_S)
    assert log.values == [b"1", b"2", b"3"]
    assert (again.duplicates, again.count) == ((2, 1) if stored else (0, 3))
    third = submit(to, owned, 2, 2).result(WAIT_S)
    assert (third.duplicates, third.count, third.last_id) == (2, 0, MessageID.from_int(2))
    assert log.values == [b"1", b"2", b"3"]


def test_the_same_numbers_that_wait_together_are_stored_once(
    committer: tuple[Committer, Log],
) -> None:
    to, log = committer
    owned = topic()
    to.register(owned)
    waiting = [submit(to, owned, number // 3) for number in range(60)]
    wait(waiting, WAIT_S)
    assert log.values == [b"%d" % number for number in range(20)]
    assert sum(each.result().count for each in waiting) == 20


@pytest.fixture(params=["zookeeper", "hbase"])
def hubs(request: pytest.FixtureRequest) -> Iterator[list[HubThread]]:
    with contextlib.ExitStack() as stack:
        backend = MemoryBackend().apart(10_000)
        first = stack.enter_context(backend.connect(metadata_store=request.param))
        first.create_queue(QUEUE, partitions=2)
        yield [
            stack.enter_context(
                HubThread(
                    stack.enter_context(backend.connect(metadata_store=request.param)),
                    QUEUE,
                    balance_ms=3_600_000,
                )
            )
            for _ in range(2)
        ]


def connect(hubs: list[HubThread], publisher: str = "me") -> HubClient:
    return hqueue.connect_hubs([hub.address for hub in hubs], queue=QUEUE, publisher=publisher)


def values(hubs: list[HubThread]) -> list[bytes]:
    with hubs[0].client.queue(QUEUE).scan_topic("t") as scanner:
        return [message.value for message in scanner]


def leave(hubs: list[HubThread]) -> None:
    """Have the topic owned once more."""
    for hub in hubs:
        hub.hosted(QUEUE).topics.abandon("t").result(WAIT_S)


def test_numbers_are_known_to_every_later_owner(hubs: list[HubThread]) -> None:
    with connect(hubs) as me, connect(hubs, "you") as you:
        assert me.topic("t").last_sequence_number() is None, "there is no such topic"
        assert me.topic("t").publish_idempotent([b"1", b"2"], sequence_number=1).duplicates == 0
        assert you.topic("t").publish_idempotent([b"you"], sequence_number=1).duplicates == 0
        for number in (2, 3, 4):
            leave(hubs)
            done = me.topic("t").publish_idempotent(
                [b"%d" % number, b"%d" % (number + 1)], sequence_number=number
            )
            assert (done.duplicates, len(done.ids), done.last_id) == (1, 1, done.ids[0])
    leave(hubs)
    with connect(hubs) as again:  # It begins again, and knows nothing.
        assert again.topic("t").last_sequence_number() == 5
        done = again.topic("t").publish_idempotent([b"4", b"5"], sequence_number=4)
        assert (done.duplicates, len(done.ids)) == (2, 0)
        assert (
            again.topic("t")
            .publish_idempotent([b"9"], sequence_number=9, since=done.last_id)
            .duplicates
            == 0
        )
    assert values(hubs) == [b"1", b"2", b"you", b"3", b"4", b"5", b"9"]


def test_a_call_whose_answer_was_lost_is_made_again_by_the_client(hubs: list[HubThread]) -> None:
    with connect(hubs) as me:
        me.topic("t").publish_idempotent([b"1"], sequence_number=1)
        connections, lost = me._calls._connections, []
        exchange = connections.exchange

        def lose_one(call: Exchange) -> object:
            answer = exchange(call)
            if not lost:
                lost.append(answer)
                leave(hubs)
                raise ConnectionError("the answer is lost")
            return answer

        connections.exchange = lose_one  # type: ignore[method-assign]
        assert me.topic("t").publish_idempotent([b"2"], sequence_number=2).duplicates == 1
    assert values(hubs) == [b"1", b"2"]


def test_a_call_whose_topic_is_owned_anew_while_its_numbers_are_read_is_looked_at_anew(
    hubs: list[HubThread],
) -> None:
    hosted = hubs[0].hosted(QUEUE)

    def publish_once(number: int) -> Future[Published]:
        messages, size = with_sequence_numbers(
            [Message("t", b"%d" % number)], PublishSequence("me", number, 0)
        )
        return hosted.publishing.publish(
            Named(None, "me"),
            "t",
            messages,
            size,
            redirected=True,
            sequence=PublishSequence("me", number, 0),
        )

    sequence_numbers = hosted.topics.committers.of(
        publish_once(1).result(WAIT_S).partition
    ).sequence_numbers
    hosted.topics.abandon("t").result(WAIT_S)
    with stopped_at(sequence_numbers, "learn", after=True) as (reached, go_on):
        slow = publish_once(2)
        assert reached.wait(WAIT_S)
        hosted.topics.abandon("t").result(WAIT_S)
        messages = [Message("t", b"other")]
        hosted.publishing.publish(Named(None, "you"), "t", messages, 5, redirected=True).result(
            WAIT_S
        )
        go_on.set()
        assert slow.result(WAIT_S).count == 1
    assert publish_once(2).result(WAIT_S).duplicates == 1
    assert values(hubs) == [b"1", b"other", b"2"]


def test_the_newest_number_is_not_told_by_an_ownership_that_was_left(
    hubs: list[HubThread],
) -> None:
    hosted = hubs[0].hosted(QUEUE)
    given = PublishSequence("me", 7, 0)
    messages, size = with_sequence_numbers([Message("t", b"7")], given)
    published = hosted.publishing.publish(
        Named(None, "me"), "t", messages, size, redirected=True, sequence=given
    ).result(WAIT_S)
    sequence_numbers = hosted.topics.committers.of(published.partition).sequence_numbers
    hosted.topics.abandon("t").result(WAIT_S)
    with stopped_at(sequence_numbers, "learn", after=True) as (reached, go_on):
        last_message = hosted.publishing.last_message(Named(None, "me"), "t", 0, redirected=True)
        assert reached.wait(WAIT_S)
        hosted.topics.abandon("t").result(WAIT_S)
        other = [Message("t", b"other")]
        hosted.publishing.publish(Named(None, "you"), "t", other, 5, redirected=True).result(WAIT_S)
        go_on.set()
        assert last_message.result(WAIT_S) == LastMessage(7, int(published.id))


def test_what_makes_no_sense_is_refused(hubs: list[HubThread]) -> None:
    with connect(hubs, "hqueue") as nobody, pytest.raises(InvalidInputError, match="name"):
        nobody.topic("t").publish_idempotent([b"v"], sequence_number=1)
    with connect(hubs) as me:
        for number in (-1, 2**63 - 1, True):
            with pytest.raises(InvalidInputError):
                me.topic("t").publish_idempotent([b"v"], sequence_number=number)
        with pytest.raises(InvalidInputError):
            me.topic("t").publish_idempotent([], sequence_number=1)
        with pytest.raises(InvalidInputError):
            me.topic("").last_sequence_number()
    assert not hubs[0].owns(QUEUE) | hubs[1].owns(QUEUE)


def test_a_search_that_no_thread_was_there_for_is_begun_by_the_next_that_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owned, sequence_numbers = topic(known_from=100), SequenceNumbers()
    sequence_searches = SequenceSearches(lambda *_: contextlib.nullcontext(()))
    none = ThreadPool(1, "none")
    none.shutdown()
    with monkeypatch.context() as patched:
        patched.setattr(sequence_searches, "_pool", none)
        with pytest.raises(HQueueError):
            sequence_searches.learn(owned, sequence_numbers, "me", 0)
    sequence_searches.learn(owned, sequence_numbers, "me", 0).result(WAIT_S)
    assert sequence_numbers.knows(owned, "me", 0)
    sequence_searches.close()


def test_one_search_looks_for_all_that_asked_before_it_began_where_there_are_too_many() -> None:
    owned, sequence_numbers = topic(known_from=100), SequenceNumbers()
    owned.crowded = True
    scans: list[str] = []
    may_begin = threading.Event()

    @contextlib.contextmanager
    def scan(name: str, since: int, until: int) -> Iterator[list[Message]]:
        scans.append(name)
        assert may_begin.wait(WAIT_S)
        yield []

    sequence_searches = SequenceSearches(scan)
    first = sequence_searches.learn(owned, sequence_numbers, "first", 0)
    wait_for(lambda: scans, "the first search")
    others = [sequence_searches.learn(owned, sequence_numbers, f"p{n}", 0) for n in range(1_000)]
    again = sequence_searches.learn(owned, sequence_numbers, "p0", 0)
    may_begin.set()
    for learned in (first, *others, again):
        learned.result(WAIT_S)
    assert all(sequence_numbers.knows(owned, name, 0) for name in ("first", "p0", "p999"))
    assert len(scans) <= 2 * THREADS + 1
    sequence_searches.close()
