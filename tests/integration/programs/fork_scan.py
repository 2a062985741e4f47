"""A process whose forked child reads its open scan to the end first: ``fork_scan.py <queue>``.

Prints how many messages the parent read.
"""

from __future__ import annotations

import os
import sys

import hqueue


def main() -> None:
    queue = hqueue.connect().queue(sys.argv[1])
    scanner = queue.scan(partition=0, bytes_max=1_000)
    read = [m.value for _, m in zip(range(50), scanner, strict=False)]
    child = os.fork()
    if not child:
        rest = [m.value for _, m in zip(range(250), scanner, strict=False)]
        os._exit(0 if len(rest) == 250 else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, "the child did not read the rest"
    read += [m.value for m in scanner]
    assert read == sorted(set(read))
    print(len(read))


main()
