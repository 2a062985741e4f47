"""A poll gives messages if there are some, however the polls before it ended."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import hqueue
from hqueue import Consumer, Message

pytestmark = pytest.mark.in_memory

WAIT_MS = 60_000


def test_a_poll_that_took_the_last_of_what_was_read_is_not_followed_by_an_empty_one(
    client: hqueue.Client, make_queue: Callable[..., hqueue.Queue], queue_name: str
) -> None:
    queue = make_queue()
    with Consumer(queue.name, group=queue_name, client=client) as consumer:
        for value in (b"0", b"1", b"2"):
            queue.put(Message("t", value), partition=0)
            assert [message.value for message in consumer.poll(WAIT_MS, 1)] == [value]
        assert consumer.poll(0, 1) == []
