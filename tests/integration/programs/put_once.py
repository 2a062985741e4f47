"""A process that puts the same batches each time: ``put_once.py <queue> <work> <batches>``.

Batch n has the idempotency key n, goes to partition n modulo their number, and holds the values
``n:0`` to ``n:<n modulo 4>``. It says ``ready``, waits for a line, and prints the ID of each
batch's first message as soon as it is known.
"""

from __future__ import annotations

import sys

import hqueue
from hqueue import Message


def main() -> None:
    name, producer, batches = sys.argv[1:]
    with hqueue.connect() as client:
        queue = client.queue(name)
        print("ready", flush=True)
        sys.stdin.readline()
        since = queue.claim_epoch(producer)
        for n in range(int(batches)):
            messages = [Message("t", b"%d:%d" % (n, k)) for k in range(n % 4 + 1)]
            ids = queue.put(
                messages, partition=n % queue.partitions, idempotency_key=str(n), since=since
            )
            print(int(ids[0]), flush=True)


main()
