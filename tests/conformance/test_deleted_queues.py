"""What reads a queue while it is deleted ends with that, and not with what the store happens to say
of rows that are gone: for threads and for event loops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import hqueue
from hqueue import Consumer, Message, QueueNotFoundError
from tests.support.backends import Backend
from tests.support.consumer_faces import LoopedConsumer
from tests.support.queue_faces import queue_face_of

PARTITIONS = 3
"""Of several partitions the next rows are asked for together."""
BOUND_MS = 2_000
"""For so long a queue that is missing may be one that is truncated."""


@pytest.mark.parametrize(
    ("name", "consumer"),
    [("threads", Consumer), pytest.param("asyncio", LoopedConsumer, marks=pytest.mark.in_memory)],
    ids=["threads", "asyncio"],
)
def test_followers_consumers_scans_and_questions_say_that_the_queue_is_gone(
    backend: Backend, client: hqueue.Client, queue_name: str, name: str, consumer: Any
) -> None:
    queue = client.create_queue(queue_name, partitions=PARTITIONS)
    values = {b"%d" % partition for partition in range(PARTITIONS)}
    for partition in range(PARTITIONS):
        queue.put(Message("t", b"%d" % partition), partition=partition)
    with (
        backend.connect(operation_timeout_ms=BOUND_MS) as reading,
        queue_face_of(name) as face_of,
        consumer(queue_name, group=queue_name, client=reading) as consuming,
    ):
        face: Any = face_of(reading, reading.queue(queue_name))
        offsets = face.offsets()
        with face.scan(follow=True) as follower:
            followed, consumed = iter(follower), iter(consuming)
            for messages in (followed, consumed):
                assert {next(messages).value for _ in range(PARTITIONS)} == values
            client.disable_queue(queue_name)
            client.delete_queue(queue_name)
            calls: list[Callable[[], object]] = [
                lambda: next(followed),
                lambda: next(consumed),
                lambda: list(face.scan()),
                lambda: list(face.scan(partition=0)),
                lambda: face.appended_since(offsets),
                face.offsets,
            ]
            for call in calls:
                with pytest.raises(QueueNotFoundError) as caught:
                    call()
                assert caught.value.queue == queue_name
                assert caught.value.outcome is hqueue.Outcome.NOT_APPLIED
