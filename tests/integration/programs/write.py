"""A process that writes: ``write.py <queue> <writer> <batches> <how> <partitions…>``.

`how` is ``put``, ``any`` or ``producer``. The values of a writer are ``writer:0``, ``writer:1``, …
It says ``ready``, waits for a line, and prints each message once it is acknowledged: partition (or
-1), ID, value.
"""

from __future__ import annotations

import random
import sys

import hqueue
from hqueue import Message


def main() -> None:
    name, writer, batches, how, *partitions = sys.argv[1:]
    choices = [int(partition) for partition in partitions]
    chance = random.Random(writer)
    acknowledged: list[str] = []
    number = 0
    with hqueue.connect() as client:
        queue = client.queue(name)
        print("ready", flush=True)
        sys.stdin.readline()
        producer = queue.producer(linger_ms=1) if how == "producer" else None
        sent = []
        for _ in range(int(batches)):
            size = chance.choice((1, 1, 3, 20))
            messages = [
                Message(chance.choice("ab"), f"{writer}:{number + n}".encode()) for n in range(size)
            ]
            number += size
            partition = None if how == "any" else chance.choice(choices)
            if producer is not None:
                sent += [
                    (partition, producer.send(message, partition=partition), message)
                    for message in messages
                ]
            else:
                for message_id, message in zip(
                    queue.put(messages, partition=partition), messages, strict=True
                ):
                    place = -1 if partition is None else partition
                    acknowledged.append(f"{place} {int(message_id)} {message.value.decode()}")
        if producer is not None:
            producer.close()
        for partition, delivery, message in sent:
            message_id = delivery.result(0)
            acknowledged.append(f"{partition} {int(message_id)} {message.value.decode()}")
    print("\n".join(acknowledged), flush=True)


main()
