"""``python -m tests.bench.publishers``: one that writes small messages, in a process of its own.

Arguments: ``hub`` and a hub's address, or ``put`` and ZooKeeper's; the queue. For each line with a
number of seconds it writes messages one by one for so long, and answers with how many it wrote.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import hqueue
from hqueue import Message

__all__ = ["PARTITION", "TOPIC", "VALUE"]

TOPIC = "bench"
VALUE = bytes(100)
PARTITION = 0


def main(way: str, address: str, queue: str) -> None:
    """Write whenever it is asked for."""
    write: Callable[[], object]
    if way == "hub":
        hubs = hqueue.connect_hubs(address, queue=queue)
        write = lambda: hubs.topic(TOPIC).publish(VALUE)  # noqa: E731
    else:
        log = hqueue.connect(hbase="native", zookeeper=address).queue(queue)
        write = lambda: log.put(Message(TOPIC, VALUE), partition=PARTITION)  # noqa: E731
    write()
    print("ready", flush=True)
    for line in sys.stdin:
        ends_s = time.monotonic() + float(line)
        count = 0
        while time.monotonic() < ends_s:
            write()
            count += 1
        print(count, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
