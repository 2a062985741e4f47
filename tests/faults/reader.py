"""A reader process: ``python -m tests.faults.reader SPECIFICATION``."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator, Mapping

import hqueue
from hqueue import HQueueError, MessageID, Queue, ReceivedMessage, Scan
from hqueue.errors import CorruptLogError

from .history import Recorder, now_s
from .messages import token_of
from .specification import Specification

__all__ = ["STYLES", "noted"]

STYLES = ("start", "middle", "follower")
"""From the ``start``: scan after scan, each going on from the one before; from the ``middle``:
each scan from somewhere in what came last; a ``follower``, from the start on."""

IDLE_MS = 1_000
PAUSE_S = 0.5
NOTED_MAX = 200
BACK_MS_MAX = 4_000


def noted(message: ReceivedMessage) -> tuple[int, int, str]:
    """What is written down of a message: its partition, its ID, and what tells it apart."""
    return message.partition, int(message.id), token_of(message)


class _Process:
    def __init__(self, specification: Specification) -> None:
        self._specification = specification
        self._style = specification.style
        name = f"{specification.name}.reader.jsonl"
        self._recorder = Recorder(specification.folder / name)
        self._random = random.Random(specification.seed)
        self._client = hqueue.connect(specification.client_settings())
        self._next: dict[int, int] = {}
        self._last: dict[int, int] = {}
        """A message of the scan before, by partition."""

    def run(self) -> None:
        queue = self._open()
        self._begin(dict.fromkeys(range(queue.partitions), 0))
        while True:
            drained = self._specification.drained()
            began_s = now_s()
            try:
                for messages in self._pass(queue, follow=self._style == "follower" and not drained):
                    self._note(messages)
            except CorruptLogError as exc:
                self._recorder.broken(str(exc))
                return
            except HQueueError as exc:
                print(exc, file=sys.stderr)
                time.sleep(PAUSE_S)
                continue
            if drained or self._style != "follower":  # A follower ends when nothing comes.
                self._recorder.ended(began_s)
            if drained:
                return
            time.sleep(PAUSE_S)
            if self._style == "middle":
                self._begin(self._somewhere())

    def _open(self) -> Queue:
        while True:  # Ends with the first answer; the run ends this process if none comes.
            try:
                return self._client.queue(self._specification.queue)
            except HQueueError as exc:
                print(exc, file=sys.stderr)
                time.sleep(PAUSE_S)

    def _begin(self, starts: Mapping[int, int]) -> None:
        self._next = dict(starts)
        self._recorder.view(starts)

    def _somewhere(self) -> dict[int, int]:
        """A place a short time ago, or between two messages, perhaps of the same batch."""
        back_ms = self._random.randrange(BACK_MS_MAX)
        ago = int(MessageID(time.time_ns() // 1_000_000 - back_ms))
        starts = {p: i + 1 for p, i in self._last.items() if self._random.random() < 0.5}
        return {partition: starts.get(partition, ago) for partition in self._next}

    def _pass(self, queue: Queue, *, follow: bool) -> Iterator[list[ReceivedMessage]]:
        """All that there is now, from where the last pass ended."""
        scans = {p: Scan(MessageID.from_int(first)) for p, first in self._next.items()}
        following = {"follow": True, "idle_ms_max": IDLE_MS} if follow else {}
        with queue.combined_partition_scanner(scans, **following) as scanner:
            messages: list[ReceivedMessage] = []
            try:
                for message in scanner:
                    messages.append(message)
                    if len(messages) >= NOTED_MAX or follow:
                        yield messages
                        messages = []
            except HQueueError:
                yield messages  # They came before the error, and won't come again.
                raise
            yield messages

    def _note(self, messages: list[ReceivedMessage]) -> None:
        records = [noted(message) for message in messages]
        for partition, id_, _ in records:
            self._next[partition] = id_ + 1
            if self._random.random() < 0.05:
                self._last[partition] = id_
        if records:
            self._recorder.read(records)


if __name__ == "__main__":
    _Process(Specification.begin(sys.argv[1])).run()
