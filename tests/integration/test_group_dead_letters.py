"""Dead letters of consumer groups: rejected, listed, put back to the group alone, and deleted."""

from __future__ import annotations

import contextlib
import datetime
import threading
from collections.abc import Callable
from typing import Any

import pytest

import hqueue
from hqueue import ConsumedMessage, Consumer, InvalidInputError, Message, ReceivedMessage
from hqueue.errors import CommitFailedError, Outcome, StoreUnavailableError
from hqueue.settings.limits import BATCH_BYTES_MAX
from tests.support.backends import LossyWay
from tests.support.consuming import put_numbered, settle, take, values
from tests.support.proxy import Fate
from tests.support.queue_faces import QueueFace
from tests.support.waiting import wait_for

MakeQueue = Callable[..., hqueue.Queue]
Join = Callable[..., Consumer]

MANY = [("n", b"v"), ("n", b"w")]


def waiting(queue: hqueue.Queue, group: str) -> list[hqueue.DeadLetter]:
    return list(queue.dead_letters.waiting(group=group))


def next_of(consumer: Consumer) -> ConsumedMessage:
    (message,) = take(1, consumer, messages_max=1)
    return message


def test_a_message_that_is_rejected_waits_with_all_that_it_has_and_the_group_goes_on(
    make_queue: MakeQueue, join: Join
) -> None:
    queue = make_queue(1)
    queue.put([Message("t", b"bad", b"k", MANY), Message("t", b"good")])
    consumer = join(queue, auto_commit=False)
    group = str(consumer.group)
    bad = next_of(consumer)
    consumer.reject(bad, "no such page")
    (letter,) = waiting(queue, group)
    assert letter.message == ReceivedMessage("t", b"bad", bad.id, 0, key=b"k", headers=MANY)
    assert (letter.group, letter.subscriber, letter.reason) == (group, None, "no such page")
    assert letter.attempts == 1
    assert letter.id is not None
    assert letter.id > bad.id
    good = next_of(consumer)
    assert good.value == b"good"
    consumer.commit()
    assert [*consumer.committed().values()] == [good.id.next()]
    # It reads all topics, and not its own dead letters.
    assert consumer.poll(timeout_ms=200) == []
    assert [each.topic for each in queue.scan()][-1].startswith("hqueue.dead-letters.group/")


@pytest.mark.in_memory
def test_a_message_that_comes_again_and_is_rejected_again_is_one_dead_letter(
    make_queue: MakeQueue, join: Join
) -> None:
    queue = make_queue(1)
    queue.put(Message("t", b"bad"))
    first = join(queue)
    first.reject(next_of(first), "first")
    first.close(commit=False)
    second = join(queue)
    second.reject(next_of(second), "second")
    assert [each.reason for each in waiting(queue, str(second.group))] == ["first"]


@pytest.mark.parametrize("topics", [pytest.param((), marks=pytest.mark.in_memory), ("t", "u")])
def test_a_redrive_comes_to_the_group_alone_as_the_original_under_an_id_of_its_own(
    make_queue: MakeQueue, join: Join, topics: tuple[str, ...], queue_face: QueueFace,
    client: hqueue.Client,
) -> None:  # fmt: skip
    queue = make_queue(2)
    face = queue_face(client, queue)
    queue.put([Message("t", b"bad", b"k", MANY), Message("u", b"worse")], partition=1)
    consumer, other = join(), join(group="another group")
    consumer.subscribe(queue.name, topics=topics)
    other.subscribe(queue.name, topics=topics)
    taken = take(2, consumer)
    assert [each.value for each in take(2, other)] == [b"bad", b"worse"]
    for message in taken:
        consumer.reject(message)
    group = str(consumer.group)
    letters = list(face.dead_letters.waiting(group=group))
    assert [each.message.value for each in letters] == [b"bad", b"worse"]
    assert face.dead_letters.redrive(letters) == 2
    assert not list(face.dead_letters.waiting(group=group))
    queue.put(Message("t", b"last"), partition=1)
    again = take(3, consumer)
    assert [(m.topic, m.value, m.key, m.headers) for m in again] == [
        ("t", b"bad", b"k", tuple(MANY)),
        ("u", b"worse", None, ()),
        ("t", b"last", None, ()),
    ]
    assert again[0].id > taken[1].id
    assert [each.value for each in take(1, other)] == [b"last"]
    # What was put back may be rejected again, and is another dead letter.
    consumer.reject(again[0], "still bad")
    (letter,) = waiting(queue, group)
    assert (letter.message.id, letter.reason) == (again[0].id, "still bad")


@pytest.mark.in_memory
def test_what_is_put_back_comes_in_record_batches_too(make_queue: MakeQueue, join: Join) -> None:
    queue = make_queue(1)
    queue.put([Message("t", b"a"), Message("t", b"b", b"k", MANY)])
    consumer = join(queue)
    for message in take(2, consumer):
        consumer.reject(message)
    assert queue.dead_letters.redrive(waiting(queue, str(consumer.group))) == 2
    queue.put(Message("t", b"c"))
    rows: list[dict[str, Any]] = []
    for batch in consumer.arrow_batches():
        rows += batch.to_pylist()
        if len(rows) == 3:
            break
    assert [(row["topic"], row["value"], row["key"]) for row in rows] == [
        ("t", b"a", None), ("t", b"b", b"k"), ("t", b"c", None)
    ]  # fmt: skip
    assert [row["headers"] and len(row["headers"]) for row in rows] == [None, 2, None]


def test_a_value_that_fits_no_batch_with_its_dead_letter_is_put_back_from_the_log(
    make_queue: MakeQueue, join: Join
) -> None:
    queue = make_queue(1)
    large = bytes(BATCH_BYTES_MAX)
    queue.put(Message("t", large))
    consumer = join(queue)
    for _ in range(2):  # What was put back leaves it where it was, too.
        consumer.reject(next_of(consumer))
        (letter,) = waiting(queue, str(consumer.group))
        assert letter.message.value == large
        queue.dead_letters.redrive([letter])
    assert next_of(consumer).value == large


@pytest.mark.in_memory
def test_what_is_deleted_comes_to_nobody(
    make_queue: MakeQueue, join: Join, queue_face: QueueFace, client: hqueue.Client
) -> None:
    queue = make_queue(1)
    queue.put([Message("t", b"a"), Message("t", b"b")])
    consumer = join(queue)
    group = str(consumer.group)
    for message in take(2, consumer):
        consumer.reject(message)
    face = queue_face(client, queue)
    assert face.dead_letters.delete(waiting(queue, group)[:1]) == 1
    (letter,) = waiting(queue, group)
    assert letter.message.value == b"b"
    face.dead_letters.redrive([letter])
    assert [each.value for each in take(1, consumer)] == [b"b"]
    assert not waiting(queue, group)


@pytest.mark.in_memory
def test_a_consumer_that_begins_later_gets_what_was_put_back_meanwhile(
    make_queue: MakeQueue, join: Join
) -> None:
    queue = make_queue(1)
    queue.put(Message("t", b"bad"))
    first = join(queue)
    first.reject(next_of(first))
    first.close(commit=True)
    queue.dead_letters.redrive(waiting(queue, str(first.group)))
    assert next_of(join(queue)).value == b"bad"


@pytest.mark.in_memory
def test_what_can_not_be_rejected(make_queue: MakeQueue, join: Join) -> None:
    queue, strange = make_queue(2), make_queue(1)
    put_numbered(queue, 2)
    first = join(queue)
    taken = take(2, first)
    message = taken[0]
    elsewhere = ConsumedMessage("t", b"1", message.id, 0, queue=strange.name)
    for wrong, reason in [
        (elsewhere, ""),
        (message, "x" * 1_001),
        (message, 1),
        (message, "\ud800"),
        (None, ""),
        ([message], ""),
    ]:
        with pytest.raises(InvalidInputError):
            first.reject(wrong, reason)  # type: ignore[arg-type]
    assert not waiting(queue, str(first.group))
    settle(first, join(queue), shares=[1, 1])
    (kept,) = first.assignment()
    for message in taken:
        if message.partition == kept.partition:
            first.reject(message, "x" * 1_000)
        else:
            with pytest.raises(CommitFailedError, match="another consumer") as caught:
                first.reject(message)
            assert caught.value.outcome is Outcome.NOT_APPLIED
    assert [each.message.partition for each in waiting(queue, str(first.group))] == [kept.partition]
    alone = join(group=None)
    alone.assign([(queue.name, 0)])
    with pytest.raises(InvalidInputError, match="without a group"):
        alone.reject(next_of(alone))


@pytest.mark.in_memory
def test_streams_reject_in_their_own_threads(
    make_queue: MakeQueue, join_in_threads: Callable[..., Any]
) -> None:
    queue = make_queue(4)
    put_numbered(queue, 40)
    consumer = join_in_threads(queue, streams=4)
    failures: list[BaseException] = []

    def run(stream: hqueue.ConsumerStream) -> None:
        try:
            for message in stream:
                consumer.reject(message)
        except BaseException as exc:
            failures.append(exc)

    threads = [threading.Thread(target=run, args=(stream,)) for stream in consumer.streams]
    for thread in threads:
        thread.start()
    wait_for(lambda: len(waiting(queue, consumer.group)) == 40 or failures, "all are rejected")
    consumer.request_stop()
    for thread in threads:
        thread.join()
    assert not failures
    assert values([each.message for each in waiting(queue, consumer.group)]) == [*range(40)]


@pytest.mark.in_memory
def test_a_consumer_without_a_group_gets_neither_dead_letters_nor_redrives(
    make_queue: MakeQueue, join: Join
) -> None:
    queue = make_queue(1)
    queue.put(Message("t", b"bad"))
    consumer = join(queue)
    consumer.reject(next_of(consumer))
    queue.dead_letters.redrive(waiting(queue, str(consumer.group)))
    queue.put(Message("t", b"last"))
    alone = join(group=None)
    alone.assign([(queue.name, 0)])
    assert [each.value for each in take(2, alone)] == [b"bad", b"last"]


@pytest.mark.in_memory
def test_filters_by_time_find_what_was_rejected_then(make_queue: MakeQueue, join: Join) -> None:
    queue = make_queue(1)
    queue.put(Message("t", b"bad"))
    consumer = join(queue)
    consumer.reject(next_of(consumer), "No such page")
    find = queue.dead_letters.waiting
    ago = datetime.timedelta(hours=1)
    assert len(list(find(group=consumer.group, since=ago, reason="PAGE"))) == 1
    assert not list(find(group=consumer.group, until=ago))
    assert [each.owner.name for each in find()] == [consumer.group]


@pytest.mark.in_memory
def test_a_position_between_two_that_were_put_back_together_is_kept(
    make_queue: MakeQueue, join: Join
) -> None:
    queue = make_queue(1)
    put_numbered(queue, 4)
    first = join(queue, auto_commit=False)
    taken = take(4, first)
    for message in taken:
        first.reject(message)
    first.commit()
    letters = waiting(queue, str(first.group))
    queue.dead_letters.redrive([letters[0], letters[2], letters[3]])
    again = take(2, first, messages_max=1)
    assert values(again) == [0, 2]
    first.commit(again[0])
    first.close(commit=False)
    second = join(queue)
    assert values(take(2, second)) == [2, 3]
    second.seek((queue.name, 0), again[1].id)
    assert [each.id for each in take(1, second, messages_max=1)] == [again[1].id]


@pytest.mark.in_memory
@pytest.mark.parametrize("fate", [Fate.LOSE_ANSWER, Fate.LOSE_REQUEST, Fate.HOLD])
def test_a_rejection_whose_outcome_is_unknown_is_repeated_and_is_one_dead_letter(
    make_queue: MakeQueue, lossy: LossyWay, fate: Fate
) -> None:
    queue = make_queue(1)
    put_numbered(queue, 1)
    with (
        lossy.connect(operation_timeout_ms=300) as client,
        Consumer(queue.name, group="g", client=client) as consumer,
    ):
        message = next_of(consumer)
        lossy.set_fate(lambda method: fate if method == "put_if_absent" else Fate.PASS)
        with contextlib.suppress(StoreUnavailableError):  # An answer alone is looked up.
            consumer.reject(message, "first")
        lossy.set_fate(lambda method: Fate.PASS)
        consumer.reject(message, "again")
        lossy.deliver()
        (letter,) = waiting(queue, "g")
        assert letter.message.value == b"0"


@pytest.mark.in_memory
def test_a_processor_gets_what_is_put_back_to_its_group_once(
    make_queue: MakeQueue, client: hqueue.Client
) -> None:
    source, target = make_queue(1), make_queue(1)
    put_numbered(source, 2)

    def process(message: ReceivedMessage) -> list[Message]:
        return [Message("done", message.topic.encode() + b" " + message.value)]

    def run() -> list[bytes]:
        with hqueue.ExactlyOnceProcessor(
            source.name, target.name, "g", process, client=client
        ) as processor:
            processor.run(idle_ms_max=500)
        return [message.value for message in target.scan()]

    assert run() == [b"t 0", b"t 1"]
    (first, _) = source.scan()
    letters = source.dead_letters
    letters.put([hqueue.DeadLetter(first, None, "why", 1, group="g")])
    letters.redrive(waiting(source, "g"))
    assert run() == [b"t 0", b"t 1", b"t 0"]
    assert run() == [b"t 0", b"t 1", b"t 0"]
