"""The calls for a whole queue that both faces of a client make, as work."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from hqueue.errors import InvalidInputError
from hqueue.message import Message, encoded_key
from hqueue.message_id import MessageID, MessageIDs
from hqueue.position import Position, as_message_id
from hqueue.produce.idempotency import SINCE_WITHOUT_KEY, key_bytes
from hqueue.rpc.messages import InTurns
from hqueue.runtime.loop import computing, is_much
from hqueue.runtime.memory import uncollected
from hqueue.runtime.steps import Work
from hqueue.runtime.stepwise import Stepwise, stepwise
from hqueue.settings.kinds import listed
from hqueue.settings.limits import PARTITIONS_MAX
from hqueue.settings.numbers import check_whole
from hqueue.settings.reserved import check_topic
from hqueue.topics.api_calls import ApiCalls
from hqueue.topics.exchanges import HubMethod
from hqueue.topics.structs import check_sent, freed, message_struct

__all__ = ["QueueRequests"]

MINTED_KEY_BYTES = 16

Messages = Message | Sequence[Message] | Iterator[Message]


class QueueRequests(Stepwise):
    """Checks arguments, calls the Thrift API and reads its answers, for one queue: as `HubQueue`
    says.

    Args:
        name: the queue.
        calls: calls the API.
    """

    def __init__(self, name: str, calls: ApiCalls) -> None:
        self.name = name
        self.calls = calls

    @stepwise
    def partitions(self) -> Work[Any, int]:
        """Like `HubQueue.partitions`."""
        method = HubMethod("getQueueLocations", (self.name,), only_reads=True)
        found, _ = yield self.calls.call.asked(self.name, method)
        return len(found)

    @stepwise
    def put(
        self,
        messages: Messages,
        partition: int | None,
        key: str | bytes | None,
        idempotency_key: str | bytes | None,
        since: Position | None,
    ) -> Work[Any, MessageID | MessageIDs]:
        """Like `HubQueue.put`."""
        batch = [messages] if isinstance(messages, Message) else listed(messages, "messages")
        make = partial(_structs, batch)
        structs = (yield computing(uncollected(make))) if is_much(len(batch), lambda: 0) else make()
        if partition is not None:
            if key is not None:
                raise InvalidInputError("give a partition or a key, not both")
            partition = check_whole(partition, 0, PARTITIONS_MAX - 1, option="partition")
        put = self.calls.idl.TPut(
            queueName=self.name,
            messages=InTurns(structs),
            partitionID=partition,
            key=None if key is None else encoded_key(key),
            since=None if since is None else self.id_struct(int(as_message_id(since))),
        )
        deadline = self.calls.deadline()
        if idempotency_key is not None:
            put.idempotencyKey = key_bytes(idempotency_key)
        elif since is not None:
            raise InvalidInputError(SINCE_WITHOUT_KEY)
        else:
            # A hub knows the put again when it is repeated because its answer was lost.
            put.idempotencyKey = os.urandom(MINTED_KEY_BYTES)
            put.since = yield from self.calls.position(self.name, deadline)
            if partition is None and key is None and all(each.key is None for each in structs):
                put.key = put.idempotencyKey  # It chooses the same partition each time.
        method = HubMethod("put", (put,), structs)
        answer, _ = yield self.calls.call.asked(self.name, method, deadline)
        yield from freed(structs)
        first = MessageID(answer.firstID.timestamp, answer.firstID.sequenceID)
        return first if isinstance(messages, Message) else MessageIDs(int(first), answer.count)

    def id_struct(self, at: int) -> Any:
        """An ID as the IDL has it."""
        found = MessageID.from_int(at)
        return self.calls.idl.subscriber.TMessageID(found.timestamp, found.sequence)


def _structs(batch: Sequence[Message]) -> list[Any]:
    if not batch or not all(isinstance(each, Message) for each in batch):
        raise InvalidInputError("put takes a Message, or a sequence of at least one")
    check_sent(batch)
    for each in batch:
        check_topic(each.topic)
    return [message_struct(each, each.topic.encode()) for each in batch]
