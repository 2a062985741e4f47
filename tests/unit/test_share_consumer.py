"""Consumers of share groups, by both faces: what they are handed out, and what they answer."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import hqueue
import hqueue.aio
from hqueue import InvalidInputError, Message, ShareConsumer
from hqueue.errors import (
    ClosedError,
    GroupActiveError,
    QueueDisabledError,
    StoreUnavailableError,
)
from hqueue.metadata.ports import Change
from hqueue.sharing import shared_consumption
from hqueue.sharing.partition_reading import PartitionReading
from hqueue.sharing.window import Window
from hqueue.sharing.window_record import encode_window
from tests.support.backends import MemoryBackend
from tests.support.cancelling import each_await
from tests.support.consumer_faces import LoopedShareConsumer
from tests.support.proxy import Fate
from tests.support.waiting import wait_for

LOCK_MS = 300
LONG_MS = 4_000
"""What a test does in between takes less on any machine."""
WAIT_MS = 30_000

Join = Callable[..., Any]


@pytest.fixture
def memory() -> MemoryBackend:
    return MemoryBackend()


@pytest.fixture
def client(memory: MemoryBackend) -> Iterator[hqueue.Client]:
    with memory.connect() as client:
        client.create_queue("q", partitions=1)
        yield client


@pytest.fixture(params=[ShareConsumer, LoopedShareConsumer], ids=["threads", "asyncio"])
def join(request: pytest.FixtureRequest, client: hqueue.Client) -> Iterator[Join]:
    with contextlib.ExitStack() as joined:

        def join_one(queues: str = "q", **options: Any) -> Any:
            given = {"group": "g", "client": client, **options}
            consumer = request.param(queues, **given)
            joined.callback(consumer.close, acknowledge=False)
            return consumer

        yield join_one


def put(client: hqueue.Client, count: int, *, keys: int = 0, first: int = 0) -> None:
    for number in range(first, first + count, 7):
        batch = range(number, min(number + 7, first + count))
        client.queue("q").put(
            [Message("t", b"%d" % n, b"k%d" % (n % keys) if keys else None) for n in batch],
            partition=0,
        )


def values(messages: Any) -> list[int]:
    return [int(each.value) for each in messages]


def rest(*consumers: Any, messages_max: int = 50) -> list[int]:
    """What they get in turns, until there is no more for a while."""
    got: list[int] = []
    while some := [m for one in consumers for m in one.poll(300, messages_max)]:
        got += values(some)
    return got


def test_consumers_of_one_partition_part_its_messages(client: hqueue.Client, join: Join) -> None:
    put(client, 200)
    a, b = join(), join()
    got = [a.poll(WAIT_MS, 30), b.poll(WAIT_MS, 30)]
    assert [len(each) for each in got] == [30, 30]
    assert {m.deliveries for each in got for m in each} == {1}
    counted = Counter(values(got[0] + got[1]) + rest(a, b))
    assert counted == Counter(range(200))
    assert a.assignment() == {("q", 0)}
    assert a.consumer_id != b.consumer_id


def test_each_message_has_an_answer_of_its_own(client: hqueue.Client, join: Join) -> None:
    put(client, 5)
    a, b = (join(auto_acknowledge=False) for _ in range(2))
    messages = a.poll(WAIT_MS)
    a.acknowledge(messages[0], messages[3])
    a.release(messages[1], messages[4])
    a.commit()
    got = b.poll(WAIT_MS)
    assert [(int(m.value), m.deliveries) for m in got] == [(1, 2), (4, 2)]
    b.acknowledge(*got)
    a.acknowledge(messages[2])
    a.commit()
    b.commit()
    assert rest(a, b) == []


def test_what_lapses_is_delivered_again_also_to_the_same_consumer(
    client: hqueue.Client, join: Join
) -> None:
    put(client, 2)
    a = join(auto_acknowledge=False, lock_ms=LOCK_MS)
    first = a.poll(WAIT_MS)
    again = a.poll(WAIT_MS)
    assert values(first) == values(again) == [0, 1]
    assert [m.deliveries for m in again] == [2, 2]
    a.acknowledge(*again)
    a.acknowledge(*first)
    a.commit()
    assert rest(a) == []


def test_a_consumer_that_is_gone_keeps_its_messages_for_the_time_of_its_lock(
    client: hqueue.Client, join: Join
) -> None:
    put(client, 3)
    gone = join(lock_ms=LOCK_MS)
    assert values(gone.poll(WAIT_MS)) == [0, 1, 2]
    got = join(lock_ms=60_000).poll(WAIT_MS)
    assert [(int(m.value), m.deliveries) for m in got] == [(0, 2), (1, 2), (2, 2)]


def test_who_renews_keeps_its_messages(client: hqueue.Client, join: Join) -> None:
    put(client, 1)
    a, b = (join(auto_acknowledge=False, lock_ms=LONG_MS) for _ in range(2))
    (message,) = a.poll(WAIT_MS)
    waited_ms = 0.0
    while waited_ms < 1.3 * LONG_MS:  # No renewal alone would last so long.
        a.renew(message)
        a.commit()
        assert b.poll(LONG_MS / 8) == []
        waited_ms += LONG_MS / 8
    a.acknowledge(message)
    a.commit()
    assert rest(a, b) == []


def test_a_consumer_that_renews_by_itself_keeps_what_has_no_answer_until_it_is_closed(
    client: hqueue.Client, join: Join
) -> None:
    put(client, 3)
    a = join(auto_acknowledge=False, auto_renew=True, lock_ms=LONG_MS)
    b = join(auto_acknowledge=False)
    first, second, _ = a.poll(WAIT_MS)
    assert b.poll(0.7 * LONG_MS) == []
    assert a.poll(0.7 * LONG_MS) == []  # Its own call renews them meanwhile.
    a.acknowledge(first)
    a.release(second)
    a.commit()
    (again,) = b.poll(WAIT_MS)
    assert (int(again.value), again.deliveries) == (1, 2)
    a.close(acknowledge=False)
    assert [(int(m.value), m.deliveries) for m in b.poll(WAIT_MS)] == [(2, 2)]


def test_locks_that_can_not_be_renewed_are_renewed_when_that_is_possible_again(
    client: hqueue.Client, join: Join, caplog: pytest.LogCaptureFixture
) -> None:
    put(client, 1)
    a = join(auto_renew=True, lock_ms=LONG_MS)
    (message,) = a.poll(WAIT_MS)
    records, path = client.coordination.store.records, "/hqueue/consumers/g/shares/q/0-0"
    good = records.read([path])[path]
    records.write({path: Change(b"no record", good.version)})
    wait_for(lambda: "can't be renewed now; trying again: " in caplog.text, "a renewal fails")
    records.write({path: Change(good.value, records.read([path])[path].version)})
    wait_for(lambda: "are renewed again" in caplog.text, "one succeeds")
    a.acknowledge(message)
    a.close()
    assert rest(join()) == []


def test_a_late_answer_counts_if_nobody_got_the_message_since(
    client: hqueue.Client, join: Join
) -> None:
    put(client, 1)
    a = join(lock_ms=100)
    (message,) = a.poll(WAIT_MS)
    threading.Event().wait(0.2)
    a.acknowledge(message)
    a.commit()
    assert rest(a, join()) == []


def test_asking_for_more_acknowledges_what_came_before(client: hqueue.Client, join: Join) -> None:
    put(client, 4)
    a = join()
    (first,) = a.poll(WAIT_MS, 1)
    (second,) = a.poll(WAIT_MS, 1)
    a.release(second)
    a.poll(0, 1)
    a.close(acknowledge=False)
    left = join().poll(WAIT_MS)
    assert int(first.value) not in values(left)
    assert {int(second.value), 2, 3} <= set(values(left) + rest(join()))


def test_a_block_that_fails_releases_and_one_that_ends_acknowledges(
    client: hqueue.Client, join: Join
) -> None:
    put(client, 1)
    with pytest.raises(ZeroDivisionError), join() as a:
        1 // (len(a.poll(WAIT_MS)) - 1)
    with join() as b:
        (again,) = b.poll(WAIT_MS)
        assert again.deliveries == 2
    assert rest(join()) == []
    with pytest.raises(ClosedError):
        b.poll()


def test_an_iteration_gives_all_and_gives_back_what_it_has_not_given(
    client: hqueue.Client, join: Join
) -> None:
    put(client, 30)
    a = join()
    got = []
    for message in a.messages(idle_ms_max=WAIT_MS, prefetch=20):
        got.append(message)
        if len(got) == 5:
            break
    a.close()
    others = join()
    left = list(others.messages(idle_ms_max=200))
    assert values(got) == [0, 1, 2, 3, 4]
    assert values(left) == [*range(5, 30)]
    assert {m.deliveries for m in left} == {1}
    others.request_stop()
    assert others.poll(WAIT_MS) == []


def test_what_is_rejected_or_delivered_too_often_is_a_dead_letter_that_can_be_put_back(
    client: hqueue.Client, join: Join
) -> None:
    put(client, 4)
    a = join(auto_acknowledge=False, deliveries_max=2)
    messages = a.poll(WAIT_MS)
    a.acknowledge(messages[0])
    a.reject(messages[1], reason="not a number")
    a.release(*messages[2:])
    (third, fourth) = a.poll(WAIT_MS)
    a.release(third)
    a.acknowledge(fourth)
    assert rest(a) == []
    letters = client.queue("q").dead_letters
    waiting = list(letters.waiting(group="g"))
    assert [(int(m.message.value), m.reason, m.attempts) for m in waiting] == [
        (1, "not a number", 1),
        (2, "delivered 2 times, and never acknowledged", 2),
    ]
    assert letters.redrive(waiting) == 2
    again = a.poll(WAIT_MS)
    assert [(int(m.value), m.topic, m.deliveries) for m in again] == [(1, "t", 1), (2, "t", 1)]
    assert rest(join(group="another")) == [0, 1, 2, 3]
    a.acknowledge(*again)
    a.commit()
    assert list(letters.waiting(group="g")) == []


def test_a_delayed_message_holds_up_no_other_and_comes_at_its_time(
    client: hqueue.Client, join: Join
) -> None:
    queue, soon = client.queue("q"), datetime.timedelta(milliseconds=LONG_MS)
    now = datetime.datetime.now(datetime.timezone.utc)
    later = [Message("t", b"%d" % n).delayed(now + soon) for n in range(3)]
    assert later[0].deliver_at_ms == int(later[1].header("deliver-at") or b"")
    queue.put([*later, Message("t", b"3", headers=[("deliver-at", b"no time")])])
    put(client, 1, first=4)
    a, b = join(lock_ms=60_000), join(lock_ms=60_000)
    got = [a.poll(WAIT_MS), b.poll(0)]
    assert values(got[0] + got[1]) == [3, 4]
    assert datetime.datetime.now(datetime.timezone.utc) < now + soon
    late = [*values(a.poll(WAIT_MS)), *rest(a, b)]
    assert datetime.datetime.now(datetime.timezone.utc) >= now + soon
    assert sorted(late) == [0, 1, 2]
    assert rest(a, b) == []


def test_a_delayed_message_whose_time_has_come_comes_with_earlier_ones_that_come_again(
    client: hqueue.Client, join: Join
) -> None:
    soon = datetime.timedelta(milliseconds=LONG_MS / 2)
    put(client, 1)
    client.queue("q").put(Message("t", b"1").delayed(soon), partition=0)
    put(client, 1, first=2)
    a = join(auto_acknowledge=False, lock_ms=60_000)
    messages = a.poll(WAIT_MS)
    assert values(messages) == [0, 2]
    time.sleep(soon.total_seconds())
    a.release(*messages)
    assert sorted(rest(a)) == [0, 1, 2]


def test_what_is_released_for_later_comes_later_and_its_deliveries_are_counted(
    client: hqueue.Client, join: Join
) -> None:
    put(client, 3)
    a = join(auto_acknowledge=False, deliveries_max=2)
    messages = a.poll(WAIT_MS)
    a.acknowledge(messages[1])
    a.release(messages[0], until=datetime.timedelta(milliseconds=LONG_MS))
    a.release(messages[2], until=datetime.timedelta(days=9))
    assert a.poll(0) == []
    (again,) = a.poll(WAIT_MS)
    assert (int(again.value), again.deliveries) == (0, 2)
    a.release(again, until=datetime.timedelta(milliseconds=1))
    assert rest(a) == []
    letters = list(client.queue("q").dead_letters.waiting(group="g"))
    assert [(int(each.message.value), each.attempts) for each in letters] == [(0, 2)]
    a.close()
    assert rest(join()) == []


def test_many_delayed_messages_lie_in_few_records_and_in_nobody_s_memory(
    client: hqueue.Client, memory: MemoryBackend
) -> None:
    queue = client.queue("q")
    until = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=1)
    for _ in range(30):
        queue.put([Message("t", b"later").delayed(until)] * 1_000)
    put(client, 1)
    with ShareConsumer("q", group="g", client=client) as consumer:
        assert values(consumer.poll(WAIT_MS)) == [0]
        (hands,) = consumer._consumption._hands.values()
        window = hands.partition.window
        assert window is not None
        assert len(window.delays) <= 6
        assert window.unfinished <= 1


def test_messages_of_a_key_come_in_order_whoever_gets_them(
    client: hqueue.Client, join: Join
) -> None:
    put(client, 120, keys=4)
    consumers = [join(ordered_by_key=True, auto_acknowledge=False) for _ in range(3)]
    chance, done, left = random.Random(1), {}, 120
    out: list[tuple[Any, Any]] = []
    while left:
        one = chance.choice(consumers)
        for message in one.poll(20, 10):
            assert message.key not in {other.key for _, other in out}
            assert done.get(message.key, -1) < int(message.value)
            out.append((one, message))
        if out:
            holder, message = out.pop(chance.randrange(len(out)))
            if chance.random() < 0.2 and message.deliveries < 4:
                holder.release(message)
            else:
                holder.acknowledge(message)
                done[message.key] = int(message.value)
                left -= 1
            holder.commit()
    assert rest(*consumers) == []


def test_a_group_begins_where_it_is_told_to_and_reads_the_topics_that_it_wants(
    client: hqueue.Client, join: Join
) -> None:
    put(client, 3)
    late = join(group="late", start="latest")
    assert late.poll(0) == []
    client.queue("q").put([Message("u", b"7"), Message("t", b"8")], partition=0)
    assert values(late.poll(WAIT_MS)) == [7, 8]
    assert values(join(group="u", topics=["u"]).poll(WAIT_MS)) == [7]
    middle = client.queue("q").id_at(0, 2)
    assert values(join(group="since", start=middle).poll(WAIT_MS)) == [2, 7, 8]


def test_a_group_is_of_one_kind(client: hqueue.Client, join: Join) -> None:
    put(client, 1)
    with hqueue.Consumer("q", group="plain", client=client) as plain:
        assert len(plain.poll(WAIT_MS)) == 1
    with pytest.raises(GroupActiveError, match="consumer group with offsets has this name"):
        join(group="plain")


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"lock_ms": 99}, "lock_ms"),
        ({"deliveries_max": 0}, "deliveries_max"),
        ({"start": "sometime"}, "position"),
        ({"ordered_by_key": 1}, "ordered_by_key"),
        ({"auto_renew": None}, "auto_renew"),
        ({"lock": 1}, "no such option"),
        ({"group": ""}, "name of a group"),
        ({"queues": []}, "at least one queue"),
    ],
)
def test_wrong_arguments_are_refused(join: Join, given: dict[str, Any], what: str) -> None:
    with pytest.raises(InvalidInputError, match=what):
        join(**given)


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1)])
def test_a_queue_that_was_created_again_is_consumed_in_all_its_partitions(
    client: hqueue.Client, join: Join, monkeypatch: pytest.MonkeyPatch, before: int, after: int
) -> None:
    monkeypatch.setattr(shared_consumption, "COUNT_EVERY_MS", 0.0)
    queue = client.create_queue("again", partitions=before)
    queue.put(Message("t", b"1"), partition=0)
    consumer = join("again", auto_acknowledge=False)
    (old,) = consumer.poll(WAIT_MS)
    client.disable_queue("again")
    client.delete_queue("again")
    queue = client.create_queue("again", partitions=after)
    for number in range(after):
        queue.put(Message("t", b"%d" % (2 + number)), partition=number)
    got: list[int] = []

    def has_all() -> bool:
        messages = consumer.poll(LOCK_MS)
        consumer.acknowledge(*messages)
        got.extend(values(messages))
        return set(got) >= set(range(2, 2 + after))

    wait_for(has_all, "the messages of all partitions")
    assert not consumer.acknowledge(old), "it is gone with its log"


def test_a_delivery_that_does_not_count_uses_up_no_try(client: hqueue.Client, join: Join) -> None:
    put(client, 2)
    consumer = join(deliveries_max=1, auto_acknowledge=False)
    for _ in range(3):
        messages = consumer.poll(WAIT_MS)
        assert [each.deliveries for each in messages] == [1, 1]
        assert consumer.release(*messages, counts=False)
    with pytest.raises(InvalidInputError, match="does not count can't be delayed"):
        consumer.release(*consumer.poll(WAIT_MS), until=5, counts=False)


def test_a_message_that_failed_too_often_is_counted_so(client: hqueue.Client, join: Join) -> None:
    put(client, 2)
    consumer = join(auto_acknowledge=False)
    bad, exhausted = consumer.poll(WAIT_MS)
    assert consumer.reject(bad, reason="bad")
    assert consumer.reject(exhausted, reason="failed 3 times", exhausted=True)
    consumer.commit()
    (partition,) = client.describe_group("g").partitions
    assert partition.shared is not None
    assert (partition.shared.rejected, partition.shared.exhausted) == (1, 1)


@pytest.mark.parametrize(
    ("until", "what"),
    [
        (datetime.timedelta.max, "between the years 1970 and 10889"),
        (datetime.datetime(1969, 1, 1, tzinfo=datetime.timezone.utc), "between the years"),
        (datetime.timedelta(seconds=-1), "must not be negative"),
        (datetime.datetime(2030, 1, 1), "needs a time zone"),
        (1_800_000_000, "looks like seconds"),
        (2**48, "between the years"),
        *((each, "must be a datetime") for each in (-1, True, 5.5, float("nan"), "1h")),
        (datetime.date(2030, 1, 1), "must be a datetime"),
    ],
)
def test_a_time_that_is_none_is_refused(
    client: hqueue.Client, join: Join, until: Any, what: str
) -> None:
    put(client, 1)
    consumer = join(auto_acknowledge=False)
    (message,) = consumer.poll(WAIT_MS)
    with pytest.raises(InvalidInputError, match=what):
        consumer.release(message, until=until)
    with pytest.raises(InvalidInputError, match=what):
        message.delayed(until)
    assert consumer.acknowledge(message)


def test_what_a_consumer_never_had_takes_no_answer(client: hqueue.Client, join: Join) -> None:
    put(client, 1)
    client.create_queue("other", partitions=1)
    client.queue("other").put(Message("t", b"1"))
    a, foreign = join(), join("other", group="h")
    (message,) = foreign.poll(WAIT_MS)
    with pytest.raises(InvalidInputError, match="does not consume"):
        a.acknowledge(message)
    with pytest.raises(InvalidInputError, match="AcquiredMessage"):
        a.acknowledge(next(iter(client.queue("q").scan())))


def test_an_answer_says_whether_the_consumer_had_the_message(
    client: hqueue.Client, join: Join
) -> None:
    put(client, 3)
    a, b = (join(auto_acknowledge=False) for _ in range(2))
    first, second, third = a.poll(WAIT_MS)
    assert b.poll(0) == []
    assert a.renew(first)
    assert a.acknowledge(first)
    assert not a.acknowledge(first), "it was answered"
    assert not a.release(first)
    assert not b.acknowledge(second), "another consumer has it"
    assert not a.reject(second, first), "the second was rejected"
    assert not a.renew(second)
    assert a.release(third)
    a.close()
    for answer in (a.acknowledge, a.release, a.reject, a.renew):
        with pytest.raises(ClosedError):
            answer(third)


def test_messages_of_other_topics_are_no_lag(client: hqueue.Client, join: Join) -> None:
    put(client, 1)
    a = join(auto_acknowledge=False, topics=["t"])
    a.reject(*a.poll(WAIT_MS))
    a.commit()
    client.queue("q").put(Message("other", b""), partition=0)

    def lag() -> int | None:
        assert a.poll(50) == []
        (partition,) = client.describe_group("g").partitions
        return None if partition.lag is None else partition.lag.messages

    wait_for(lambda: lag() == 0, "neither its dead letter nor another topic's message is lag")
    client.queue("q").put(Message("other", b""), partition=0)
    wait_for(lambda: lag() == 0, "nor is one that comes later")
    b = join(topics=["t"])
    put(client, 1)
    assert values(b.poll(WAIT_MS)) == [0]


def test_requests_and_answers_that_get_lost_lose_no_message_and_double_none(
    memory: MemoryBackend, client: hqueue.Client, join: Join
) -> None:
    put(client, 150)
    chance = random.Random(5)
    fates = [Fate.PASS] * 6 + [Fate.LOSE_REQUEST, Fate.LOSE_ANSWER, Fate.LOSE_ANSWER]
    with memory.lossy() as way:
        lossy = way.connect(operation_timeout_ms=200)
        consumers = [join(client=lossy, auto_acknowledge=False) for _ in range(3)]
        way.set_fate(lambda _: chance.choice(fates))
        got: list[int] = []
        while len(got) < 150:
            one = chance.choice(consumers)
            with contextlib.suppress(StoreUnavailableError):
                messages = one.poll(0, 9)
                got += values(messages)
                one.acknowledge(*messages)
        way.set_fate(lambda _: Fate.PASS)
        assert sorted(got) == list(range(150))
        for one in consumers:
            one.commit()
        assert rest(*consumers) == []
        for one in consumers:
            one.close()


def test_a_poll_that_is_cancelled_at_any_await_loses_nothing(client: hqueue.Client) -> None:
    groups = itertools.count()

    async def use(cut: Callable[..., Any]) -> None:
        put(client, 3)
        async with hqueue.aio.ShareConsumer(
            "q", group=f"g{next(groups)}", client=hqueue.aio.Client(client)
        ) as consumer:
            if not await cut(consumer.poll(0, 2)):
                return
            got: list[Any] = []
            while some := await consumer.poll(100):
                got += some
            assert values(got) == [0, 1, 2]
            assert {each.deliveries for each in got} == {1}
        client.truncate_queue("q")

    assert asyncio.run(each_await(use)) > 3


def test_a_group_goes_on_with_the_messages_of_another_log(
    memory: MemoryBackend, client: hqueue.Client, join: Join
) -> None:
    put(client, 6)
    a = join(auto_acknowledge=False)
    messages = a.poll(WAIT_MS)
    a.acknowledge(*messages[:3])
    a.release(messages[4])
    a.commit()
    client.truncate_queue("q")
    put(client, 3, first=10)
    a.acknowledge(*messages)
    assert values(a.poll(WAIT_MS)) == [10, 11, 12]
    b = join(auto_acknowledge=False)
    assert b.poll(0) == []
    a.release(*messages)
    a.close(acknowledge=False)
    assert values(b.poll(WAIT_MS)) == [10, 11, 12]


def test_a_log_that_ends_before_where_a_group_has_been_is_read_from_its_beginning(
    memory: MemoryBackend, client: hqueue.Client, join: Join
) -> None:
    with memory.connect(operation_timeout_ms=400) as soon:
        consumers = [join(client=soon, auto_acknowledge=False) for _ in range(2)]
        assert rest(*consumers) == []
        records, path = client.coordination.store.records, "/hqueue/consumers/g/shares/q/0-0"
        later = encode_window(Window(int(hqueue.MessageID(2**42))), "test")
        records.write({path: Change(later, records.read([path])[path].version)})
        put(client, 3)
        assert sorted(rest(*consumers) or rest(*consumers)) == [0, 1, 2]
        put(client, 3, first=3)
        assert sorted(rest(*consumers)) == [3, 4, 5]


def test_an_answer_at_the_end_of_the_log_costs_one_read(
    client: hqueue.Client, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(client, 1)
    a = join(auto_acknowledge=False)
    a.acknowledge(*a.poll(WAIT_MS))
    reads: list[object] = []
    read = PartitionReading._read

    def counted(reading: PartitionReading, cursor: Any) -> Any:
        reads.append(cursor)
        return read(reading, cursor)

    monkeypatch.setattr(PartitionReading, "_read", counted)
    assert a.poll(0) == []
    assert len(reads) == 1


def test_one_that_is_forgotten_leaves_its_group(client: hqueue.Client) -> None:
    with pytest.warns(ResourceWarning, match="a share consumer"):
        ShareConsumer("q", group="g", client=client).poll(0)
    wait_for(lambda: [each.members for each in client.list_groups()] == [0], "it left")


def test_one_thread_at_a_time_asks_for_messages_commits_and_closes(client: hqueue.Client) -> None:
    put(client, 1)
    with ShareConsumer("q", group="g", client=client, auto_acknowledge=False) as consumer:
        (message,) = consumer.poll(WAIT_MS)
        others = ThreadPoolExecutor(1)

        def poll_at_last() -> list[Any]:
            while True:
                with contextlib.suppress(InvalidInputError):  # The main thread commits just now.
                    return consumer.poll(float("inf"))

        polled = others.submit(poll_at_last)

        def is_refused() -> bool:
            try:
                consumer.commit()
            except InvalidInputError as exc:
                return "another thread is in the middle of a call" in str(exc)
            return False

        wait_for(is_refused, "another thread polls")
        refused: list[Callable[[], object]] = [
            consumer.poll, consumer.commit, consumer.close, lambda: next(iter(consumer)),
        ]  # fmt: skip
        for call in refused:
            with pytest.raises(InvalidInputError, match="use a consumer in one thread"):
                call()
        assert consumer.acknowledge(message), "any thread may answer"
        consumer.request_stop()
        assert polled.result(WAIT_MS / 1e3) == []
        others.shutdown()
        consumer.commit()
    with ShareConsumer("q", group="g", client=client) as consumer:
        assert consumer.poll(LOCK_MS) == []


def test_answers_are_written_even_where_a_dead_letter_cannot_be(
    client: hqueue.Client, join: Join
) -> None:
    def has() -> tuple[int, int]:
        client.enable_queue("q")
        (partition,) = client.describe_group("g").partitions
        assert partition.lag is not None
        assert partition.shared is not None
        return partition.lag.messages, partition.shared.acquired

    put(client, 2)
    consumer = join(lock_ms=60_000)
    done, bad = consumer.poll(WAIT_MS, 2)
    consumer.acknowledge(done)
    consumer.reject(bad, reason="bad")
    client.disable_queue("q")
    with pytest.raises(QueueDisabledError):
        consumer.commit()
    assert has() == (1, 1)
    client.disable_queue("q")
    with pytest.raises(QueueDisabledError):
        consumer.close()
    assert has() == (1, 0)
    (again,) = join().poll(WAIT_MS, 2)
    assert (again.value, again.deliveries) == (b"1", 2)


def test_a_consumer_that_was_closed_is_not_iterated(client: hqueue.Client) -> None:
    consumer = ShareConsumer("q", group="g", client=client)
    consumer.close()
    with pytest.raises(ClosedError):
        next(iter(consumer))

    async def iterate() -> None:
        consumer = hqueue.aio.ShareConsumer("q", group="g", client=hqueue.aio.Client(client))
        await consumer.close()
        await anext(aiter(consumer))

    with pytest.raises(ClosedError):
        asyncio.run(iterate())
