"""What a consumer can be asked for, and what it refuses."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable
from typing import Any

import pytest

import hqueue
from hqueue import Message, MessageID, PartitionKey
from tests.support.consuming import (
    EXTRAS,
    put_numbered,
    put_with_extras,
    settle,
    take,
    values,
)
from tests.support.waiting import wait_for

MakeQueue = Callable[..., hqueue.Queue]
Join = Callable[..., Any]

pytestmark = pytest.mark.in_memory


@pytest.mark.in_memory_first
def test_iterating_hands_out_what_comes_until_a_stop_is_requested(
    make_queue: MakeQueue, join: Join
) -> None:
    queue = make_queue(2)
    put_numbered(queue, 30)
    consumer = join(queue)
    taken = list(consumer.messages(idle_ms_max=2_000))
    assert values(taken) == list(range(30))
    threading.Timer(0.2, consumer.request_stop).start()
    assert list(consumer) == []
    consumer.close()
    with pytest.raises(hqueue.ClosedError):
        consumer.poll()


def test_arrow_batches_hold_what_messages_do(make_queue: MakeQueue, join: Join) -> None:
    queue = make_queue(2)
    put_numbered(queue, 100)
    consumer = join(queue)
    begun = take(3, consumer)
    rows = [row for batch in consumer.arrow_batches(idle_ms_max=2_000) for row in batch.to_pylist()]
    assert {row["queue"] for row in rows} == {queue.name}
    found = values(begun) + [int(row["value"]) for row in rows]
    assert sorted(found) == list(range(100))
    assert sum(lag.messages for lag in consumer.lag().values()) == 0


def test_however_it_consumes_it_gets_keys_and_headers(make_queue: MakeQueue, join: Join) -> None:
    queue = make_queue(1)
    put_with_extras(queue)
    expected = [(m.value, m.key, m.headers) for m in queue.scan()]
    with join(queue, group=f"{queue.name}-1") as polling:
        assert [(m.value, m.key, m.headers) for m in take(EXTRAS, polling)] == expected
    with join(queue, group=f"{queue.name}-2") as iterating:
        assert [
            (m.value, m.key, m.headers) for m in iterating.messages(idle_ms_max=2_000)
        ] == expected
    with join(queue, group=f"{queue.name}-3") as batching:
        rows = [
            row for batch in batching.arrow_batches(idle_ms_max=2_000) for row in batch.to_pylist()
        ]
    assert [
        (row["value"], row["key"], tuple((h["key"], h["value"]) for h in row["headers"] or ()))
        for row in rows
    ] == expected
    assert all(row["headers"] is None or row["headers"] for row in rows)


@pytest.mark.in_memory_first
def test_a_group_takes_in_queues_that_fit_its_pattern_also_later_ones(
    make_queue: MakeQueue, join: Join
) -> None:
    queue = make_queue(1)
    consumer = join(metadata_age_ms_max=200)
    consumer.subscribe(pattern=queue.name.removesuffix("0") + r"\d")
    settle(consumer, shares=[1])
    later = make_queue(2)
    settle(consumer, shares=[3])
    assert consumer.subscription() == {queue.name, later.name}
    put_numbered(later, 10)
    assert values(take(10, consumer)) == list(range(10))


def test_of_chosen_topics_only_their_messages_come_and_the_position_passes_the_others(
    make_queue: MakeQueue, join: Join
) -> None:
    queue = make_queue(1)
    put_numbered(queue, 5, topic="a")
    put_numbered(queue, 5, first=5, topic="b")
    put_numbered(queue, 5, first=10, topic="c")
    consumer = join()
    consumer.subscribe(queue.name, topics=["b"])
    assert values(take(5, consumer)) == [5, 6, 7, 8, 9]

    def passed() -> bool:
        assert not consumer.poll(10)
        return consumer.lag()[PartitionKey(queue.name, 0)].messages == 0

    wait_for(passed, "what is not wanted is passed")


@pytest.mark.in_memory_first
def test_seeking_goes_back_and_ahead_and_to_a_time(make_queue: MakeQueue, join: Join) -> None:
    queue = make_queue(1)
    put_numbered(queue, 10)
    key = PartitionKey(queue.name, 0)
    consumer = join(queue)
    taken = take(10, consumer)
    consumer.seek(key, taken[4].id)
    assert values(take(6, consumer)) == [4, 5, 6, 7, 8, 9]
    consumer.seek_to_beginning()
    assert values(take(3, consumer)) == [0, 1, 2]
    assert consumer.position(key) == taken[2].id.next()
    consumer.seek(key, taken[-1].id.datetime)
    assert consumer.position(key).timestamp == taken[-1].timestamp
    consumer.seek_to_end(key)
    put_numbered(queue, 2, first=10)
    assert values(take(2, consumer)) == [10, 11]
    with pytest.raises(hqueue.InvalidInputError, match="beyond the end"):
        consumer.seek(key, MessageID(taken[-1].timestamp + 10**9))


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc)


SAID: dict[str, Callable[[datetime.timedelta], Any]] = {
    "datetime": lambda ago: now() - ago,
    "timedelta": lambda ago: ago,
    "iso text": lambda ago: (now() - ago).isoformat(),
    "milliseconds": lambda ago: int((now() - ago).timestamp() * 1_000),
}


@pytest.mark.parametrize("said", SAID.values(), ids=SAID)
def test_seeking_to_a_time_since_which_nothing_was_written_goes_to_the_end(
    make_queue: MakeQueue, join: Join, said: Callable[[datetime.timedelta], Any]
) -> None:
    queue = make_queue(2)
    consumer = join(queue)
    settle(consumer, shares=[2])
    written = queue.put(Message("t", b"0"), partition=0)
    little = datetime.timedelta(milliseconds=1)
    wait_for(lambda: now() - 2 * little > written.datetime, "the last message is older than that")
    consumer.seek((queue.name, 0), said(little))
    assert consumer.position((queue.name, 0)) == queue.offsets()[0].end
    consumer.seek((queue.name, 1), said(datetime.timedelta(hours=1)))
    assert consumer.position((queue.name, 1)) == MessageID(0, 1), "where it is empty, its end"
    put_numbered(queue, 2, first=2)
    assert values(take(2, consumer)) == [2, 3]
    consumer.seek((queue.name, 0), said(datetime.timedelta(hours=1)))
    consumer.pause((queue.name, 1))
    assert values(take(2, consumer)) == [0, 2], "what was written since"


def test_seeking_to_a_time_to_come_is_refused(make_queue: MakeQueue, join: Join) -> None:
    queue = make_queue(1)
    consumer = join(queue)
    settle(consumer, shares=[1])
    with pytest.raises(hqueue.InvalidInputError, match="beyond the end"):
        consumer.seek((queue.name, 0), now() + datetime.timedelta(days=1))


def test_what_is_paused_is_not_handed_out_until_it_is_resumed(
    make_queue: MakeQueue, join: Join
) -> None:
    queue = make_queue(2)
    put_numbered(queue, 20)
    consumer = join(queue)
    settled = take(1, consumer)
    key = PartitionKey(queue.name, 1 - settled[0].partition)
    consumer.pause(key)
    assert consumer.paused() == {key}
    others = settled + take(9, consumer)
    assert {message.partition for message in others} == {settled[0].partition}
    assert consumer.poll(50) == []
    consumer.resume()
    assert values(others + take(10, consumer)) == list(range(20))


def test_a_consumer_that_is_assigned_by_hand_needs_no_group(
    make_queue: MakeQueue, join: Join
) -> None:
    queue = make_queue(3)
    put_numbered(queue, 30)
    consumer = join(group=None)
    consumer.assign([(queue.name, 0), (queue.name, 2)])
    taken = take(20, consumer)
    assert {message.partition for message in taken} == {0, 2}
    with pytest.raises(hqueue.InvalidInputError, match="without a group"):
        consumer.commit()


@pytest.mark.in_memory_first
def test_of_two_that_have_a_partition_by_hand_only_the_later_one_commits(
    make_queue: MakeQueue, join: Join
) -> None:
    queue = make_queue(1)
    put_numbered(queue, 10)
    first, second = join(), join()
    first.assign([(queue.name, 0)])
    take(2, first)
    first.commit()
    second.assign([(queue.name, 0)])
    assert values(take(2, second)) == [2, 3]
    take(2, first)
    with pytest.raises(hqueue.CommitFailedError) as refused:
        first.commit()
    assert refused.value.partitions == [PartitionKey(queue.name, 0)]
    second.commit()
    assert second.committed() == {PartitionKey(queue.name, 0): second.position((queue.name, 0))}


def test_a_commit_that_names_a_place_is_taken_at_its_word_also_by_a_message_from_before(
    make_queue: MakeQueue, join: Join
) -> None:
    queue = make_queue(1)
    put_numbered(queue, 3)
    key = PartitionKey(queue.name, 0)
    consumer, other = join(auto_commit=False), join(auto_commit=False)
    consumer.assign([key])
    first, *_ = take(3, consumer)
    other.assign([key])
    take(3, other)
    other.commit()
    consumer.assign([key])
    assert consumer.position(key) > first.id
    consumer.commit(first)
    assert consumer.committed() == {key: first.id.next()}


def test_a_commit_beside_what_is_done_calls_back_with_what_it_committed(
    make_queue: MakeQueue, join: Join
) -> None:
    queue = make_queue(1)
    put_numbered(queue, 3)
    consumer = join(queue, auto_commit=False)
    taken = take(3, consumer)
    called: list[tuple[object, object]] = []
    consumer.commit_async(taken[1], lambda positions, error: called.append((positions, error)))
    wait_for(lambda: called, "the callback is called")
    assert called == [({PartitionKey(queue.name, 0): taken[1].id.next()}, None)]
    assert consumer.committed() == {PartitionKey(queue.name, 0): taken[1].id.next()}


@pytest.mark.in_memory_first
def test_one_that_asks_for_nothing_leaves_the_group_and_comes_back(
    make_queue: MakeQueue, join: Join
) -> None:
    queue = make_queue(2)
    lost: list[PartitionKey] = []
    slow = join(poll_interval_ms_max=300)
    slow.subscribe(queue.name, on_lost=lost.extend)
    settle(slow, shares=[2])
    held = slow.assignment()
    other = join(queue)
    wait_for(lambda: other.poll(10) == [] and len(other.assignment()) == 2, "it has all of it")
    settle(slow, other, shares=[1, 1])
    assert set(lost) == held


@pytest.mark.parametrize(
    ("options", "one_by_one", "committed"),
    [({}, True, 2), ({}, False, 2), ({"auto_commit": False}, True, 0)],
)
def test_one_that_leaves_because_it_asks_for_nothing_has_committed_what_it_is_done_with(
    make_queue: MakeQueue, join: Join, options: dict[str, object], one_by_one: bool, committed: int
) -> None:
    queue = make_queue(1)
    put_numbered(queue, 2)
    queue.put([Message("t", b"2"), Message("t", b"3")])
    slow = join(queue, poll_interval_ms_max=1_000, auto_commit_interval_ms=600_000, **options)
    if one_by_one:
        messages = slow.messages()
        handed = [next(messages) for _ in range(3)]
    else:
        handed = [take(1, slow, messages_max=1)[0] for _ in range(3)]
    assert values(handed) == [0, 1, 2], "and the last of them is worked on"
    other = join(queue)
    assert values(take(4 - committed, other)) == list(range(committed, 4))
    assert slow.poll() == []


def test_the_range_assignor_gives_slices_and_all_give_up_everything_first(
    make_queue: MakeQueue, join: Join
) -> None:
    queue = make_queue(4)
    revoked: list[PartitionKey] = []
    first = join(assignor="range")
    first.subscribe(queue.name, on_revoked=revoked.extend)
    settle(first, shares=[4])
    second = join(queue, assignor="range")
    settle(first, second, shares=[2, 2])
    assert len(revoked) == 4
    by_id = sorted([first, second], key=lambda consumer: consumer.consumer_id)
    assert sorted(by_id[0].assignment()) == [(queue.name, 0), (queue.name, 1)]


def test_streams_count_as_so_many_members(make_queue: MakeQueue, join_in_threads: Join) -> None:
    queue = make_queue(4)
    one, three = join_in_threads(queue), join_in_threads(queue, streams=3)
    settle(one, *three.streams, shares=[1, 1, 1, 1])
    assert len(three.assignment()) == 3
    with pytest.raises(hqueue.InvalidInputError, match="whole number"):
        join_in_threads(streams=0)


@pytest.mark.in_memory_first
def test_each_stream_has_partitions_of_its_own_for_a_thread_of_its_own(
    make_queue: MakeQueue, join_in_threads: Join
) -> None:
    queue = make_queue(4)
    put_numbered(queue, 40)
    consumer = join_in_threads(queue, streams=3)
    streams = consumer.streams
    taken = take(4, *streams)
    found: list[list[hqueue.ConsumedMessage]] = [[], [], []]

    def consume(number: int) -> None:
        for message in streams[number]:
            found[number].append(message)
            streams[number].commit()

    threads = [threading.Thread(target=consume, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    wait_for(lambda: sum(map(len, found)) >= 36, "all of it is handed out")
    assert sorted(len(stream.assignment()) for stream in streams) == [1, 1, 2]
    other = join_in_threads(queue)
    wait_for(lambda: not other.poll(10) and other.assignment(), "another has its share")
    put_numbered(queue, 40, first=40)
    wait_for(
        lambda: not taken.extend(other.poll(10)) and sum(map(len, found)) + len(taken) >= 80,
        "they share what comes",
    )
    consumer.request_stop()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert values([*taken, *found[0], *found[1], *found[2]]) == list(range(80))
    assert not {m.partition for m in found[0]} & {m.partition for m in found[1]}


def test_one_that_is_closed_by_whoever_iterates_ends_the_iteration(
    make_queue: MakeQueue, join: Join
) -> None:
    queue = make_queue(1)
    put_numbered(queue, 3)
    consumer = join(queue)
    found = []
    for message in consumer:
        found.append(message)
        if len(found) == 2:
            consumer.close()
    assert values(found) == [0, 1]


@pytest.mark.in_memory_first
def test_a_queue_that_is_deleted_is_an_error_and_others_go_on(
    client: hqueue.Client, make_queue: MakeQueue, join: Join
) -> None:
    queue, gone = make_queue(1), make_queue(1)
    consumer = join(queue, gone, metadata_age_ms_max=200)
    settle(consumer, shares=[2])
    client.disable_queue(gone.name)
    client.delete_queue(gone.name)
    try:
        with pytest.raises(hqueue.QueueNotFoundError):
            take(1, consumer)
        put_numbered(queue, 5)
        assert values(take(5, consumer)) == list(range(5))
        wait_for(
            lambda: not consumer.poll(10) and len(consumer.assignment()) == 1, "it is given up"
        )
    finally:
        client.create_queue(gone.name, partitions=1)  # The fixture deletes it.


@pytest.mark.in_memory_first
@pytest.mark.thorough("a truncation; the next test has one, too")
def test_a_truncated_queue_is_consumed_on(
    client: hqueue.Client, make_queue: MakeQueue, join: Join
) -> None:
    queue = make_queue(1)
    put_numbered(queue, 10)
    consumer = join(queue)
    take(10, consumer)
    client.truncate_queue(queue.name)
    put_numbered(queue, 5, first=10)
    assert values(take(5, consumer)) == [10, 11, 12, 13, 14]


@pytest.mark.in_memory_first
def test_after_a_truncation_an_error_comes_where_one_is_wanted_until_it_seeks(
    client: hqueue.Client, make_queue: MakeQueue, join: Join
) -> None:
    queue = make_queue(1)
    put_numbered(queue, 10)
    first = join(queue)
    take(4, first)
    first.close()
    client.truncate_queue(queue.name)
    put_numbered(queue, 3, first=10)
    consumer = join(queue, auto_offset_reset="error")
    for _ in range(2):
        with pytest.raises(hqueue.OffsetOutOfRangeError, match="gone"):
            take(1, consumer)
    consumer.seek_to_beginning()
    assert values(take(3, consumer)) == [10, 11, 12]


def test_without_an_offset_it_begins_where_the_options_say(
    make_queue: MakeQueue, join: Join
) -> None:
    queue = make_queue(1)
    put_numbered(queue, 3)
    strict = join(queue, group="strict", auto_offset_reset="error")
    with pytest.raises(hqueue.OffsetOutOfRangeError, match="no offset"):
        take(1, strict)
    latest = join(queue, group="latest", auto_offset_reset="latest")
    settle(latest, shares=[1])
    latest.close(commit=False)
    put_numbered(queue, 2, first=3)
    assert values(take(2, join(queue, group="latest", auto_offset_reset="latest"))) == [3, 4]


def test_a_block_that_ends_with_an_error_commits_nothing(make_queue: MakeQueue, join: Join) -> None:
    queue = make_queue(1)
    put_numbered(queue, 3)

    def fail() -> None:
        with join(queue) as consumer:
            take(2, consumer)
            raise RuntimeError("a message that can't be handled")

    with pytest.raises(RuntimeError):
        fail()
    assert values(take(3, join(queue))) == [0, 1, 2]
    with join(queue, group="another") as consumer:
        take(2, consumer)
    assert values(take(1, join(queue, group="another"))) == [2]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"group": ""}, "1 to 200 characters"),
        ({"instance_id": "x" * 201}, "1 to 200 characters"),
        ({"auto_offset_reset": "erliest"}, "auto_offset_reset must be one of"),
        ({"assignor": "rang"}, "assignor must be one of"),
        ({"bytes_max": 0}, "whole number"),
        ({"auto_commit": 1}, "True or False"),
        ({"auto_comit": False}, "no such option"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    join: Join, options: dict[str, object], text: str
) -> None:
    with pytest.raises(hqueue.InvalidInputError, match=text):
        join(**options)


def test_what_can_t_be_consumed_is_refused_before_anything_happens(
    make_queue: MakeQueue, join: Join, queue_name: str
) -> None:
    queue = make_queue(1)
    consumer = join()
    for pattern in ("(", None):
        with pytest.raises(hqueue.InvalidInputError):
            consumer.subscribe(pattern=pattern)
    with pytest.raises(hqueue.QueueNotFoundError):
        consumer.subscribe([queue.name, f"{queue_name}-none"])
    with pytest.raises(hqueue.InvalidInputError, match="subscribe, or assign"):
        consumer.poll()
    with pytest.raises(hqueue.InvalidInputError, match="whole number"):
        consumer.assign([(queue.name, 1)])
    with pytest.raises(hqueue.InvalidInputError, match="not assigned"):
        consumer.seek((queue.name, 0), 5)
    consumer.subscribe(queue.name)
    with pytest.raises(hqueue.InvalidInputError, match="unsubscribe"):
        consumer.assign([(queue.name, 0)])
    with pytest.raises(hqueue.InvalidInputError):
        consumer.poll(-1)
    settle(consumer, shares=[1])
    queue.put(Message("t", b"0"))
    end = take(1, consumer)[0].id
    with pytest.raises(hqueue.InvalidInputError, match="beyond the end"):
        consumer.commit({(queue.name, 0): MessageID(end.timestamp + 10**9)})


@pytest.mark.in_memory_first
def test_a_commit_after_an_orderly_rebalance_fails_for_what_is_another_s_and_holds_for_the_rest(
    make_queue: MakeQueue, join: Join
) -> None:
    queue = make_queue(2)
    put_numbered(queue, 20)
    first = join(queue, auto_commit=False)
    taken = take(20, first)
    last = {message.partition: message for message in taken}
    second = join(queue, auto_commit=False)

    def shared() -> bool:
        for consumer in (first, second):
            consumer.poll(10)
        return len(first.assignment()) == len(second.assignment()) == 1

    wait_for(shared, "each has a partition")
    (kept,) = first.assignment()
    given_up = PartitionKey(queue.name, 1 - kept.partition)
    with pytest.raises(hqueue.CommitFailedError) as refused:
        first.commit(last[given_up.partition])
    assert refused.value.partitions == [given_up]
    assert refused.value.committed == []
    places = {key: last[key.partition].id.next() for key in (kept, given_up)}
    with pytest.raises(hqueue.CommitFailedError) as refused:
        first.commit(places)
    assert refused.value.partitions == [given_up]
    assert refused.value.committed == [kept]
    called: list[tuple[object, object]] = []
    first.commit_async(places, lambda *told: called.append(told))
    wait_for(lambda: called, "the callback is called")
    moves, error = called[0]
    assert moves == places
    assert isinstance(error, hqueue.CommitFailedError)
    assert first.committed([kept, given_up]) == {kept: places[kept]}
    never = PartitionKey(make_queue(1).name, 0)
    with pytest.raises(hqueue.InvalidInputError):
        first.commit({never: places[kept]})


def test_a_commit_after_other_partitions_were_assigned_by_hand_fails_for_those_before(
    make_queue: MakeQueue, join: Join
) -> None:
    queue = make_queue(2)
    put_numbered(queue, 2)
    consumer = join(auto_commit=False)
    consumer.assign([(queue.name, 0)])
    (message,) = take(1, consumer)
    consumer.assign([(queue.name, 1)])
    with pytest.raises(hqueue.CommitFailedError):
        consumer.commit(message)
