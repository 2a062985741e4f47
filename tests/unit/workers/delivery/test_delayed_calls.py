"""Which messages a call gets, and which ones it leaves out since they are not due."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import cast

import pytest

from hqueue import Queue
from hqueue.metadata.delays import Delayed
from hqueue_workers.delivery.cursor import Cursor
from hqueue_workers.delivery.segment import EncodedSlice, Segment, SubscriptionFilter, Window
from hqueue_workers.delivery.wire import Call
from hqueue_workers.node.runtime import Runtime

FILTER = SubscriptionFilter("s", None, 4, 1_000)


class Sliced(Segment):
    """A segment with one slice."""

    def __init__(self, start: int, end: int, ids: Sequence[int], dues: dict[int, int]) -> None:
        super().__init__(start, end)
        own = [(each, dues[each]) for each in ids if each in dues]
        data, ends = b"x" * len(ids), range(1, len(ids) + 1)
        self._slice = EncodedSlice(start, end, data, ids, ends, 0, own)

    def slices(self, filter_: SubscriptionFilter) -> tuple[EncodedSlice, ...]:
        return (self._slice,)


def cursor_over(*segments: Segment, position: int = 0) -> Cursor:
    window = Window(segments[0].start)
    window.add(segments)
    return Cursor(cast(Queue, None), FILTER, position, window, cast(Runtime, None))


def take(
    cursor: Cursor, now_ms: float, delayed_max: int = 100, until: int | None = None
) -> Call | None:
    async def one() -> Call | None:
        return await cursor.take(until, now_ms=now_ms, delayed_max=delayed_max)

    return asyncio.run(one())


def ids_of(call: Call) -> list[int]:
    return [each for part in call.ids for each in part]


def test_a_call_leaves_out_what_is_not_due_and_covers_it() -> None:
    dues = {2: 50, 3: 150, 5: 200}
    cursor = cursor_over(Sliced(0, 10, [1, 2, 3, 4, 5], dues), Sliced(10, 20, [12], {}))
    call = take(cursor, 100)
    assert call is not None
    assert (call.start, call.end, ids_of(call)) == (0, 20, [1, 2, 4, 12])
    assert call.delayed == (Delayed(150, 3, 0), Delayed(200, 5, 0))
    assert b"".join(call.parts) == b"xxxx"
    part = call.upto(3)
    assert (part.end, ids_of(part), part.delayed) == (12, [1, 2, 4], call.delayed)
    assert call.upto(2).delayed == (Delayed(150, 3, 0),)
    again = take(cursor, 100, until=call.end)
    assert again == call
    assert ids_of(take(cursor, 300) or call) == [1, 2, 3, 4]


def test_what_comes_before_the_first_message_makes_a_call_of_its_own() -> None:
    cursor = cursor_over(Sliced(0, 10, [1, 2, 3], {1: 500, 2: 500}))
    call = take(cursor, 100)
    assert call is not None
    assert (call.count, call.end, len(call.delayed)) == (0, 3, 2)
    cursor.position = call.end
    call = take(cursor, 100)
    assert call is not None
    assert (ids_of(call), call.delayed) == ([3], ())


def test_without_room_a_call_ends_before_what_is_not_due() -> None:
    cursor = cursor_over(Sliced(0, 10, [1, 2, 3, 4], {2: 500, 3: 500}))
    call = take(cursor, 100, delayed_max=1)
    assert call is not None
    assert (ids_of(call), call.end) == ([1], 3)
    cursor.position = 3
    assert take(cursor, 100, delayed_max=0) is None
    call = take(cursor, 600, delayed_max=0)
    assert call is not None
    assert ids_of(call) == [3, 4]


def test_who_says_no_time_gets_all_at_once() -> None:
    cursor = cursor_over(Sliced(0, 10, [1, 2], {2: 2**60}))

    async def one() -> Call | None:
        return await cursor.take(None)

    call = asyncio.run(one())
    assert call is not None
    assert ids_of(call) == [1, 2]


@pytest.mark.parametrize("seed", range(30))
def test_each_message_is_in_a_call_or_left_out_once_and_in_order(seed: int) -> None:
    chance = random.Random(seed)
    segments, at, ids, dues = [], 0, [], {}
    for _ in range(chance.randrange(1, 8)):
        end = at + chance.randrange(1, 30)
        own = sorted(chance.sample(range(at, end), chance.randrange(min(12, end - at) + 1)))
        dues |= {each: chance.randrange(200) for each in own if chance.random() < 0.6}
        segments.append(Sliced(at, end, own, dues))
        ids += own
        at = end
    cursor = cursor_over(*segments)
    called: list[int] = []
    delayed: list[int] = []
    while (call := take(cursor, 100, delayed_max=chance.randrange(1, 5))) is not None:
        assert call.start == cursor.position < call.end
        assert call.count <= FILTER.messages_max
        if call.count and call.delayed:
            assert call.delayed[0].id > call.first
        called += ids_of(call)
        delayed += [each.id for each in call.delayed]
        cursor.position = call.end
    assert cursor.position == at
    assert called == [each for each in ids if dues.get(each, 0) <= 100]
    assert delayed == [each for each in ids if dues.get(each, 0) > 100]
