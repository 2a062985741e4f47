"""A process that shares a subscription: ``share.py <queue> <name> <file> <pause in ms>``.

It says ``ready`` when it has joined, and stops cleanly when its stdin ends. It notes in the file
when each call begins and ends, as a JSON document a line: what, the partition, the messages'
numbers, and the time of the machine.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from typing import TextIO

import hqueue
from hqueue import ReceivedMessage, Subscription


class Noting:
    """The listener."""

    def __init__(self, file: TextIO, pause_s: float) -> None:
        self._file = file
        self._pause_s = pause_s

    def consume(self, messages: Sequence[ReceivedMessage]) -> None:
        self._note("begin", messages)
        time.sleep(self._pause_s)
        self._note("end", messages)

    def _note(self, what: str, messages: Sequence[ReceivedMessage]) -> None:
        noted = {
            "what": what,
            "partition": messages[0].partition,
            "numbers": [int(message.value) for message in messages],
            "at_ns": time.monotonic_ns(),
        }
        self._file.write(json.dumps(noted) + "\n")
        self._file.flush()


def main() -> None:
    _, queue, name, path, pause_ms = sys.argv
    with open(path, "a", encoding="utf-8") as file, hqueue.connect() as client:
        listener = Noting(file, float(pause_ms) / 1e3)
        subscription = Subscription(name)
        opened = client.queue(queue)
        with opened.subscriber(subscription, listener.consume, shared=True, calls_max=4):
            print("ready", flush=True)
            sys.stdin.read()


main()
