"""What subscribers of one partition get, who reads it for them, and what is held meanwhile."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hqueue import BufferFullError, StoreUnavailableError
from hqueue.engine import Batch
from hqueue_workers.delivery.cursor import SubscriberCursor, _slice_at
from hqueue_workers.delivery.scanner import MessageScanner
from hqueue_workers.delivery.segment import EncodedSlice
from hqueue_workers.delivery.wire import Call, decode_messages
from tests.support.cursor_doubles import BYTES_MAX, Scene, Subscriber, play, until
from tests.support.doubles import Rows
from tests.support.worker_doubles import settle

MANY = 40


def test_those_near_the_end_share_what_was_read() -> None:
    async def scene(it: Scene) -> None:
        subscribers = [Subscriber(it, f"s{n}") for n in range(20)]
        values = [b"%d" % n for n in range(50)]
        for value in values:
            it.append(value)
            await until(lambda: all(s.got and s.got[-1] == value for s in subscribers))  # noqa: B023
        assert all(s.got == values for s in subscribers)
        assert not it.scanners
        bodies = sum(size for _, size in it.partition.rows.asked)
        assert bodies <= sum(map(len, values)), "no body was read twice"

    play(scene)


def test_one_who_is_slow_reads_alone_and_holds_up_nobody() -> None:
    async def scene(it: Scene) -> None:
        fast, slow = Subscriber(it, "fast"), Subscriber(it, "slow", calls=1)
        values = [b"%04d" % n * 50 for n in range(400)]
        for first in range(0, 400, 20):
            it.append(*values[first : first + 20])
            await until(lambda: len(fast.got) >= first + 20)  # noqa: B023
            assert it.shared.size <= BYTES_MAX + 2_000
        assert fast.got == values
        assert len(slow.got) < 20
        slow.let()
        await until(lambda: len(slow.got) == 400)
        assert slow.got == values
        assert len(it.scanners) >= 1
        # Having caught up, it is back with the others.
        number = len(it.scanners)
        it.append(b"last")
        await until(lambda: slow.got[-1] == fast.got[-1] == b"last")
        assert len(it.scanners) == number

    play(scene)


def test_those_who_catch_up_send_nobody_away_who_waits_for_what_is_shared() -> None:
    class SlowRows(Rows):
        def _check(self, method: str) -> None:
            time.sleep(0.001)  # So the log grows while it is read.
            super()._check(method)

    async def scene(it: Scene) -> None:
        it.partition.rows = SlowRows()
        topics = [f"t{number}" for number in range(MANY)]
        values = [b"%d" % number for number in range(10 * MANY)]
        for number, value in enumerate(values[: 2 * MANY]):
            it.append(value, topic=topics[number % MANY])
        subscribers = [
            Subscriber(it, topic, number * 1_000, topics=frozenset({topic}))
            for number, topic in enumerate(topics)
        ]
        for number, value in enumerate(values[2 * MANY :]):
            await asyncio.sleep(0.003)
            it.append(value, topic=topics[number % MANY])
        for _ in range(6_000):
            if all(s.got == values[number::MANY] for number, s in enumerate(subscribers)):
                break
            await asyncio.sleep(0.01)
        assert [s.got for s in subscribers] == [values[number::MANY] for number in range(MANY)]
        assert len(it.scanners) < 2 * MANY, "each read alone once, until it had caught up"

    play(scene, threads=8)


def test_nothing_is_read_while_nobody_goes_on() -> None:
    async def scene(it: Scene) -> None:
        slow = Subscriber(it, "slow", calls=1)
        it.append(*(b"%04d" % n * 500 for n in range(200)))
        await until(lambda: slow.calls == 0)
        await settle()
        held = it.shared.size
        assert held <= BYTES_MAX + 10_000
        read_to = it.shared.end
        await settle()
        assert it.shared.end == read_to
        slow.let()
        await until(lambda: len(slow.got) == 200)

    play(scene)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30)), max_size=30), st.integers(0, 40))
def test_everybody_gets_everything_in_order_however_they_take_turns(
    turns: list[tuple[int, int]], start: int
) -> None:
    async def scene(it: Scene) -> None:
        values = [b"%d" % n * 30 for n in range(40)]
        it.append(*values)
        position = it.partition.rows.rows[0][start].slot if start < 40 else 0
        subscribers = [
            Subscriber(it, "a", calls=0),
            Subscriber(it, "b", position, calls=0),
        ]
        expected = [list(values), list(values[start:] if start < 40 else values)]
        for number, (who, amount) in enumerate(turns):
            if who == 2:
                more = [b"more %d %d" % (number, n) for n in range(amount)]
                it.append(*more)
                for each in expected:
                    each.extend(more)
            else:
                subscribers[who].let(amount)
            await settle()
        for subscriber, wanted in zip(subscribers, expected, strict=True):
            subscriber.let()
            it.poller.notify(0)
            await until(lambda: len(subscriber.got) >= len(wanted))  # noqa: B023
            assert subscriber.got == wanted

    play(scene)


@pytest.mark.parametrize("topics", [None, frozenset({"b"}), frozenset({"a", "b"})])
@pytest.mark.parametrize("position", [0, 5_000], ids=["below the window", "within the window"])
def test_one_who_comes_later_gets_its_topics_though_what_is_in_memory_was_read_without_them(
    topics: frozenset[str] | None, position: int
) -> None:
    async def scene(it: Scene) -> None:
        slow = Subscriber(it, "slow", 3_000, calls=0, topics=frozenset({"a"}))
        for number in range(10):
            it.append(b"%d" % number, topic="ab"[number % 2])
        await settle()
        assert (it.shared.start, it.shared.end) == (3_000, 10_000)
        late = Subscriber(it, "late", position, topics=topics)
        it.append(b"last", topic="b")
        await until(lambda: late.got and late.got[-1] == b"last")
        wanted = "ab" if topics is None else topics
        numbers = [n for n in range(position // 1_000, 10) if "ab"[n % 2] in wanted]
        assert late.got == [*(b"%d" % number for number in numbers), b"last"]
        slow.let()
        await until(lambda: slow.cursor.position == it.shared.end)
        assert slow.got == [b"4", b"6", b"8"]

    play(scene)


TOPICS = st.none() | st.frozensets(st.sampled_from("abc"), min_size=1)
JOINS = st.tuples(st.just("join"), st.integers(0, 30), TOPICS)
TURNS = st.tuples(st.just("let"), st.integers(0, 5), st.integers(0, 20))
APPENDS = st.tuples(st.just("append"), st.integers(1, 8), st.sampled_from("abc"))


@settings(max_examples=60)
@given(st.lists(JOINS | TURNS | APPENDS, max_size=20))
def test_everybody_gets_its_topics_whenever_it_comes_and_wherever_it_begins(
    steps: list[tuple[str, int, Any]],
) -> None:
    async def scene(it: Scene) -> None:
        log = [("abc"[n % 3], b"%d" % n * 300) for n in range(30)]
        for topic, value in log:
            it.append(value, topic=topic)
        subscribers: list[tuple[Subscriber, int, frozenset[str] | None]] = []
        for step, number, what in steps:
            if step == "join":
                name = f"s{len(subscribers)}"
                one = Subscriber(it, name, number * 1_000, calls=0, topics=what)
                subscribers.append((one, number, what))
            elif step == "append":
                more = [(what, b"%d" % (len(log) + n) * 300) for n in range(number)]
                it.append(*(value for _, value in more), topic=what)
                log += more
            elif number < len(subscribers):
                subscribers[number][0].let(what)
            await settle()
        for one, first, topics in subscribers:
            one.let()
            it.poller.notify(0)
            await until(lambda: one.cursor.position >= len(log) * 1_000)  # noqa: B023
            assert one.got == [v for t, v in log[first:] if topics is None or t in topics]

    play(scene)


async def take(cursor: SubscriberCursor, until: int | None = None) -> Call:
    await cursor.ready()
    call = await cursor.take(until, lambda _: True)
    assert call is not None
    return call


def test_a_heavy_batch_behind_it_does_not_push_out_what_the_only_one_needs() -> None:
    async def scene(it: Scene) -> None:
        only = Subscriber(it, "only", calls=0)
        it.append(b"light" * 100, b"heavy" * 2 * BYTES_MAX, b"light")
        first = await take(only.cursor)
        await settle()  # It reads on meanwhile.
        again = await take(only.cursor, first.end)
        assert (again.start, again.end, again.parts) == (first.start, first.end, first.parts)
        only.let()
        await until(lambda: len(only.got) == 3)
        assert not it.scanners

    play(scene)


def test_a_call_is_put_together_again_though_the_window_went_on_meanwhile() -> None:
    async def scene(it: Scene) -> None:
        slow = Subscriber(it, "slow", calls=0)
        values = [b"%04d" % n * 25 for n in range(20)]
        it.append(*values)
        await take(slow.cursor)
        await settle()  # It reads on meanwhile.
        call = await take(slow.cursor)
        assert 1 < call.count < 20
        fast = Subscriber(it, "fast")
        it.append(*(b"more" * 500 for _ in range(40)))
        await until(lambda: len(fast.got) == 60)
        assert not it.shared.reaches(slow.cursor.position)
        again = await take(slow.cursor, call.end)
        assert (again.start, again.end, again.parts) == (call.start, call.end, call.parts)

    play(scene)


def test_who_asks_for_what_a_scanner_has_not_lets_others_have_their_turn() -> None:
    async def scene(it: Scene) -> None:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        it.runtime.start(other())
        for _ in range(10):
            await it.shared.more(it.shared.end + 1)
        assert turns >= 10

    play(scene)


def test_what_is_polled_is_read_by_nobody_else() -> None:
    async def scene(it: Scene) -> None:
        one = Subscriber(it, "one")
        # So heavy that a request for several does not get them all, and the rest is read after it.
        values = [b"%d" % n * 400_000 for n in range(10, 40)]

        def while_asked(method: str) -> None:
            if method == "get":
                it.shared.passed(it.shared.end)

        it.partition.rows.failure = while_asked
        for first in range(0, 30, 6):
            one.calls = 0
            it.append(*values[first : first + 6])
            await settle()
            one.let()
            await until(lambda: len(one.got) >= first + 6)  # noqa: B023
        assert one.got == values

    play(scene)


def test_one_who_stands_within_a_slice_of_others_goes_on_with_its_next_message() -> None:
    first = EncodedSlice(0, 10, b"abbccc", [4, 6, 9], [1, 3, 6])
    slices = (first, EncodedSlice(10, 20, b"d", [12], [1]))
    assert [_slice_at(slices, message_id) for message_id in (0, 4, 9)] == [first] * 3
    assert [_slice_at(slices, message_id) for message_id in (10, 12, 19)] == [slices[1]] * 3
    assert [first.first(message_id) for message_id in (0, 4, 5, 9)] == [4, 4, 6, 9]
    assert slices[1].first(13) == 20
    assert first.part(0, 100, 3) is first
    assert first.part(5, 100, 3) == EncodedSlice(5, 10, b"bbccc", [6, 9], [2, 5])
    assert first.part(5, 100, 1) == EncodedSlice(5, 9, b"bb", [6], [2])
    assert first.part(0, 7, 3) == EncodedSlice(0, 7, b"abb", [4, 6], [1, 3])
    assert slices[1].part(13, 100, 3) == EncodedSlice(13, 20, b"", [], [])


def test_one_who_stands_within_what_others_are_sent_shares_what_was_read() -> None:
    async def scene(it: Scene) -> None:
        early = Subscriber(it, "early", calls=0)
        it.partition.rows.append(0, b"v", 20)  # With the IDs 980, 981, …
        await early.cursor.ready()
        late = Subscriber(it, "late", 987)
        await until(lambda: len(late.got) == 13)
        early.let()
        await until(lambda: len(early.got) == 20)
        assert not it.scanners

    play(scene)


@settings(max_examples=60)
@given(st.lists(st.integers(1, 7), min_size=1), st.integers(970, 1_990))
def test_a_call_of_fewer_messages_is_put_together_again_of_the_same(
    bounds: list[int], start: int
) -> None:
    async def scene(it: Scene) -> None:
        for _ in range(2):
            it.partition.rows.append(0, b"v", 20)
        wanted = [*range(980, 1_000), *range(1_980, 2_000)]
        cursor = Subscriber(it, "one", start, calls=0).cursor
        got: list[int] = []
        for bound in bounds * 40:
            await cursor.ready()
            call = await cursor.take(None, lambda _: True, bound)
            assert call is not None
            assert 1 <= call.count <= bound
            assert await cursor.take(call.end, lambda _: True, bound) == call
            ids = [int(message.id) for message in decode_messages(b"".join(call.parts))]
            assert ids == [each for part in call.ids for each in part]
            got += ids
            cursor.advance(call.end)
            if cursor.position >= 2_000:
                break
        assert got == [each for each in wanted if each >= start][: len(got)]
        assert cursor.position >= 2_000 or len(got) >= len(bounds)

    play(scene)


def test_nothing_is_lost_where_no_thread_can_be_had_to_cut_what_was_read() -> None:
    async def scene(it: Scene) -> None:
        read, refused = it.runtime.read, []

        async def refusing(work: Any, *release: Any) -> Any:
            if "cut_for" in work.__qualname__:
                refused.append(work)
                raise BufferFullError("the system starts no more threads")
            return await read(work, *release)

        it.runtime.read = refusing  # type: ignore[method-assign]
        for _ in range(3):
            it.partition.rows.append(0, b"v", 300)
        one = Subscriber(it, "one")
        await until(lambda: len(one.got) == 900)
        by_scanner = len(refused)
        it.partition.rows.append(0, b"v", 300)
        it.poller.notify(0)
        await until(lambda: len(one.got) == 1_200)
        assert 0 < by_scanner < len(refused), "both ways of reading came to it"
        assert not it.runtime.failed.done()

    play(scene)


@pytest.mark.parametrize("turns", range(8))
def test_a_scanner_that_is_closed_at_any_time_holds_nothing_in_the_store(turns: int) -> None:
    class Held:
        at_tail, cursor, holds = False, 0, True
        reads = released = 0

        async def read(self, deadline: object) -> list[Batch]:
            self.reads += 1
            await asyncio.sleep(0)
            if self.reads == 1:
                raise StoreUnavailableError("it is tried again")
            await asyncio.sleep(60)
            return []

        async def release(self) -> None:
            self.holds = False
            self.released += 1

    async def scene(it: Scene) -> None:
        source = Held()
        scanner = MessageScanner(it.queue, lambda *_: source, it.runtime, lambda: BYTES_MAX)
        waiting = asyncio.ensure_future(scanner.more(scanner.end))
        for _ in range(1 + turns):
            await asyncio.sleep(0)
        scanner.close()
        await until(lambda: source.released)
        await settle()
        assert source.released == 1
        await waiting

    play(scene)
