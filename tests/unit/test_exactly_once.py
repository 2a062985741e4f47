"""What comes of each message of a queue is in another once, whatever becomes of processors."""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest

import hqueue
import hqueue.aio
from hqueue import (
    Consumer,
    ExactlyOnceProcessor,
    IdempotencyKeyReusedError,
    InvalidInputError,
    Message,
    ReceivedMessage,
)
from hqueue.groups.member import GroupMember
from tests.support.backends import MemoryBackend
from tests.support.consumer_faces import LoopedProcessor
from tests.support.memory.metadata import MemorySession
from tests.support.waiting import wait_for

IDLE_MS = 300


Face = Callable[..., Any]
"""Makes a processor."""


class Death(BaseException):
    """Ends a processor where it is."""


@pytest.fixture
def client() -> Iterator[hqueue.Client]:
    with MemoryBackend().connect() as connected:
        yield connected


class Queues:
    """A source and a target, and processors that bring one into the other."""

    def __init__(self, client: hqueue.Client, face: Face, partitions: int = 1) -> None:
        self.client = client
        self._face = face
        self.source = client.create_queue("source", partitions=partitions)
        self.target = client.create_queue("target", partitions=min(partitions, 2))

    def fill(self, *counts: int) -> None:
        """Put messages that have so many results each, in turns into the partitions."""
        for number, count in enumerate(counts):
            message = Message("t", b"%d of %d" % (count, number))
            self.source.put(message, partition=number % self.source.partitions)

    def run(self, messages_max: int = 500, process: hqueue.typing.Process | None = None) -> int:
        with self.processor(messages_max, process) as processor:
            return processor.run(idle_ms_max=IDLE_MS)

    def processor(
        self, messages_max: int = 500, process: hqueue.typing.Process | None = None
    ) -> Any:
        options = {"client": self.client, "messages_max": messages_max}
        return self._face("source", "target", "g", process or results_of, **options)

    def check(self) -> None:
        """Each result is in the target once, and those of a partition are in its order."""
        found = [message.value for message in self.target.scan()]
        expected = [
            [result.value for message in self.source.scan(partition=number)
             for result in results_of(message)]
            for number in range(self.source.partitions)
        ]  # fmt: skip
        assert sorted(found) == sorted(itertools.chain(*expected))
        for each in expected:
            assert [value for value in found if value in each] == each


def results_of(message: ReceivedMessage) -> list[Message]:
    count = int(message.value.split()[0])
    return [Message("r", b"%s: %d" % (message.value, number)) for number in range(count)]


@pytest.fixture(params=[ExactlyOnceProcessor, LoopedProcessor], ids=["threads", "asyncio"])
def face(request: pytest.FixtureRequest) -> Face:
    face: Face = request.param
    return face


@pytest.fixture
def queues(client: hqueue.Client, face: Face) -> Queues:
    return Queues(client, face)


Commit = Callable[[], None]


def before_a_commit(
    monkeypatch: pytest.MonkeyPatch, does: Callable[[Consumer], None], number: int = 1
) -> None:
    """Do something once: when a consumer is about to commit for the n-th time."""
    original, commits = Consumer.commit, itertools.count(1)

    def commit(consumer: Consumer, positions: hqueue.typing.ToCommit = None) -> None:
        if next(commits) == number:
            does(consumer)
        original(consumer, positions)

    async def commit_in_loop(consumer: Any, positions: hqueue.typing.ToCommit = None) -> None:
        if next(commits) == number:
            await asyncio.to_thread(does, consumer)
        await original_in_loop(consumer, positions)

    original_in_loop = hqueue.aio.Consumer.commit
    monkeypatch.setattr(Consumer, "commit", commit)
    monkeypatch.setattr(hqueue.aio.Consumer, "commit", commit_in_loop)


def dies(_: Consumer) -> None:
    raise Death


def run_and_die(
    queues: Queues, monkeypatch: pytest.MonkeyPatch, messages_max: int, commit: int = 1
) -> None:
    with monkeypatch.context() as patched:
        before_a_commit(patched, dies, commit)
        with pytest.raises(Death):
            queues.run(messages_max)


COUNTS = {
    "one each": [1] * 12,
    "none, one or several": [0, 3, 1, 0, 0, 2, 0, 1, 5, 0, 0, 0],
    "several each": [4, 3, 5, 4, 3, 5, 4],
    "none at first": [0, 0, 0, 1, 1],
    "none": [0, 0, 0],
}


@pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)
def test_what_comes_is_processed_and_committed(queues: Queues, counts: Sequence[int]) -> None:
    queues.fill(*counts)
    processed = queues.run(2)
    queues.check()
    assert processed == (len(counts) if any(counts) else 0)
    before = queues.target.scan(), [*queues.target.scan()]
    assert queues.run(3) == 0
    assert [*queues.target.scan()] == before[1]
    before[0].close()


@pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)
@pytest.mark.parametrize(
    ("cut", "following"), [(1, 1), (2, 1), (2, 3), (3, 2), (5, 3), (3, 5)], ids=str
)
def test_one_that_died_between_a_put_and_its_commit_is_followed_by_one_that_cuts_elsewhere(
    queues: Queues,
    monkeypatch: pytest.MonkeyPatch,
    counts: Sequence[int],
    cut: int,
    following: int,
) -> None:
    queues.fill(*counts)
    if any(counts):
        run_and_die(queues, monkeypatch, cut)
    queues.run(following)
    queues.check()
    queues.fill(1, 0, 2)
    queues.run()
    queues.check()


def test_each_may_die_before_its_first_commit_and_before_its_second(
    queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues.fill(*COUNTS["none, one or several"])
    for commit, cut in [(1, 4), (1, 2), (2, 3), (1, 1), (2, 1)]:
        run_and_die(queues, monkeypatch, cut, commit)
    queues.run(4)
    queues.check()


@pytest.mark.parametrize("cut", [1, 3, 12])
def test_one_that_stood_still_while_another_had_its_partition_puts_nothing_twice(
    queues: Queues, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    queues.fill(*COUNTS["none, one or several"])

    def stand_still(consumer: Consumer) -> None:
        holder = consumer._consumption.membership.holder
        assert isinstance(holder, GroupMember)
        session = holder._store
        assert isinstance(session, MemorySession)
        session.expire()
        queues.run(2)

    before_a_commit(monkeypatch, stand_still)
    queues.run(cut)
    queues.check()


def test_results_of_several_partitions_go_to_fewer_in_the_order_of_each(
    client: hqueue.Client, face: Face
) -> None:
    queues = Queues(client, face, partitions=5)
    queues.fill(*range(3), *range(3), *range(3), *[1] * 20)
    assert queues.run(2) == 29
    queues.check()


def test_large_results_are_put_in_several_batches_and_those_of_a_message_in_one(
    queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    puts: list[int] = []

    def counted(put: Callable[..., Any]) -> Callable[..., Any]:
        def counting(queue: Any, messages: Sequence[Message], **options: object) -> Any:
            puts.append(len(messages))
            return put(queue, messages, **options)

        return counting

    for kind in (hqueue.Queue, hqueue.aio.Queue):
        monkeypatch.setattr(kind, "put", counted(kind.put))
    large = {b"0": [b"x" * 2**20] * 3, b"1": [b"y"] * 10_500, b"2": [b"z" * 2**21], b"3": [b""]}
    queues.source.put([Message("t", value) for value in large], partition=0)
    del puts[:]
    queues.run(process=lambda message: [Message("r", each) for each in large[message.value]])
    assert puts == [3, 10_500, 2]
    assert sum(1 for _ in queues.target.scan()) == sum(map(len, large.values()))


def test_a_message_that_can_not_be_processed_ends_it_when_those_before_are_put(
    queues: Queues,
) -> None:
    queues.fill(1, 2, 3, 1)
    broken = True

    def process(message: ReceivedMessage) -> Iterable[Message]:
        if broken and message.value.startswith(b"3"):
            raise ValueError("a message that can't be handled")
        yield from results_of(message)

    for _ in range(2):
        with pytest.raises(ValueError, match="handled"):
            queues.run(process=process)
        assert len(list(queues.target.scan())) == 3
    broken = False
    assert queues.run(process=process) == 2
    queues.check()


def test_a_process_that_makes_other_results_of_a_message_is_refused(
    queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues.fill(1, 1)
    run_and_die(queues, monkeypatch, 1)
    with pytest.raises(IdempotencyKeyReusedError):
        queues.run(process=lambda message: [Message("r", b"another")])
    queues.run()
    queues.check()


def test_a_batch_whose_messages_are_gone_before_it_was_committed_is_an_error_and_no_double(
    queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues.fill(1, 1)
    run_and_die(queues, monkeypatch, 2)
    before = [message.value for message in queues.target.scan()]
    queues.client.disable_queue("source")
    queues.client.truncate_queue("source")
    queues.client.enable_queue("source")
    queues.fill(2, 1, 1)
    with pytest.raises(IdempotencyKeyReusedError):
        queues.run()
    assert [message.value for message in queues.target.scan()] == before


def values(queues: Queues) -> list[bytes]:
    return [message.value for message in queues.target.scan()]


def test_after_a_reset_what_an_earlier_run_put_is_refused_and_not_left_out_silently(
    queues: Queues,
) -> None:
    queues.source.put([Message("t", b"1 of %d" % number) for number in range(10)], partition=0)
    queues.run(5)
    before = values(queues)
    ids = [message.id for message in queues.source.scan()]
    queues.client.reset_group("g", "source", ids[4])
    with pytest.raises(IdempotencyKeyReusedError, match=r"set back.*use another group") as error:
        queues.run(1)
    assert error.value.facts["offset"] == str(ids[5])
    assert values(queues) == [*before, before[4]]
    assert queues.run(1) == 5, "what begins where the group is may be put, and not committed"


def test_after_a_reset_each_batch_of_an_earlier_run_but_the_first_is_refused(
    queues: Queues,
) -> None:
    queues.source.put([Message("t", b"1 of %d" % number) for number in range(6)], partition=0)
    queues.run(2)
    before = values(queues)
    queues.client.reset_group("g", "source", "earliest")
    for _ in range(2):
        with pytest.raises(IdempotencyKeyReusedError, match="set back"):
            queues.run(2)
        assert values(queues) == before
    queues.fill(1, 1)
    queues.run(2)
    queues.check()
    assert values(queues)[:6] == before


def test_after_a_reset_with_another_process_the_error_says_what_to_do(queues: Queues) -> None:
    queues.fill(1, 1, 1)
    queues.run()
    queues.client.reset_group("g", "source", "earliest")
    for _ in range(2):
        with pytest.raises(IdempotencyKeyReusedError, match=r"other results.*use another group"):
            queues.run(process=lambda message: [Message("r", b"another")])
    queues.client.reset_group("g", "source", "latest")
    queues.fill(1)
    assert queues.run() == 1
    queues.check()


async def _async(message: ReceivedMessage) -> list[bytes]:
    return [b"abc"]  # A thread does not await it, and an event loop finds no messages.


@pytest.mark.parametrize(
    "process",
    [
        lambda message: None,
        lambda message: Message("r", b""),
        lambda message: b"abc",
        lambda message: "abc",
        lambda message: [b"abc"],
        lambda message: [Message("r", b""), None],
        lambda message: 5,
        _async,
    ],
    ids=["None", "message", "bytes", "str", "list of bytes", "and None", "int", "async"],
)
def test_what_process_returns_must_be_messages(
    queues: Queues, process: hqueue.typing.Process
) -> None:
    queues.fill(1)
    (message,) = queues.source.scan()
    with pytest.raises(InvalidInputError, match="process must return") as error:
        queues.run(process=process)
    assert error.value.facts["message_id"] == str(message.id)
    assert values(queues) == []


def test_results_that_are_too_large_are_an_error_that_names_their_message(queues: Queues) -> None:
    queues.fill(1, 1)
    second = [message.id for message in queues.source.scan()][1]
    large = [Message("r", b"x" * 2**20)] * 9

    def process(message: ReceivedMessage) -> list[Message]:
        return large if message.id == second else results_of(message)

    with pytest.raises(hqueue.MessageTooLargeError, match="let process return fewer") as error:
        queues.run(process=process)
    assert "Producer" not in str(error.value)
    assert error.value.facts["first"] == str(second)
    assert len(values(queues)) == 1


def test_after_close_it_does_not_run(queues: Queues) -> None:
    with queues.processor() as processor:
        processor.close()
        processor.close()
        with pytest.raises(hqueue.ClosedError, match="processor was closed"):
            processor.run(idle_ms_max=0)


def test_a_stop_that_is_requested_before_it_runs_holds_for_every_run(queues: Queues) -> None:
    queues.fill(1)
    with queues.processor() as processor:
        processor.request_stop()
        assert [processor.run(), processor.run()] == [0, 0]
    assert queues.run() == 1


def test_it_is_not_run_or_closed_while_it_runs(queues: Queues) -> None:
    queues.fill(1)
    refused: list[BaseException | None] = []

    def process(message: ReceivedMessage) -> list[Message]:
        for call in (lambda: processor.run(idle_ms_max=0), processor.close):
            with pytest.raises(InvalidInputError, match="is running"):
                call()
            with concurrent.futures.ThreadPoolExecutor(1) as threads:
                refused.append(threads.submit(call).exception())
        return results_of(message)

    with queues.processor(process=process) as processor:
        assert processor.run(idle_ms_max=0) == 1
        assert [type(each) for each in refused] == [InvalidInputError] * 2
        assert processor.run(idle_ms_max=100) == 0
    queues.check()


def test_the_time_without_messages_counts_from_when_it_has_partitions(queues: Queues) -> None:
    queues.fill(*[1] * 10)
    with queues.processor() as processor:
        assert processor.run(idle_ms_max=100) == 10
        assert processor.run(idle_ms_max=100) == 0


def test_one_for_which_no_partition_is_left_ends_as_well(queues: Queues) -> None:
    queues.fill(1)
    with queues.processor() as first, queues.processor() as second:
        running = threading.Thread(target=first.run)
        running.start()
        wait_for(lambda: values(queues) != [], "the first one has the partition")
        assert second.run(idle_ms_max=0) == 0
        first.request_stop()
        running.join(60)


def test_it_ends_when_that_is_asked_for_and_commits_what_it_took(queues: Queues) -> None:
    queues.fill(1, 1, 1)
    ended: list[int] = []
    with queues.processor(2) as processor:
        running = threading.Thread(target=lambda: ended.append(processor.run()))
        running.start()
        wait_for(lambda: len(list(queues.target.scan())) == 3, "all is processed")
        processor.request_stop()
        running.join(60)
        assert ended == [3]
        assert processor.run() == 0
    queues.check()


def test_it_has_a_client_of_its_own_or_the_one_that_it_was_given(queues: Queues) -> None:
    with queues.processor():
        pass
    assert queues.client.queue("source").partitions == 1, "it stays open"
    with pytest.raises(InvalidInputError, match="auto_commit"):
        ExactlyOnceProcessor(
            "source", "target", "g", results_of, client=queues.client, auto_commit=True
        )
    with pytest.raises(hqueue.QueueNotFoundError):
        ExactlyOnceProcessor("none", "target", "g", results_of, client=queues.client)
    with pytest.raises(InvalidInputError, match="1 to 200"):
        ExactlyOnceProcessor("source", "target", "", results_of, client=queues.client)
