"""What puts work into the queue of share groups: ``python -m tests.faults.supplier SPECIFICATION``.

Some messages are delayed, and half have keys and headers.
"""

from __future__ import annotations

import datetime
import random
import sys
import time

from hqueue import HQueueError, Message, Outcome, Queue
from hqueue.connecting import open_client

from .clock import SettableClock
from .history import Put, Recorder, now_s
from .messages import made, token_of
from .specification import Specification

__all__ = ["STYLES"]

STYLES = ("steady", "bursting")
"""A ``steady`` one puts a few messages at a time, a ``bursting`` one many, and rests for long."""

KEYS = (None, *(b"key-%d" % number for number in range(12)))
COUNTS = {"steady": (1, 4), "bursting": (30, 80)}
PAUSES_S = {"steady": 0.3, "bursting": 5.0}
SIZES = (0, 10, 100, 1_000)
DELAYED = 0.1
DELAYS_S = (0.2, 4.0)
PAUSE_FAILED_S = 0.5


class _Process:
    def __init__(self, specification: Specification) -> None:
        self._specification = specification
        folder, name = specification.folder, specification.name
        self._recorder = Recorder(folder / f"{name}.supplier.jsonl")
        self._random = random.Random(specification.seed)
        self._client = open_client(
            specification.client_settings(), SettableClock(folder / f"{name}.clock")
        )

    def run(self) -> None:
        queue: Queue | None = None
        number = 0
        while not self._specification.stopped():
            try:
                queue = queue or self._client.queue(self._specification.shares_queue)
            except HQueueError as exc:
                print(exc, file=sys.stderr)
                time.sleep(PAUSE_FAILED_S)
                continue
            self._put(queue, number)
            number += 1
            time.sleep(2 * self._random.random() * PAUSES_S[self._specification.style])

    def _put(self, queue: Queue, number: int) -> None:
        name = self._specification.name
        count = self._random.randint(*COUNTS[self._specification.style])
        names = [f"{name}-{number}-{index}" for index in range(count)]
        messages = [
            self._perhaps_delayed(each)
            for each in made(names, self._random.choice(SIZES), KEYS, self._random)
        ]
        partition = self._random.randrange(queue.partitions)
        self._recorder.invoke(Put(name, number, [*map(token_of, messages)], partition, now_s()))
        try:
            ids = queue.put(messages, partition=partition)
        except HQueueError as exc:
            outcome = "fail" if exc.outcome is Outcome.NOT_APPLIED else "unknown"
            self._recorder.complete(number, outcome, [], str(exc))  # type: ignore[arg-type]
        else:
            self._recorder.complete(number, "ok", map(int, ids))

    def _perhaps_delayed(self, message: Message) -> Message:
        if self._random.random() >= DELAYED:
            return message
        return message.delayed(datetime.timedelta(seconds=self._random.uniform(*DELAYS_S)))


if __name__ == "__main__":
    _Process(Specification.begin(sys.argv[1])).run()
