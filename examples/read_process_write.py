"""Read a queue as one of a group, and put what comes of each message into another queue, once.

python examples/read_process_write.py orders invoices billing

Any number of these may run, and each may die or stand still at any point:

* What `poll` gives is a cut of a partition. What comes of it is put as one batch, whose key names
  the place where the cut begins. Then the place where it ends is committed; the next cut begins
  there. So cuts begin only where the group has committed.
* Who comes after one that died begins where the group is, with the same key. If that batch was put
  already, the queue finds it and puts nothing.
* The cut before may have had another length. Then its key stands for other messages: the queue
  refuses the put, and says how many it has. So the cut is taken again, with as many results.
* One that stood still, and whose partitions others have now, puts under the same keys: that adds
  nothing. Its commit is refused, and it begins again where the group is.

It takes a `process` that makes the same of the same message each time, and a target that keeps its
messages for as long as one may wait to be processed: else the queue refuses a put that could be a
second one.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import NamedTuple

import hqueue
from hqueue import (
    CommitFailedError,
    Consumer,
    IdempotencyKeyReusedError,
    Message,
    MessageID,
    PartitionKey,
    Queue,
    ReceivedMessage,
)

RESULTS_MAX = 10_000
BYTES_MAX = 4 * 1024 * 1024
"""Of the results of a cut, unless those of one message are more."""


def process(message: ReceivedMessage) -> list[Message]:
    """What comes of a message: nothing, one message or several."""
    return [Message(message.topic, message.value.upper(), message.key, message.headers)]


class Cut(NamedTuple):
    """Messages of a partition that follow one another, and what comes of them."""

    first: MessageID
    end: MessageID
    results: list[Message]


def cut(messages: Iterable[ReceivedMessage], results_max: int, bytes_max: float) -> Cut:
    """The first of these messages, and those after it whose results go with its own."""
    taken: list[ReceivedMessage] = []
    results: list[Message] = []
    size = 0
    for message in messages:
        more = process(message)
        size += sum(result.size for result in more)
        if taken and (len(results) + len(more) > results_max or size > bytes_max):
            break
        taken.append(message)
        results += more
    return Cut(taken[0].id, taken[-1].id.next(), results)


class Pipeline:
    """Brings one queue into another, as one of a group. The consumer commits nothing by itself."""

    def __init__(self, consumer: Consumer, source: Queue, target: Queue) -> None:
        self._consumer, self._source, self._target = consumer, source, target
        # The group has put nothing before that: the target is searched from there on.
        self._since = target.claim_epoch(f"{consumer.group}.{source.name}")
        self._begins: dict[int, MessageID] = {}
        consumer.subscribe(source.name, on_assigned=self._begin)

    def _begin(self, partitions: list[PartitionKey]) -> None:
        for each in partitions:
            self._begins[each.partition] = self._consumer.position(each)

    def run(self, idle_ms: int, messages_max: int) -> None:
        """Bring over what comes, until nothing comes for so long."""
        while messages := self._consumer.poll(idle_ms, messages_max):
            key = PartitionKey(self._source.name, messages[0].partition)
            while messages:
                end = self._bring(key.partition, cut(messages, RESULTS_MAX, BYTES_MAX))
                self._consumer.commit({key: end})
                self._begins[key.partition] = end
                if end > messages[-1].id.next():
                    self._consumer.seek(key, end)
                messages = [message for message in messages if message.id >= end]

    def _bring(self, partition: int, taken: Cut) -> MessageID:
        """Put the results of a cut, unless they were put before; where it ends, or ended then."""
        try:
            self._put(partition, taken)
        except IdempotencyKeyReusedError as other:
            begin = self._begins[partition]
            with self._source.scan(partition=partition, start=begin) as messages:
                taken = cut(messages, other.count_before, float("inf"))
            self._put(partition, taken)
        return taken.end

    def _put(self, partition: int, taken: Cut) -> None:
        if taken.results:
            begin = self._begins[partition]
            ids = self._target.put(
                taken.results,
                partition=partition % self._target.partitions,
                idempotency_key=f"{self._consumer.group} {self._source.name} {partition} {begin}",
                since=max(self._since, taken.first),
            )
            print(f"partition {partition}: {len(ids)} results from {ids[0]} on", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Process each message of a queue once.")
    parser.add_argument("source", help="the queue that is read; it must be there")
    parser.add_argument("target", help="the queue for what comes of it; it must be there")
    parser.add_argument("group", help="letters, digits, '_', '-' and '.'")
    parser.add_argument("--idle-ms", type=int, default=20_000, help="end after so long a silence")
    parser.add_argument("--cut", type=int, default=500, help="so many messages at a time")
    arguments = parser.parse_args()

    with hqueue.connect() as client:
        source, target = client.queue(arguments.source), client.queue(arguments.target)
        while True:
            try:
                with Consumer(group=arguments.group, client=client, auto_commit=False) as consumer:
                    Pipeline(consumer, source, target).run(arguments.idle_ms, arguments.cut)
                return
            except CommitFailedError:
                print("others have what it had: beginning again", flush=True)


if __name__ == "__main__":
    main()
