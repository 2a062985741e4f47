"""Messages with a key and two headers, beside confluent-kafka's and beside values alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import pyarrow as pa

from hqueue import Messages
from hqueue.format.arrow import HEADERS
from hqueue.typing import Headers

from ..measure import Comparison, compare, rate
from .confluent import Confluent
from .library import A_BATCH, Keyed, batches
from .ours import TOPIC, HQueue

__all__ = ["COLUMNS", "MESSAGES", "keyed_reads", "keyed_writes"]

MESSAGES = "hqueue, Message"
COLUMNS = "hqueue, Arrow"
KEYS = 1_000
"""So many keys differ."""
GOALS = {MESSAGES: 1.0, COLUMNS: 2.0}
GOAL_ALONE = 0.5
"""With a value of 100 bytes, key and headers are two thirds as many bytes again."""


def _columns(batch: Keyed) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "topic": pa.repeat(TOPIC, len(batch.values)),
            "value": pa.array(batch.values, pa.binary()),
            "key": pa.array(batch.keys, pa.binary()),
            "headers": pa.array(batch.headers, HEADERS),
        }
    )


def keyed_batches(values: Sequence[bytes]) -> list[Keyed]:
    """These values with a key and two headers each, in batches."""
    keys = [b"customer-%05d" % number for number in range(KEYS)]
    headers: list[Headers] = [
        (("trace-id", number.to_bytes(16, "big")), ("content-type", b"application/json"))
        for number in range(KEYS)
    ]
    turns = itertools.cycle(range(KEYS))
    found = []
    for batch in batches(values, A_BATCH):
        numbers = list(itertools.islice(turns, len(batch)))
        chosen = [headers[number] for number in numbers]
        found.append(Keyed(batch, [keys[number] for number in numbers], chosen))
    return found


def keyed_writes(
    ours: HQueue, theirs: Confluent, values: Sequence[bytes], rounds: int, title: str
) -> Iterator[Comparison]:
    """Write messages with a key and two headers, each batch to the next partition."""
    keyed = keyed_batches(values)
    columns = [_columns(batch) for batch in keyed]
    alone = [batch.select(["topic", "value"]) for batch in columns]
    log, topic = ours.fresh(), theirs.fresh()
    try:
        runs: dict[str, Callable[[], float]] = {
            MESSAGES: rate(lambda: log.put_prepared(Messages(TOPIC, *batch) for batch in keyed)),
            COLUMNS: rate(lambda: log.put_prepared(columns)),
            theirs.name: rate(lambda: topic.put_keyed(keyed)),
            f"{MESSAGES}, values alone": rate(
                lambda: log.put_prepared(Messages(TOPIC, batch.values) for batch in keyed)
            ),
            f"{COLUMNS}, values alone": rate(lambda: log.put_prepared(alone)),
        }
        yield from _comparisons(f"write, {title}", runs, theirs.name, rounds)
    finally:
        log.close()
        topic.close()


def keyed_reads(
    ours: HQueue, theirs: Confluent, values: Sequence[bytes], rounds: int, title: str
) -> Iterator[Comparison]:
    """Read them from the oldest on; value, key and headers are looked at."""
    keyed = keyed_batches(values)
    count = len(values)
    log, plain, topic = ours.fresh(), ours.fresh(), theirs.fresh()
    try:
        log.put_prepared(Messages(TOPIC, *batch) for batch in keyed)
        plain.put_prepared(Messages(TOPIC, batch.values) for batch in keyed)
        topic.put_keyed(keyed)
        runs: dict[str, Callable[[], float]] = {
            MESSAGES: rate(partial(log.read_keyed, count)),
            COLUMNS: rate(partial(log.read_columns, count)),
            theirs.name: rate(partial(topic.read_keyed, count)),
            f"{MESSAGES}, values alone": rate(partial(plain.read, count)),
            f"{COLUMNS}, values alone": rate(partial(plain.read_columns, count)),
        }
        yield from _comparisons(f"read, {title}", runs, theirs.name, rounds)
    finally:
        for each in (log, plain, topic):
            each.close()


def _comparisons(
    title: str, runs: Mapping[str, Callable[[], float]], rival: str, rounds: int
) -> Iterator[Comparison]:
    figures = compare(runs, rounds)
    for contender, goal in GOALS.items():
        alone = f"{contender}, values alone"
        for other, least in ((rival, goal), (alone, GOAL_ALONE)):
            yield Comparison(
                title, contender, other, "msg/s", figures[contender], figures[other], least
            )
