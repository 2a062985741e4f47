"""A publisher by way of hubs: ``python -m tests.faults.publisher SPECIFICATION``."""

from __future__ import annotations

import itertools
import random
import sys
import time
from collections.abc import Callable, Iterable, Sequence

from hqueue import HQueueError, HubClient, Outcome
from tests.support.hub_faces import connected

from . import history
from .specification import Specification
from .topic_history import TOPICS, TopicRecorder

__all__ = ["STYLES"]

STYLES = ("plain", "plentiful", "numbered", "counted")
"""``plain`` ones publish what comes once, one message or some together, ``plentiful`` ones with a
shorter pause. ``numbered`` and ``counted`` ones number what they publish, and call again until it
is there; one that is restarted goes on where the topic's newest number says."""

IN_LOOP = 0.5
"""So many processes publish in an event loop."""
PAUSES_S = {"plain": 0.1, "plentiful": 0.02, "numbered": 0.1, "counted": 0.05}
TIMEOUT_MS = 20_000


class _Process:
    def __init__(self, specification: Specification) -> None:
        self._specification = specification
        self._style = specification.style
        path = specification.folder / f"{specification.name}.publisher.jsonl"
        self._recorder = TopicRecorder(path)
        self._random = random.Random(specification.seed)
        self._calls = itertools.count()

    def run(self) -> None:
        with connected(
            ",".join(self._specification.hubs),
            in_loop=self._random.random() < IN_LOOP,
            queue=self._specification.topics_queue,
            publisher=self._style,
            operation_timeout_ms=TIMEOUT_MS,
        ) as client:
            if self._style in ("numbered", "counted"):
                self._count_up(client)
            else:
                self._publish(client)

    def _publish(self, client: HubClient) -> None:
        while not self._specification.stopped():
            topic, number = self._random.choice(TOPICS), next(self._calls)
            tokens = [
                f"{self._specification.name}/{number}/{index}"
                for index in range(self._random.choice((1, 1, 2, 20)))
            ]
            self._recorder.invoke(number, topic, tokens)
            self._try(number, lambda: client.topic(topic).publish_many(self._values(tokens)))  # noqa: B023
            self._pause()

    def _count_up(self, client: HubClient) -> None:
        following: dict[str, int] = {}
        while not self._specification.stopped():
            topic = self._random.choice(TOPICS)
            first = following.get(topic)
            if first is None:
                try:
                    newest = client.topic(topic).last_sequence_number()
                except HQueueError as exc:
                    print(repr(exc), file=sys.stderr)
                    continue
                first = 0 if newest is None else newest + 1
            count = self._random.choice((1, 1, 3, 10))
            # The same ones for all: what a killed one left unknown, another tries.
            tokens = [f"{self._style}/{topic}/{first + index}" for index in range(count)]
            self._call_until_there(client, topic, tokens, first)
            following[topic] = first + count
            self._pause()

    def _call_until_there(
        self, client: HubClient, topic: str, tokens: Sequence[str], first: int
    ) -> None:
        number = next(self._calls)
        self._recorder.invoke(number, topic, tokens, first)
        values = self._values(tokens)
        while not self._try(
            number,
            lambda: client.topic(topic).publish_idempotent(values, sequence_number=first).ids,
            last=False,
        ):
            if self._specification.stopped():
                return

    def _try(self, number: int, publish: Callable[[], Iterable[int]], *, last: bool = True) -> bool:
        try:
            ids = publish()
        except HQueueError as exc:
            print(repr(exc), file=sys.stderr)
            if last:
                self._recorder.complete(number, _outcome(exc))
            return False
        self._recorder.complete(number, "ok", map(int, ids))
        return True

    def _values(self, tokens: Sequence[str]) -> list[bytes]:
        return [b"%b %b" % (each.encode(), b"x" * self._random.choice((0, 100))) for each in tokens]

    def _pause(self) -> None:
        time.sleep(2 * self._random.random() * PAUSES_S[self._style])


def _outcome(error: HQueueError) -> history.Outcome:
    return "fail" if error.outcome is Outcome.NOT_APPLIED else "unknown"


if __name__ == "__main__":
    _Process(Specification.begin(sys.argv[1])).run()
