"""A process whose pool of forked processes inherits its queue: ``pool.py <queue>``.

While a thread writes and holds all the locks that a writer holds, eight children are forked; each
writes. All print what they wrote: partition, ID, value.
"""

from __future__ import annotations

import multiprocessing
import sys
import threading

import hqueue
from hqueue import Message

client = hqueue.connect()
queue = client.queue(sys.argv[1])


def write(writer: str, number: int) -> str:
    message_id = queue.put(Message("t", b"%s:%d" % (writer.encode(), number)), partition=0)
    return f"0 {int(message_id)} {writer}:{number}"


def work(child: int) -> list[str]:
    return [write(f"child{child}", n) for n in range(20)]


def main() -> None:
    done = threading.Event()
    lines: list[str] = []

    def write_on() -> None:
        while not done.is_set():
            lines.append(write("parent", len(lines)))

    thread = threading.Thread(target=write_on)
    thread.start()
    with multiprocessing.get_context("fork").Pool(4, maxtasksperchild=1) as pool:
        written = pool.map(work, range(8), chunksize=1)
    done.set()
    thread.join()
    print("\n".join([*lines, *(line for child in written for line in child)]))


main()
