"""What subscribers of one partition get, who reads it for them, and what is held meanwhile."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hqueue import PartitionReader, Queue, Scan
from hqueue.clock import Clock, Deadline
from hqueue.follow import poll
from hqueue.log import Batch
from hqueue.ports import ReadPort
from hqueue_workers.feed import Call, Feed
from hqueue_workers.poller import Poller
from hqueue_workers.scanner import MessageScanner
from hqueue_workers.stretch import Wanted
from hqueue_workers.wire import decode_messages
from tests.unit.test_follow import Rows
from tests.unit.worker_doubles import SteppedRuntime, settle

BYTES_MAX = 20_000
HANDED_BYTES_MAX = 1024 * 1024


class Partitions:
    """A queue of one partition in memory."""

    def __init__(self, clock: Clock) -> None:
        self.name = "q"
        self.rows = Rows()
        self.readers: list[PartitionReader] = []
        self._clock = clock

    @property
    def port(self) -> ReadPort:
        return cast(ReadPort, self.rows)

    def reader(self, partition: int, scan: Scan, bytes_max: int) -> PartitionReader:
        reader = PartitionReader(
            partition,
            self.port,
            start=scan.start,
            topics=frozenset(scan.topics) if scan.topics else None,
            clock=self._clock,
            bytes_max=bytes_max,
        )
        self.readers.append(reader)
        return reader

    def poll(
        self,
        readers: Sequence[PartitionReader],
        bytes_max: int,
        *,
        rows_max: int,
        deadline: Callable[[], Deadline],
    ) -> Iterator[list[Batch]]:
        return poll(readers, self.port, deadline, bytes_max, rows_max)


class Subscriber:
    """One who takes what its feed gives, as often as it is let."""

    def __init__(
        self,
        scene: Scene,
        name: str,
        position: int = 0,
        calls: int = 10**9,
        topics: frozenset[str] | None = None,
    ) -> None:
        self.got: list[bytes] = []
        self.calls = calls
        self.may_go_on = asyncio.Event()
        wanted = Wanted(name, topics, 1_000, 2_000)
        self.feed = Feed(
            scene.queue,
            wanted,
            position,
            shared=scene.shared,
            alone=scene.scanner,
            runtime=scene.runtime,
        )
        scene.runtime.start(self._run())

    async def _run(self) -> None:
        while True:
            await self.feed.ready()
            while self.calls <= 0:
                self.may_go_on.clear()
                await self.may_go_on.wait()
            call = await self.feed.take(None, lambda _: True)
            if call is None:  # It went out of memory while this one waited.
                continue
            self.calls -= 1
            assert call.start == self.feed.position
            self.got += [m.value for m in decode_messages(b"".join(call.parts))]
            self.feed.advance(call.end)

    def let(self, calls: int = 10**9) -> None:
        self.calls = calls
        self.may_go_on.set()


class Scene:
    """A partition with its shared scanner."""

    def __init__(self, handed_bytes_max: int = HANDED_BYTES_MAX) -> None:
        self.runtime = SteppedRuntime()
        self.partition = Partitions(cast(Clock, self.runtime.stepped))
        self.queue = cast(Queue, self.partition)
        self.poller = Poller(self.queue, self.runtime, 1_000, handed_bytes_max)
        self.runtime.start(self.poller.run())
        self.scanners: list[MessageScanner] = []
        self.shared = MessageScanner(self.queue, 0, self.runtime, lambda: BYTES_MAX, self.poller)

    def scanner(self) -> MessageScanner:
        self.scanners.append(MessageScanner(self.queue, 0, self.runtime, lambda: BYTES_MAX, None))
        return self.scanners[-1]

    def append(self, *values: bytes) -> None:
        for value in values:
            self.partition.rows.append(0, value)
            self.poller.wake(0)

    def hand(self, number: int) -> None:
        """Tell of a row that was appended, and have it along."""
        self.poller.hand(self.partition.rows.rows[0][number])
        self.poller.wake(0)


def play(scene: Callable[[Scene], Any], **options: int) -> None:
    async def run() -> None:
        it = Scene(**options)
        await scene(it)
        await it.runtime.close()

    asyncio.run(run())


async def until(condition: Callable[[], object]) -> None:
    for _ in range(2_000):
        if condition():
            return
        await settle()
    raise AssertionError("it does not come to that")


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


def test_what_comes_with_a_wake_up_is_not_read() -> None:
    async def scene(it: Scene) -> None:
        one = Subscriber(it, "one")
        it.append(b"first")
        await until(lambda: one.got == [b"first"])
        asked = len(it.partition.rows.asked)
        for number in range(1, 50):
            it.partition.rows.append(0, b"%d" % number)
            it.hand(number)
        await until(lambda: len(one.got) == 50)
        assert one.got[1:] == [b"%d" % number for number in range(1, 50)]
        assert len(it.partition.rows.asked) == asked

    play(scene)


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(st.sampled_from(["hand", "wake", "nothing", "late"]), st.integers(0, 3)),
        min_size=1,
        max_size=40,
    ),
    st.sampled_from([None, frozenset({"t"}), frozenset({"other"})]),
)
def test_whatever_comes_with_wake_ups_everything_is_delivered_once_and_in_order(
    appends: list[tuple[str, int]], topics: frozenset[str] | None
) -> None:
    async def scene(it: Scene) -> None:
        one = Subscriber(it, "one", topics=topics)
        late: list[int] = []
        for number, (told, turns) in enumerate(appends):
            it.partition.rows.append(0, b"%d" % number)
            if told == "hand":
                it.hand(number)
            elif told == "late":
                late.append(number)
            elif told == "wake":
                it.poller.wake(0)
            for _ in range(turns):
                await asyncio.sleep(0)
            if late and turns == 3:
                it.hand(late.pop(0))
        expected = [b"%d" % n for n in range(len(appends))] if "other" not in (topics or ()) else []
        for _ in appends:  # What nobody told of takes a wake-up each, as time stands still.
            it.poller.wake(0)
            await settle()
        assert one.feed.position == it.partition.rows.rows[0][-1].slot + 1_000
        for number in late:
            it.hand(number)
        await settle()
        assert one.got == expected

    play(scene)


OTHERS = Rows()
for _value in (b"a", b"b", b"c"):
    OTHERS.append(0, _value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"cells": {"t": b"forged"}},
        {"cells": {}},
        {"cells": {"u": b"second"}},
        {"header": None},
        {"header": b"HQ"},
        {"header": OTHERS.rows[0][2].header, "cells": OTHERS.rows[0][2].cells},
    ],
    ids=["other bytes", "no cells", "another topic", "no header", "half a header", "another row"],
)
def test_what_comes_with_a_wake_up_and_does_not_belong_there_is_read_instead(
    wrong: dict[str, Any],
) -> None:
    async def scene(it: Scene) -> None:
        one = Subscriber(it, "one")
        it.append(b"first")
        await until(lambda: one.got == [b"first"])
        rows = it.partition.rows
        rows.append(0, b"second")
        it.poller.hand(dataclasses.replace(rows.rows[0][1], **wrong))
        it.poller.wake(0)
        await until(lambda: len(one.got) == 2)
        assert one.got == [b"first", b"second"]
        assert not it.runtime.failed.done()

    play(scene)


def test_what_comes_with_a_wake_up_counts_for_nothing_where_that_is_off() -> None:
    async def scene(it: Scene) -> None:
        one = Subscriber(it, "one")
        it.append(b"first")
        await until(lambda: one.got == [b"first"])
        asked = len(it.partition.rows.asked)
        it.partition.rows.append(0, b"second")
        it.hand(1)
        await until(lambda: len(one.got) == 2)
        assert len(it.partition.rows.asked) > asked

    play(scene, handed_bytes_max=0)


def test_what_is_handed_in_and_never_taken_is_bounded() -> None:
    async def scene(it: Scene) -> None:
        slow = Subscriber(it, "slow", calls=0)
        values = [b"%06d" % n * 5_000 for n in range(1_000)]
        for number, value in enumerate(values):
            it.partition.rows.append(0, value)
            it.poller.hand(it.partition.rows.rows[0][number])
        assert it.poller._handed._bytes <= HANDED_BYTES_MAX
        it.poller.wake(0)
        slow.let()
        await until(lambda: len(slow.got) == 1_000)
        assert slow.got == values

    play(scene)


def test_one_who_is_slow_reads_alone_and_holds_up_nobody() -> None:
    async def scene(it: Scene) -> None:
        fast, slow = Subscriber(it, "fast"), Subscriber(it, "slow", calls=1)
        values = [b"%04d" % n * 50 for n in range(400)]
        for first in range(0, 400, 20):
            it.append(*values[first : first + 20])
            await until(lambda: len(fast.got) >= first + 20)  # noqa: B023
            assert it.shared._window.size <= BYTES_MAX + 2_000
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


def test_nothing_is_read_while_nobody_goes_on() -> None:
    async def scene(it: Scene) -> None:
        slow = Subscriber(it, "slow", calls=1)
        it.append(*(b"%04d" % n * 500 for n in range(200)))
        await until(lambda: slow.calls == 0)
        await settle()
        held = it.shared._window.size
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
            it.poller.wake(0)
            await until(lambda: len(subscriber.got) >= len(wanted))  # noqa: B023
            assert subscriber.got == wanted

    play(scene)


async def take(feed: Feed, until: int | None = None) -> Call:
    await feed.ready()
    call = await feed.take(until, lambda _: True)
    assert call is not None
    return call


def test_a_heavy_batch_behind_it_does_not_push_out_what_the_only_one_needs() -> None:
    async def scene(it: Scene) -> None:
        only = Subscriber(it, "only", calls=0)
        it.append(b"light" * 100, b"heavy" * 2 * BYTES_MAX, b"light")
        first = await take(only.feed)
        await settle()  # It reads on meanwhile.
        again = await take(only.feed, first.end)
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
        await take(slow.feed)
        await settle()  # It reads on meanwhile.
        call = await take(slow.feed)
        assert 1 < call.count < 20
        fast = Subscriber(it, "fast")
        it.append(*(b"more" * 500 for _ in range(40)))
        await until(lambda: len(fast.got) == 60)
        assert not it.shared.reaches(slow.feed.position)
        again = await take(slow.feed, call.end)
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
