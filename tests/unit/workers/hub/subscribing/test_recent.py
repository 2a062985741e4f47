"""What was published lately is kept in memory, but no more of it than there is room for, and is
delivered from there as what is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from hqueue import Address, Message, Queue
from hqueue.metadata.managers import HubInfo, Verdict
from hqueue_workers.delivery.cursor import Cursor
from hqueue_workers.delivery.segment import HERE_BYTES, HERE_MESSAGES, SubscriptionFilter
from hqueue_workers.delivery.wire import Call, decode_messages
from hqueue_workers.hub.subscribing.recent import Kept, Recent
from hqueue_workers.hub.subscribing.subscription_session import SubscribedTopic
from hqueue_workers.hub.writing.owned_topic import OwnedTopic, Publish
from hqueue_workers.node.runtime import Runtime

TOPIC = OwnedTopic("t", 0, 0, Verdict(HubInfo(Address("hub", 1), "a"), 0, won=True), 0.0)
WANTED = SubscriptionFilter("", None, 1_000, 2_000)
ROOM = 10**8


def publish(messages: Sequence[Message]) -> Publish:
    done: Future[Any] = Future()
    return Publish(TOPIC, messages, sum(each.size for each in messages), done)


def kept_of(messages: Sequence[Message], times: int, bytes_max: int) -> int:
    """How many messages are in memory after so many publishes."""
    recent, window = Recent(bytes_max), SubscribedTopic(TOPIC, 0)
    for number in range(times):
        recent.add(window, Kept(publish(messages), number * len(messages)))
    return window.end - window.start  # The IDs have no gaps.


def cursor_at(window: SubscribedTopic, position: int, runtime: Runtime) -> Cursor:
    return Cursor(cast(Queue, None), WANTED, position, window, runtime)


def ids_of(call: Call) -> list[int]:
    ids = [each for part in call.ids for each in part]
    assert [int(each.id) for each in decode_messages(b"".join(call.parts))] == ids
    return ids


def test_the_oldest_goes_where_there_is_no_room() -> None:
    assert 7 <= kept_of([Message("t", bytes(1_000))], 100, 14_000) <= 10


def test_messages_of_no_bytes_take_room_too() -> None:
    assert kept_of([Message("t", b"")] * 1_000, 100, 1_000_000) <= 10_000
    headers = [("a", b"")] * 9
    assert kept_of([Message("t", b"", headers=headers)] * 100, 100, 1_000_000) <= 1_000


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 9), st.integers(0, 700)), min_size=1),
    st.lists(st.integers(1, 7), min_size=1),
)
def test_all_that_is_kept_comes_once_in_order_and_a_call_is_made_again_of_the_same(
    publishes: list[tuple[int, int, int]], bounds: list[int]
) -> None:
    async def scene() -> None:
        runtime = Runtime(1)
        recent, window = Recent(ROOM), SubscribedTopic(TOPIC, 100)
        wanted: list[int] = []
        for gap, count, size in publishes:
            first = window.end + gap
            wanted += range(first, first + count)
            recent.add(window, Kept(publish([Message("t", bytes(size))] * count), first))
        got: list[int] = []
        position, number = window.start, 0
        while position < window.end:
            bound = bounds[number % len(bounds)]
            number += 1
            call = await cursor_at(window, position, runtime).take(None, messages_max=bound)
            assert call is not None
            assert call.count <= bound
            again = await cursor_at(window, position, runtime).take(call.end, messages_max=bound)
            assert again == call
            got += ids_of(call)
            position = call.end
        assert got == wanted
        await runtime.close()

    asyncio.run(scene())


def test_what_is_kept_is_put_together_once_for_all_that_want_it() -> None:
    async def scene() -> None:
        runtime = Runtime(1)
        recent, window = Recent(ROOM), SubscribedTopic(TOPIC, 0)
        for size in (1, HERE_MESSAGES + 1):
            recent.add(window, Kept(publish([Message("t", b"v")] * size), window.end))
        calls = [await cursor_at(window, 0, runtime).take(None) for _ in range(3)]
        assert all(calls)
        for other in calls[1:]:
            for one, same in zip(calls[0].parts, other.parts, strict=True):  # type: ignore[union-attr]
                assert one is same
        await runtime.close()

    asyncio.run(scene())


def test_what_goes_out_of_memory_while_it_is_put_together_is_not_had_from_there() -> None:
    async def scene() -> None:
        runtime = Runtime(1)
        recent, window = Recent(ROOM), SubscribedTopic(TOPIC, 0)
        recent.add(window, Kept(publish([Message("t", bytes(HERE_BYTES))]), 0))
        read = runtime.read

        async def reading(work: Any, *release: Any) -> Any:
            cut = await read(work, *release)
            window.clear(50)  # Of an append nobody knows what became of it.
            return cut

        runtime.read = reading  # type: ignore[method-assign]
        recent.add(window, Kept(publish([Message("t", b"v")]), 1))
        assert window.at(0) is not None
        taken = await cursor_at(window, 0, runtime).take(None)
        assert taken is None or ids_of(taken) == [0], "what lies behind it is not all there is"
        assert await cursor_at(window, 0, runtime).take(None) is None
        await runtime.close()

    asyncio.run(scene())
