"""A process that forges: ``python -m tests.faults.stranger SPECIFICATION``.

It reaches the workers' ports, reads the log and ZooKeeper, knows every format, and has everything
but the right key. All the time it tells workers of batches that nobody put, each where its
partition ends, with checksums that fit. What a subscriber gets of them is *misdelivered*, and what
they hide is *undelivered*.
"""

from __future__ import annotations

import random
import sys
import time

import hqueue
from hqueue import Client, HQueueError, Queue
from hqueue.metadata.append_keys import AppendKey, sign
from tests.support.forging import Forged, forge, notification, send

from .specification import Specification

__all__ = ["STYLES"]

STYLES = ("forger",)

PAUSE_S = 0.2
PAUSE_FAILED_S = 0.5


class _Process:
    def __init__(self, specification: Specification) -> None:
        self._specification = specification
        self._random = random.Random(specification.seed)
        self._own = AppendKey.random(0)
        self._sent = 0

    def run(self) -> None:
        with hqueue.connect(self._specification.client_settings()) as client:
            queue = None
            while not self._specification.drained():
                try:
                    queue = queue or client.queue(self._specification.queue)
                    self._forge(client, queue)
                    time.sleep(PAUSE_S)
                except (HQueueError, OSError) as exc:
                    print(exc, file=sys.stderr)
                    time.sleep(PAUSE_FAILED_S)
        print(f"{self._sent} forged batches")
        if not self._sent:
            raise SystemExit("no worker was ever reached: this proves nothing")

    def _forge(self, client: Client, queue: Queue) -> None:
        coordination = client.coordination
        workers, owners = coordination.workers.list(), coordination.owners.list()
        served = [(key, workers[name]) for key, name in owners.items() if name in workers]
        if not served:
            return
        key, worker = self._random.choice(served)
        self._sent += 1
        end = queue.offsets([key.partition])[0]
        forged = forge(end, [b"forged %d" % self._sent])
        keys = coordination.append_keys.read()
        real = self._own.id if keys is None else keys.current.id
        frames = [
            notification(queue.name, forged),
            notification(queue.name, forged, self._own.id, self._mac(queue, forged)),
            notification(queue.name, forged, real, self._mac(queue, forged)),
            notification(queue.name, forged, real, self._random.randbytes(32)),
        ]
        send(worker.address, *self._random.sample(frames, self._random.randint(1, len(frames))))

    def _mac(self, queue: Queue, forged: Forged) -> bytes:
        return sign(
            self._own, queue.name, forged.partition, forged.slot,
            header=forged.header, cells=forged.cells,
        )  # fmt: skip


if __name__ == "__main__":
    _Process(Specification.begin(sys.argv[1])).run()
