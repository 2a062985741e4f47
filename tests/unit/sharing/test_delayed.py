"""Messages that wait for their time in a share group: however many, and where there is no room."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator

import pytest

import hqueue
from hqueue import Message, ShareConsumer
from hqueue.errors import BufferFullError, Outcome
from hqueue.runtime.clock import SystemClock
from hqueue.sharing import delays
from hqueue.sharing.window_record import encode_window
from hqueue.typing import AcquiredMessage
from tests.support.backends import MemoryBackend

LONG_MS = 4_000
"""What a test does in between takes less on any machine."""
WAIT_MS = 30_000


@pytest.fixture
def client() -> Iterator[hqueue.Client]:
    with MemoryBackend().connect() as client:
        client.create_queue("q", partitions=1)
        yield client


def values(messages: Iterable[AcquiredMessage]) -> list[int]:
    return [int(each.value) for each in messages]


class LaterClock(SystemClock):
    """This machine's clock, two days ahead."""

    def wall_ms(self) -> int:
        return super().wall_ms() + 2 * 86_400_000


def test_many_messages_that_are_released_for_later_one_by_one_all_come_once(
    client: hqueue.Client,
) -> None:
    count, tomorrow = 20_000, datetime.timedelta(days=1)
    for first in range(0, count, 1_000):
        client.queue("q").put([Message("t", b"%d" % n) for n in range(first, first + 1_000)])
    with ShareConsumer("q", group="g", client=client, auto_acknowledge=False) as consumer:
        left, most = count, 0
        while left:
            for message in consumer.poll(WAIT_MS, 50):
                consumer.release(message, until=tomorrow)
                consumer.commit()
                left -= 1
            (hands,) = consumer._consumption._hands.values()
            assert hands.partition.window is not None
            most = max(most, len(encode_window(hands.partition.window, "")))
        assert most < 8_192
        assert len(hands.partition.window.delays) <= 48
    with ShareConsumer("q", group="g", client=client) as consumer:
        assert consumer.poll(0) == []
        (hands,) = consumer._consumption._hands.values()
        hands.partition._clock = hands.partition._delays._clock = LaterClock()
        got: list[AcquiredMessage] = []
        while len(got) < count:
            got += consumer.poll(WAIT_MS, 1_000)
        assert sorted(values(got)) == list(range(count))
        assert {each.deliveries for each in got} == {2}
        assert consumer.poll(0) == []


def test_without_room_for_delays_nothing_is_released_for_later_and_nothing_is_lost(
    client: hqueue.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delays, "DELAYS_MAX", 2)
    queue, soon = client.queue("q"), datetime.timedelta(milliseconds=LONG_MS)
    queue.put([Message("t", b"0"), Message("t", b"1")])
    with ShareConsumer("q", group="g", client=client, auto_acknowledge=False) as a:
        first, second = a.poll(WAIT_MS)
        a.release(first, until=soon)
        a.commit()
        a.release(second, until=soon)
        a.commit()
        queue.put([Message("t", b"3"), Message("t", b"2").delayed(soon)])
        queue.put([Message("t", b"4").delayed(soon)])
        queue.put([Message("t", b"5")])
        (third,) = a.poll(WAIT_MS)
        assert int(third.value) == 3
        assert a.poll(0) == []  # What has a time to come has no room, and what follows waits.
        with pytest.raises(BufferFullError, match="release the message without a time") as raised:
            a.release(third, until=soon)
        assert raised.value.outcome is Outcome.NOT_APPLIED
        a.acknowledge(third)
        got: list[int] = []
        while len(got) < 5:
            messages = a.poll(WAIT_MS)
            assert messages
            a.acknowledge(*messages)
            got += values(messages)
        assert sorted(got) == [0, 1, 2, 4, 5]
        assert a.poll(0) == []
