"""A process of a share group: ``work.py <queue> <group> <file> <lock in ms> <threads or asyncio>``.

It says ``ready`` when it has joined, and stops in order when its stdin ends. It notes in the file
what it was handed, what it is about to acknowledge, and what it has acknowledged, as a JSON
document a line: what, when it asked and when it had that by the machine's monotonic clock, and
number and deliveries of each.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, TextIO

import hqueue
import hqueue.aio
from hqueue.typing import AcquiredMessage

POLL_MS = 100.0
TOGETHER = 20
WORK_S = 0.01


class _Notes:
    def __init__(self, file: TextIO) -> None:
        self._file = file

    def note(self, what: str, asked_ns: int, messages: Sequence[AcquiredMessage]) -> None:
        noted = {
            "what": what,
            "asked_ns": asked_ns,
            "at_ns": time.monotonic_ns(),
            "messages": [[int(each.value), each.deliveries] for each in messages],
        }
        self._file.write(json.dumps(noted) + "\n")
        self._file.flush()


def _work(queue: str, options: dict[str, Any], notes: _Notes, ended: threading.Event) -> None:
    with hqueue.ShareConsumer(queue, **options) as consumer:
        print("ready", flush=True)
        while not ended.is_set():
            asked_ns = time.monotonic_ns()
            messages = consumer.poll(POLL_MS, TOGETHER)
            if messages:
                notes.note("handed", asked_ns, messages)
                time.sleep(WORK_S)
                notes.note("acknowledging", asked_ns, messages)
                consumer.acknowledge(*messages)
                consumer.commit()
                notes.note("acknowledged", asked_ns, messages)


async def _work_in_loop(
    queue: str, options: dict[str, Any], notes: _Notes, ended: threading.Event
) -> None:
    async with hqueue.aio.ShareConsumer(queue, **options) as consumer:
        print("ready", flush=True)
        while not ended.is_set():
            asked_ns = time.monotonic_ns()
            messages = await consumer.poll(POLL_MS, TOGETHER)
            if messages:
                notes.note("handed", asked_ns, messages)
                await asyncio.sleep(WORK_S)
                notes.note("acknowledging", asked_ns, messages)
                consumer.acknowledge(*messages)
                await consumer.commit()
                notes.note("acknowledged", asked_ns, messages)


def main(queue: str, group: str, path: str, lock_ms: str, face: str) -> None:
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    options = {"group": group, "lock_ms": int(lock_ms), "auto_acknowledge": False}
    with open(path, "a") as file:
        if face == "threads":
            _work(queue, options, _Notes(file), ended)
        else:
            asyncio.run(_work_in_loop(queue, options, _Notes(file), ended))


if __name__ == "__main__":
    main(*sys.argv[1:])
