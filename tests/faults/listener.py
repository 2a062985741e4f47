"""A subscriber by way of hubs: ``python -m tests.faults.listener SPECIFICATION``."""

from __future__ import annotations

import asyncio
import random
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Any
from unittest import mock

import hqueue
from hqueue import HQueueError, HubClient, ReceivedMessage, Status, TopicSubscription
from hqueue.runtime.steps import Work
from hqueue.runtime.stepwise import stepwise
from hqueue.topics.delivering_hubs import DeliveringHubs
from tests.support.hub_faces import connected

from .specification import Specification
from .topic_history import TOPICS, TopicRecorder, now_s, token_of

__all__ = ["STYLES"]

STYLES = ("hearing", "asking")
"""A ``hearing`` one consumes by what it answers; an ``asking`` one says itself what is consumed."""

IN_LOOP = 0.5
"""So many hearing processes receive in an event loop, by coroutines."""
PAUSE_S = 0.5
RETRIES = 0.02
WORK_S = 0.005
CONSUMED_EVERY = 10
_ATTACH = DeliveringHubs.__dict__["attach"]


class _Process:
    """Subscribes to all topics, under the style's name: the next process goes on there."""

    def __init__(self, specification: Specification) -> None:
        self._specification = specification
        self._name = specification.style
        self._recorder = TopicRecorder(
            specification.folder / f"{specification.name}.listener.jsonl"
        )
        self._random = random.Random(specification.seed)
        # An asking one calls hubs within its listener.
        self._in_loop = self._name == "hearing" and self._random.random() < IN_LOOP
        self._lock = threading.Lock()
        self._reached = dict.fromkeys(TOPICS, -1)
        self._open: dict[str, TopicSubscription] = {}
        self._last: dict[str, int] | None = None

    def run(self) -> None:
        @stepwise
        def attach(
            hubs: DeliveringHubs, subscription: TopicSubscription, *given: Any
        ) -> Work[Any, None]:
            began_s = now_s()
            yield from _ATTACH.__get__(hubs, None).steps(subscription, *given)
            consumed = int(subscription.cursor)
            with self._lock:
                topic = subscription.topic
                self._reached[topic] = max(self._reached[topic], consumed)
            self._recorder.attached(self._name, topic, consumed, began_s)

        with (
            mock.patch.object(DeliveringHubs, "attach", attach),
            connected(
                ",".join(self._specification.hubs),
                in_loop=self._in_loop,
                queue=self._specification.topics_queue,
            ) as client,
        ):
            while not self._over():
                for topic in TOPICS:
                    if topic not in self._open or self._open[topic].ended:
                        self._subscribe(client, topic)
                time.sleep(PAUSE_S)

    def _subscribe(self, client: HubClient, topic: str) -> None:
        try:
            listener = self._take_in_loop if self._in_loop else self._take
            self._open[topic] = client.topic(topic).subscribe(
                self._name,
                partial(listener, topic),
                explicit_ack=self._name == "asking",
            )
        except HQueueError as exc:
            print(repr(exc), file=sys.stderr)

    async def _take_in_loop(self, topic: str, messages: Sequence[ReceivedMessage]) -> Status:
        await asyncio.sleep(self._random.random() * WORK_S)
        return self._note(topic, messages)

    def _take(self, topic: str, messages: Sequence[ReceivedMessage]) -> Status:
        time.sleep(self._random.random() * WORK_S)
        return self._note(topic, messages)

    def _note(self, topic: str, messages: Sequence[ReceivedMessage]) -> Status:
        done = self._random.random() >= RETRIES
        given = [(int(each.id), token_of(each.value)) for each in messages]
        self._recorder.given(self._name, topic, given, done)
        if not done:
            return Status.RETRY
        with self._lock:
            self._reached[topic] = max(self._reached[topic], given[-1][0])
        if self._name == "asking":
            try:
                self._open[topic].acknowledge_cumulative(messages[-1].id)
            except (HQueueError, KeyError) as exc:  # It is consumed with what comes next.
                print(repr(exc), file=sys.stderr)
        return Status.DONE

    def _over(self) -> bool:
        """Whether no more will come, and all that is there was given."""
        if not self._specification.drained():
            return False
        if self._last is None:
            try:
                with hqueue.connect(self._specification.client_settings()) as client:
                    self._last = {
                        topic: _last(client.queue(self._specification.topics_queue), topic)
                        for topic in TOPICS
                    }
            except HQueueError as exc:
                print(repr(exc), file=sys.stderr)
                return False
        with self._lock:
            return all(self._reached[topic] >= last for topic, last in self._last.items())


def _last(queue: hqueue.Queue, topic: str) -> int:
    last = -1
    with queue.scan_topic(topic) as scanner:
        for message in scanner:
            last = int(message.id)
    return last


if __name__ == "__main__":
    _Process(Specification.begin(sys.argv[1])).run()
