"""A subscriber process: ``python -m tests.faults.subscriber SPECIFICATION``."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Sequence

import hqueue
from hqueue import (
    Client,
    DeliveryOptions,
    HQueueError,
    Queue,
    ReceivedMessage,
    Status,
    Subscription,
)

from .history import Recorder
from .reader import noted
from .specification import Specification

__all__ = ["STYLES"]

STYLES = ("prompt", "hesitant")
"""A ``prompt`` one is done with everything; a ``hesitant`` one takes its time, a few messages at a
time, and wants some of them again."""

PAUSE_S = 0.5
HESITATION_S = 0.02


class _Process:
    def __init__(self, specification: Specification) -> None:
        self._specification = specification
        self._style = specification.style
        path = specification.folder / f"{specification.name}.subscriber.jsonl"
        self._recorder = Recorder(path)
        self._random = random.Random(specification.seed)

    def run(self) -> None:
        """Subscribe under the style's name: one that comes in place of another goes on there."""
        with hqueue.connect(self._specification.client_settings()) as client:
            while True:  # Ends when all was delivered; the run ends this process if it never is.
                try:
                    queue = client.queue(self._specification.queue)
                    with queue.subscriber(self._subscription(), self._consume) as subscriber:
                        while not self._is_over(client, queue):
                            subscriber.wait(PAUSE_S)
                        return
                except HQueueError as exc:
                    print(exc, file=sys.stderr)
                    time.sleep(PAUSE_S)

    def _subscription(self) -> Subscription:
        hesitant = DeliveryOptions(batch_messages_max=20, backoff_ms_min=20, backoff_ms_max=200)
        delivery = hesitant if self._style == "hesitant" else None
        return Subscription(self._style, delivery=delivery)

    def _consume(self, messages: Sequence[ReceivedMessage]) -> Status:
        status = Status.DONE
        if self._style == "hesitant":
            time.sleep(self._random.random() * HESITATION_S)
            status = Status.RETRY if self._random.random() < 0.1 else Status.DONE
        self._recorder.delivered(
            self._style, status is Status.DONE, [noted(message) for message in messages]
        )
        return status

    def _is_over(self, client: Client, queue: Queue) -> bool:
        """Whether no more will come, and workers have written down that all was delivered."""
        if not self._specification.drained():
            return False
        states = [s for s in client.list_subscribers(queue.name) if s.subscriber == self._style]
        return len(states) == queue.partitions and all(state.lag == 0 for state in states)


if __name__ == "__main__":
    _Process(Specification.begin(sys.argv[1])).run()
