"""A producer process: ``python -m tests.faults.producer SPECIFICATION``."""

from __future__ import annotations

import dataclasses
import json
import random
import sys
import threading
import time
from pathlib import Path

from hqueue import Client, HQueueError, Message, Outcome, Queue, Settings

from .clock import SettableClock
from .history import Put, Recorder, now_s

__all__ = ["STYLES", "Specification"]

STYLES = ("single", "batch", "keyed", "free", "buffered")
TOPICS = ("red", "green", "blue")
PAUSE_S = 0.02


@dataclasses.dataclass(frozen=True)
class Specification:
    """What one process does; handed over as JSON.

    Args:
        name: of the process, and of its files.
        style: ``single`` messages, ``batch`` es, ``keyed`` ones, ``free`` to choose a partition,
            or ``buffered`` by a `Producer`.
        queue: the queue.
        folder: of the history; the file ``stop`` in it ends the process.
        seed: of its random choices.
        settings: of its client.
    """

    name: str
    style: str
    queue: str
    folder: str
    seed: int
    settings: dict[str, object]


class _Process:
    def __init__(self, specification: Specification) -> None:
        self._specification = specification
        self._folder = Path(specification.folder)
        self._recorder = Recorder(self._folder / f"{specification.name}.producer.jsonl")
        self._random = random.Random(specification.seed)
        self._number = 0
        self._lock = threading.Lock()
        clock = SettableClock(self._folder / f"{specification.name}.clock")
        self._client = Client(Settings(**specification.settings), clock)  # type: ignore[arg-type]

    def run(self) -> None:
        while not self._stopped():  # The queue may be disabled just now.
            try:
                queue = self._client.queue(self._specification.queue)
                break
            except HQueueError:
                time.sleep(PAUSE_S)
        else:
            return
        if self._specification.style == "buffered":
            self._send(queue)
        else:
            self._put(queue)

    def _stopped(self) -> bool:
        return (self._folder / "stop").exists()

    def _next(self, count: int, partition: int | None) -> tuple[Put, list[Message]]:
        name = self._specification.name
        tokens = [f"{name}-{self._number}-{index}" for index in range(count)]
        put = Put(name, self._number, tokens, partition, now_s())
        self._number += 1
        size = self._random.choice((0, 10, 100, 1_000))
        filling = self._random.randbytes(size)
        messages = [
            Message(self._random.choice(TOPICS), token.encode() + b"|" + filling)
            for token in tokens
        ]
        return put, messages

    def _put(self, queue: Queue) -> None:
        style = self._specification.style
        while not self._stopped():
            partition, key = None, None
            if style == "keyed":
                key = f"key-{self._random.randrange(20)}"
                partition = queue.choose_partition(None, key)
            elif style != "free":
                partition = self._random.randrange(queue.partitions)
            count = 1 if style == "single" else self._random.randint(1, 30)
            put, messages = self._next(count, partition)
            self._recorder.invoke(put)
            try:
                where = {"key": key} if key is not None else {"partition": partition}
                ids = queue.put(messages, **where)  # type: ignore[arg-type]
            except HQueueError as exc:
                self._recorder.complete(put.number, _outcome(exc), [], str(exc))
            else:
                self._recorder.complete(put.number, "ok", map(int, ids))
            time.sleep(self._random.random() * PAUSE_S * 2)

    def _send(self, queue: Queue) -> None:
        with queue.producer(buffer_bytes_max=1024 * 1024, linger_ms=10) as producer:
            while not self._stopped():
                put, messages = self._next(1, self._random.randrange(queue.partitions))

                def done(
                    message_id: int | None, error: BaseException | None, number: int = put.number
                ) -> None:
                    with self._lock:
                        if error is None:
                            self._recorder.complete(number, "ok", [int(message_id or 0)])
                        else:
                            self._recorder.complete(number, _outcome(error), [], str(error))

                with self._lock:
                    self._recorder.invoke(put)
                try:
                    producer.send(messages[0], partition=put.partition, callback=done)
                except HQueueError as exc:
                    done(None, exc)
                time.sleep(self._random.random() * PAUSE_S / 2)


def _outcome(error: BaseException) -> str:
    if isinstance(error, HQueueError) and error.outcome is Outcome.NOT_APPLIED:
        return "fail"
    return "unknown"


if __name__ == "__main__":
    _Process(Specification(**json.loads(sys.argv[1]))).run()
