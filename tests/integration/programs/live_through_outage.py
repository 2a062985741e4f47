"""Sends messages and consumes them, without an end: ``live_through_outage.py QUEUE``.

Says that it is ready when the first was consumed, and writes how many were each time that one was.
It configures no logging: what is seen on stderr is what Python shows to every plain program.
"""

from __future__ import annotations

import sys
import threading
import time

import hqueue
from hqueue import Message


def produce(queue: hqueue.Queue) -> None:
    with queue.producer() as producer:
        while True:
            producer.send(Message("t", b"value"))
            time.sleep(0.05)


def main() -> None:
    client = hqueue.connect()
    threading.Thread(target=produce, args=[client.queue(sys.argv[1])], daemon=True).start()
    count = 0
    with hqueue.Consumer(group="g") as consumer:
        consumer.subscribe(sys.argv[1])
        while True:
            try:
                consumed = len(consumer.poll(500))
            except hqueue.HQueueError:
                continue
            if consumed:
                count += consumed
                print("ready" if count == consumed else count, flush=True)


main()
