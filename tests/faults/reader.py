"""A reader process: ``python -m tests.faults.reader SPECIFICATION``."""

from __future__ import annotations

import dataclasses
import json
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import hqueue
from hqueue import HQueueError, Message, MessageID, Queue, Scan, Settings
from hqueue.errors import CorruptLogError

from .history import Recorder

__all__ = ["STYLES", "Specification", "token_of"]

STYLES = ("start", "middle", "follower", "rereader")
IDLE_MS = 1_000
PAUSE_S = 0.2


@dataclasses.dataclass(frozen=True)
class Specification:
    """What one process does; handed over as JSON.

    Args:
        name: of the process, and of its files.
        style: scans from the ``start``, again and again; from the ``middle``, which is when it
            began; a ``follower`` from the start; a ``rereader`` that begins at a random moment.
        queue: the queue.
        folder: of the history; once the file ``drained`` is in it, the process reads to the end
            and ends.
        seed: of its random choices.
        settings: of its client.
    """

    name: str
    style: str
    queue: str
    folder: str
    seed: int
    settings: dict[str, object]


def token_of(message: Message) -> str:
    """What tells a message apart."""
    return message.value.partition(b"|")[0].decode()


class _Process:
    def __init__(self, specification: Specification) -> None:
        self._style = specification.style
        self._folder = Path(specification.folder)
        self._recorder = Recorder(self._folder / f"{specification.name}.reader.jsonl")
        self._random = random.Random(specification.seed)
        self._client = hqueue.connect(Settings(**specification.settings))  # type: ignore[arg-type]
        self._name = specification.queue

    def run(self) -> None:
        queue = self._open()
        first = 0
        if self._style == "middle":
            first = int(MessageID(time.time_ns() // 1_000_000))
        elif self._style == "rereader":
            back_ms = self._random.randrange(10_000)
            first = int(MessageID(time.time_ns() // 1_000_000 - back_ms))
        self._next = dict.fromkeys(range(queue.partitions), first)
        for partition, start in self._next.items():
            self._recorder.start(partition, start)
        while True:
            drained = (self._folder / "drained").exists()
            try:
                for messages in self._pass(queue):
                    self._note(messages)
            except CorruptLogError:
                raise
            except HQueueError as exc:
                print(exc, file=sys.stderr)
                time.sleep(PAUSE_S)
                continue
            if drained:
                self._recorder.drained()
                return
            time.sleep(PAUSE_S)

    def _open(self) -> Queue:
        while True:  # Ends with the first answer; the run ends this process if none comes.
            try:
                return self._client.queue(self._name)
            except HQueueError as exc:
                print(exc, file=sys.stderr)
                time.sleep(PAUSE_S)

    def _pass(self, queue: Queue) -> Iterator[list[Message]]:
        """All that there is now, from where the last pass ended."""
        scans = {p: Scan(MessageID.from_int(first)) for p, first in self._next.items()}
        following = {"follow": True, "idle_ms_max": IDLE_MS} if self._style == "follower" else {}
        with queue.combined_partition_scanner(scans, **following) as scanner:
            messages: list[Message] = []
            for message in scanner:
                messages.append(message)
                if len(messages) >= 100 or self._style == "follower":
                    yield messages
                    messages = []
            yield messages

    def _note(self, messages: list[Message]) -> None:
        if not messages:
            return
        noted = []
        for message in messages:
            assert message.id is not None
            assert message.partition is not None
            noted.append((message.partition, int(message.id), token_of(message)))
            self._next[message.partition] = int(message.id) + 1
        self._recorder.read(noted)


if __name__ == "__main__":
    _Process(Specification(**json.loads(sys.argv[1]))).run()
