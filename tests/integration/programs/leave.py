"""A process that ends with messages still in its producer's buffer: ``leave.py <queue> <how>``.

`how` is ``end`` or ``error``: the script runs to its end, or an exception ends it.
"""

from __future__ import annotations

import sys

import hqueue
from hqueue import Message

queue = hqueue.connect().queue(sys.argv[1])
producer = queue.producer(linger_ms=60_000)
for number in range(2_000):
    producer.send(Message("t", b"0:%d" % number), partition=number % 2)
if sys.argv[2] == "error":
    sys.exit(3)
