"""Messages with and without keys and headers, and how rows show them."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Row

import hqueue
from hqueue import Message

__all__ = ["Fields", "by_key", "by_partition", "fields_of_row", "fill"]

Fields = tuple[str, bytes, bytes | None, tuple[tuple[str, bytes], ...]]
"""The topic, value, key and headers of a message."""

KEYS = (None, b"k", b"", "ü".encode(), b"\xff\x00")
HEADERS = (
    (),
    (("n", b"v"),),
    (("n", b"2"), ("", b"\xff"), ("n", b""), ("n", b"2")),
    (("ü\N{GRINNING FACE}", b""),),
)


def numbered_message(number: int) -> Message:
    """Of twenty that follow each other, each has another key and other headers."""
    return Message(f"t{number % 3}", b"%d" % number, KEYS[number % 5], HEADERS[number % 4])


def fill(queue: hqueue.Queue, messages: int, first: int = 0) -> None:
    """Put numbered messages where their keys belong; and before them some that have neither keys
    nor headers, so that there are batches of both formats in each partition.
    """
    for partition in range(queue.partitions):
        queue.put(
            [Message("plain", b"%d:%d" % (partition, n)) for n in range(3)], partition=partition
        )
    with queue.producer() as producer:
        for number in range(first, first + messages):
            message = numbered_message(number)
            producer.send(
                message, partition=number % queue.partitions if message.key is None else None
            )


def fields_of(message: Message) -> Fields:
    return message.topic, message.value, message.key, message.headers


def fields_of_row(row: Row) -> Fields:
    """What a row has; null is nothing, and no row has an empty list of headers."""
    assert row.headers is None or row.headers
    return (
        row.topic,
        bytes(row.value),
        None if row.key is None else bytes(row.key),
        tuple((header.key, bytes(header.value)) for header in row.headers or ()),
    )


def by_partition(queue: hqueue.Queue) -> dict[int, list[Fields]]:
    """What a queue has, in order."""
    return {
        partition: [fields_of(message) for message in queue.scan(partition=partition)]
        for partition in range(queue.partitions)
    }


def by_key(messages: Iterable[Fields]) -> dict[bytes, list[Fields]]:
    """The messages of each key, in order."""
    found: dict[bytes, list[Fields]] = {}
    for message in messages:
        if message[2] is not None:
            found.setdefault(message[2], []).append(message)
    return found
