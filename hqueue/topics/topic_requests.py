"""The calls for one topic that both faces of a client make, as work."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from hqueue.errors import InvalidInputError
from hqueue.message import Message, topic_bytes
from hqueue.message_id import MessageID, MessageIDs, check_message_id
from hqueue.metadata.managers import TopicACL
from hqueue.rpc.messages import InTurns
from hqueue.runtime.loop import computing, is_much
from hqueue.runtime.memory import uncollected
from hqueue.runtime.steps import Work
from hqueue.runtime.stepwise import Stepwise, stepwise
from hqueue.settings.addresses import Address
from hqueue.settings.numbers import check_whole
from hqueue.settings.reserved import check_topic
from hqueue.topics.calls import HubCalls
from hqueue.topics.exchanges import HubMethod
from hqueue.topics.idempotent import (
    SEQUENCE_NUMBER_MAX,
    IdempotentPublisher,
    IdempotentPublishResult,
)
from hqueue.topics.structs import acl_of, acl_struct, freed, message_structs
from hqueue.watching.observers import OBSERVERS, publishing

__all__ = ["TopicRequests"]

Messages = Sequence[bytes | bytearray | memoryview | Message]


class TopicRequests(Stepwise):
    """Checks arguments, calls hubs and reads their answers, for one topic: as `HubTopic` says.

    Args:
        name: the topic.
        queue: its queue.
        calls: calls hubs.
        idempotent: the client's idempotent publisher.
    """

    def __init__(
        self, name: str, queue: str, calls: HubCalls, idempotent: IdempotentPublisher
    ) -> None:
        topic_bytes(name)
        check_topic(name)
        self.name = name
        self.queue = queue
        self._calls = calls
        self._idempotent = idempotent

    @stepwise
    def publish_many(self, messages: Messages) -> Work[Any, MessageIDs]:
        """Like `HubTopic.publish_many`."""
        if OBSERVERS:
            return (yield from publishing(self.queue, self.name, messages, self._publish_many))
        return (yield from self._publish_many(messages))

    def _publish_many(self, messages: Messages) -> Work[Any, MessageIDs]:
        sent = yield from self._structs(messages)
        given = self.queue, self._calls.settings.publisher, self.name
        method = HubMethod("publishMessages", (*given, InTurns(sent)), sent)
        if len(sent) == 1:
            method = HubMethod("publish", (*given, sent[0]), sent)
        published, _ = yield from self._calls.call.steps(self.queue, self.name, method)
        first = MessageID(published.id.timestamp, published.id.sequenceID)
        ids = MessageIDs(int(first), len(sent))
        yield from freed(sent)
        return ids

    @stepwise
    def publish_idempotent(
        self, messages: Messages, sequence_number: int, since: MessageID | None
    ) -> Work[Any, IdempotentPublishResult]:
        """Like `HubTopic.publish_idempotent`."""

        def publish(given: Messages) -> Work[Any, IdempotentPublishResult]:
            return self._publish_idempotent(given, sequence_number, since)

        if OBSERVERS:
            return (yield from publishing(self.queue, self.name, messages, publish))
        return (yield from publish(messages))

    def _publish_idempotent(
        self, messages: Messages, sequence_number: int, since: MessageID | None
    ) -> Work[Any, IdempotentPublishResult]:
        sent = yield from self._structs(messages)
        first = check_whole(
            sequence_number, 0, SEQUENCE_NUMBER_MAX - len(sent), option="sequence_number"
        )
        if since is not None:
            check_message_id(since, "since")
        done = yield from self._idempotent.publish(self.queue, self.name, sent, first, since)
        yield from freed(sent)
        return done

    @stepwise
    def last_sequence_number(self, since: MessageID | None) -> Work[Any, int | None]:
        """Like `HubTopic.last_sequence_number`."""
        if since is not None:
            check_message_id(since, "since")
        return (yield from self._idempotent.last_sequence_number(self.queue, self.name, since))

    @stepwise
    def move(self, to: str | Address) -> Work[Any, None]:
        """Like `HubTopic.move`."""
        at = to if isinstance(to, Address) else Address.parse(to)
        yield from self._change("moveTopic", at.host, at.port)

    @stepwise
    def delete(self) -> Work[Any, bool]:
        """Like `HubTopic.delete`."""
        return bool((yield from self._change("deleteTopic")))

    @stepwise
    def acl(self) -> Work[Any, TopicACL]:
        """Like `HubTopic.acl`."""
        return acl_of((yield from self._change("changeAccess", acl_struct(), only_reads=True)))

    @stepwise
    def set_acl(
        self,
        publish: Sequence[str] | None,
        subscribe: Sequence[str] | None,
        manage: Sequence[str] | None,
    ) -> Work[Any, TopicACL]:
        """Like `HubTopic.set_acl`."""
        if publish is None and subscribe is None and manage is None:
            raise InvalidInputError("give at least one list of names: publish, subscribe or manage")
        given = acl_struct(publish=publish, subscribe=subscribe, manage=manage)
        return acl_of((yield from self._change("changeAccess", given)))

    def _do(self, step: Any) -> object:
        return self._calls._do(step)

    async def _do_in_loop(self, step: Any) -> object:
        return await self._calls._do_in_loop(step)

    def _structs(self, messages: Messages) -> Work[Any, list[Any]]:
        make = partial(message_structs, self.name, messages)
        is_beside = isinstance(messages, Sequence) and is_much(len(messages), lambda: 0)
        sent: list[Any] = (yield computing(uncollected(make))) if is_beside else make()
        return sent

    def _change(self, method: str, *how: object, only_reads: bool = False) -> Work[Any, Any]:
        """Call a method that concerns the topic as a whole, and can be called again."""
        queue, topic, caller = self.queue, self.name, self._calls.settings.publisher
        made = HubMethod(method, (queue, caller, topic, *how), only_reads=only_reads)
        answer, _ = yield from self._calls.call.steps(queue, topic, made, repeatable=True)
        return answer
