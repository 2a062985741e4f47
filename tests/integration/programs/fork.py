"""A process that forks in the middle of everything: ``fork.py <queue>``.

The queue holds 300 messages of one byte count. Parent and child go on with the same client, queue
and open scanner at once, each on its own, and both print what they wrote: partition, ID, value.
"""

from __future__ import annotations

import os
import sys

import hqueue
from hqueue import Message


def write(queue: hqueue.Queue, writer: str) -> list[str]:
    acknowledged = []
    for n in range(60):
        message_id = queue.put(Message("t", b"%s:%d" % (writer.encode(), n)), partition=n % 2)
        acknowledged.append(f"{n % 2} {int(message_id)} {writer}:{n}")
    return acknowledged


def both(queue: hqueue.Queue, scanner: hqueue.Scanner, before: list[int], writer: str) -> list[str]:
    acknowledged = write(queue, writer)
    read = before + [int(m.id) for m in scanner]
    scanner.close()
    whole = [int(m.id) for m in queue.scan(partition=0)]
    assert read == sorted(read), "out of order"
    assert read == [i for i in whole if i <= read[-1]][: len(read)], "the scan has gaps"
    assert len(read) >= 300
    return acknowledged + write(queue, f"{writer}-again")


def main() -> None:
    client = hqueue.connect()
    queue = client.queue(sys.argv[1])
    producer = queue.producer(linger_ms=60_000)
    delivery = producer.send(Message("p", b"parents:0"), partition=1)
    scanner = queue.scan(partition=0, bytes_max=1_000)
    before = [int(m.id) for _, m in zip(range(50), scanner, strict=False)]
    print("before the fork", flush=True, file=sys.stderr)

    child = os.fork()
    if not child:
        status = 1
        try:
            refused = False
            try:
                producer.send(Message("p", b"childs:0"))
            except hqueue.ClosedError:
                refused = True
            assert refused, "the producer must refuse in the child"
            assert producer.close()
            with queue.producer() as own:
                number = own.send(Message("p", b"childs-own:0"), partition=1)
            lines = both(queue, scanner, before, "child")
            print("\n".join([*lines, f"1 {int(number.result(0))} childs-own:0"]), flush=True)
            client.close()
            status = 0
        finally:
            sys.stderr.flush()
            os._exit(status)
    lines = both(queue, scanner, before, "parent")
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, "the child failed"
    lines += write(queue, "after")
    assert producer.close()
    print("\n".join([*lines, f"1 {int(delivery.result(0))} parents:0"]), flush=True)
    client.close()


main()
