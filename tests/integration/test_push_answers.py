"""Push delivery with an answer for each message, in threads and in an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import hqueue
import hqueue.aio
from hqueue import DeliveryAnswer, Message, ReceivedMessage, Subscription
from hqueue.metadata import DeliveryOptions

from .pushing import Received

Make = Callable[..., hqueue.Queue]
Start = Callable[..., Any]

VALUES = [b"%d" % number for number in range(8)]


class Judging(Received):
    """Rejects 2 and 5, has 4 come again twice, and 6 until its attempts are used up."""

    def answer(self, messages: Sequence[ReceivedMessage]) -> Any:
        answer = DeliveryAnswer()
        for message in messages:
            if message.value in (b"2", b"5"):
                answer.reject(message, f"no {message.value.decode()}")
            elif message.value == b"6" or (message.value == b"4" and self.values.count(b"4") < 3):
                return answer.retry_from(message, "busy", delay_ms=20)
        return answer


@pytest.mark.in_memory_first
@pytest.mark.parametrize("face", ["threads", "asyncio"])
def test_each_message_has_its_own_fate_and_the_order_is_kept(
    make: Make, start: Start, pushing: hqueue.Client, face: str
) -> None:
    queue = make(1)
    start()
    got = Judging()
    delivery = DeliveryOptions(attempts_max=3, backoff_ms_min=20, backoff_ms_max=20)
    subscription = Subscription("s", delivery=delivery)
    queue.put([Message("t", value) for value in VALUES])
    if face == "threads":
        with queue.subscriber(subscription, got):
            got.await_values([b"7"])
            queue.put(Message("t", b"end"))
            got.await_values([b"end"])
    else:
        asyncio.run(run_in_loop(pushing, queue, subscription, got))
    letters = [(each.message.value, each.reason) for each in queue.dead_letters.waiting("s")]
    rejected, used_up = "rejected by the subscriber", "the subscriber's attempts are used up"
    assert letters == [
        (b"2", f"{rejected}: no 2"),
        (b"5", f"{rejected}: no 5"),
        (b"6", f"{used_up}: busy"),
    ]
    begins = [int(call[0].value) for call in got.calls if call[0].value != b"end"]
    assert begins == [0, 4, 4, 6, 6, 7], "done messages come once, and later ones after them"
    assert got.check_order() > 0


async def run_in_loop(
    client: hqueue.Client, blocking: hqueue.Queue, subscription: Subscription, got: Judging
) -> None:
    async def consume(messages: Sequence[ReceivedMessage]) -> Any:
        return got(messages)

    queue = await hqueue.aio.Client(client).queue(blocking.name)
    async with queue.subscriber(subscription, consume):
        await asyncio.to_thread(got.await_values, [b"7"])
        await queue.put(Message("t", b"end"))
        await asyncio.to_thread(got.await_values, [b"end"])
