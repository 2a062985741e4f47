"""A subscriber that some messages end: ``fatal_messages.py <queue> <name> <port> <file>``.

It appends the value of each message that it has processed to the file, with its partition. A
message ``exit`` ends the process, ``hang`` never ends, and ``memory`` takes memory until the
process may have no more, and is killed for that. It prints what it begins of these, and ``ready``
when it is present; it stops cleanly when its stdin ends.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import hqueue
from hqueue import DeliveryOptions, ReceivedMessage, Subscription

MEMORY_BYTES = 256 << 20
"""So much more memory a message may take."""
OPTIONS = DeliveryOptions(
    timeout_ms=1_500, unanswered_calls_max=2, backoff_ms_min=50, backoff_ms_max=300
)


def end(value: bytes) -> None:
    """What a fatal message does."""
    if value == b"exit":
        os._exit(1)
    if value == b"hang":
        threading.Event().wait()
    if value == b"memory":
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        most = pages * resource.getpagesize() + MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        taken = []
        try:
            while True:
                taken.append(bytearray(16 << 20))
        except MemoryError:
            os.kill(os.getpid(), signal.SIGKILL)  # As Linux does to a process that takes too much.


def main() -> None:
    queue, name, port, path = sys.argv[1:]

    def process(messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            if message.value in (b"exit", b"hang", b"memory"):
                print(message.value.decode(), flush=True)
                end(message.value)
            with Path(path).open("a", encoding="utf-8") as file:
                file.write(f"{message.partition} {message.value.decode()}\n")

    with (
        hqueue.connect() as client,
        client.queue(queue).subscriber(
            Subscription(name, delivery=OPTIONS), process, port=int(port)
        ),
    ):
        print("ready", flush=True)
        sys.stdin.read()


main()
