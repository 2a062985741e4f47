"""A process that does one thing and says how its memory grew: ``memory.py <what> <queue> …``.

The growth is that of the peak of its resident memory over what it was after a first message was
written or read, in bytes.
"""

from __future__ import annotations

import os
import resource
import sys
import time

import hqueue
from hqueue import Message

MIB = 1024 * 1024
BYTES_MAX = 4 * MIB


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def scan(queue: hqueue.Queue, *, merge_sorted: bool = False, arrow: bool = False) -> int:
    if arrow:
        next(queue.scan(partition=0, bytes_max=1).arrow_batches())
    next(iter(queue.scan(partition=0, bytes_max=1)))
    before, read = peak_bytes(), 0
    scanner = queue.scan(bytes_max=BYTES_MAX, merge_sorted=merge_sorted)
    if arrow:
        for batch in scanner.arrow_batches():
            read += batch.nbytes
    else:
        for message in scanner:
            read += len(message.value)
    print("read", read)
    return peak_bytes() - before


def follow(queue: hqueue.Queue) -> int:
    """Stand at the end of all partitions; look again when 8 MiB have come in each."""
    follower = queue.scan(follow=True, bytes_max=BYTES_MAX, idle_ms_max=60_000)
    next(iter(queue.scan(partition=0, bytes_max=1)))
    for _ in range(queue.partitions):
        follower.next()
    before, read = peak_bytes(), 0
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(queue.partitions):
        message = follower.next()
        assert message is not None
        read += len(message.value)
    print("read", read)
    return peak_bytes() - before


def produce(queue: hqueue.Queue) -> int:
    queue.put(Message("t", os.urandom(MIB)))
    before = peak_bytes()
    with queue.producer(buffer_bytes_max=16 * MIB, batch_bytes_max=MIB) as producer:
        body = os.urandom(100_000)
        for _ in range(1_500):
            producer.send(Message("t", bytes(body)))
            time.sleep(0)
    return peak_bytes() - before


def main() -> None:
    what, name = sys.argv[1:]
    with hqueue.connect() as client:
        queue = client.queue(name)
        if what == "follow":
            growth = follow(queue)
        elif what == "produce":
            growth = produce(queue)
        else:
            growth = scan(queue, merge_sorted=what == "merge", arrow=what == "arrow")
    print("growth", growth)


main()
