"""Calls of strangers to a hub's port."""

from __future__ import annotations

import asyncio
import functools
import socket
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from hypothesis import strategies as st
from thriftpy2.protocol import TBinaryProtocol
from thriftpy2.thrift import TClient
from thriftpy2.transport import TMemoryBuffer

from hqueue import Address, Message, MessageID, TopicACL
from hqueue.message import Headers
from hqueue.metadata.managers import HubInfo, SubscriptionPreferences, Verdict
from hqueue.rpc.server import ThriftServer
from hqueue.rpc.services import load
from hqueue_workers.hub.authorizer import Operation
from hqueue_workers.hub.metrics import HubMetrics
from hqueue_workers.hub.serving.callers import Named
from hqueue_workers.hub.serving.service import HubService, hub_service
from hqueue_workers.hub.serving.subscription_service import ServedQueue
from hqueue_workers.hub.subscribing.client_sessions import SessionEnd, SessionEndReason
from hqueue_workers.hub.subscribing.subscription_session import Claimant, Delivery
from hqueue_workers.hub.subscribing.subscriptions import Subscribed, SubscribeMode
from hqueue_workers.hub.writing.owned_topic import OwnedTopic, Published, PublishSequence
from hqueue_workers.hub.writing.sequence_numbers import LastMessage
from hqueue_workers.node.networks import Networks
from hqueue_workers.node.runtime import Runtime
from tests.support.extras import headers, keys

from .ports import ANSWER_S_MAX, CALL_BYTES_MAX, Bytes, call_as_stranger, nearly
from .target import Target

__all__ = ["TARGETS"]

PENDING_BYTES_MAX = 1024 * 1024
VERDICT = Verdict(HubInfo(Address("hub", 1), "a"), 0, won=True)


class _QueueTopics:
    """Publishes to nowhere, and sees that what comes is what may be published."""

    queue = "q"

    def serve(
        self, caller: str, topic: str, *, redirected: bool, create: bool
    ) -> Future[OwnedTopic]:
        assert 1 <= len(caller) <= 200
        assert 1 <= len(topic.encode()) <= 255
        done: Future[OwnedTopic] = Future()
        done.set_result(OwnedTopic(topic, 0, 0, VERDICT, 0.0))
        return done

    def check_allowed(self, caller: str, operation: Operation, owned: OwnedTopic) -> None:
        assert operation in (Operation.SUBSCRIBE, Operation.CONSUME, Operation.UNSUBSCRIBE)

    def check_name(
        self, principal: str | None, operation: Operation, topic: str, name: str, owner: str | None
    ) -> None:
        assert principal is None
        assert 1 <= len(name) <= 200

    def publish(
        self,
        by: Named,
        topic: str,
        messages: Sequence[Message],
        size: int,
        *,
        redirected: bool,
        sequence: PublishSequence | None,
    ) -> Future[Published]:
        assert 1 <= len(by.caller) <= 200
        if sequence is not None:
            assert 0 <= sequence.first < 2**63
            assert 0 <= sequence.since < 2**63
            done: Future[Published] = Future()
            done.set_result(Published(MessageID(9, 9), 3, len(messages), 0, MessageID(9, 9)))
            return done
        assert messages
        assert all(type(each) is Message and each.topic == topic for each in messages)
        assert size == sum(each.size for each in messages)
        done = Future()
        done.set_result(Published(MessageID(9, 9), 3, len(messages)))
        return done

    def last_message(
        self, by: Named, topic: str, since: int, *, redirected: bool
    ) -> Future[LastMessage | None]:
        assert 0 <= since < 2**63
        assert 1 <= len(topic.encode()) <= 255
        done: Future[LastMessage | None] = Future()
        done.set_result(LastMessage(3, 3))
        return done


class _Managing:
    """Moves nothing, and sees that what comes is a hub's address."""

    def move(self, caller: str, topic: str, to: Address, *, redirected: bool) -> Future[None]:
        assert 1 <= to.port <= 65_535
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def delete(self, caller: str, topic: str, *, redirected: bool) -> Future[bool]:
        assert 1 <= len(caller) <= 200
        done: Future[bool] = Future()
        done.set_result(True)
        return done

    def change_acl(
        self, caller: str, topic: str, given: Mapping[str, tuple[str, ...]], *, redirected: bool
    ) -> Future[TopicACL]:
        done: Future[TopicACL] = Future()
        done.set_result(TopicACL(**given))
        return done


class _Subscriptions:
    """Subscribes to nothing, and sees that what comes is what may be."""

    async def subscribe(
        self,
        owned: OwnedTopic,
        by: Claimant,
        mode: SubscribeMode,
        delivery: Delivery | None,
        preferences: SubscriptionPreferences | None,
        *,
        host: str,
    ) -> Subscribed:
        assert isinstance(mode, SubscribeMode)
        by.check(None)
        assert delivery is None or 1 <= delivery.address.port <= 65_535
        return Subscribed(7, True, preferences or SubscriptionPreferences())

    async def unsubscribe(self, owned: OwnedTopic, by: Claimant) -> None:
        assert 1 <= len(by.name) <= 200

    async def close_subscription(self, topic: str, by: Claimant, session: str) -> None:
        assert 1 <= len(session) <= 200

    async def consume(self, owned: OwnedTopic, by: Claimant, message_id: int) -> None:
        assert 0 <= message_id < 2**63

    async def detached(self, session: str, wait_ms: int) -> list[SessionEnd]:
        assert 0 <= wait_ms <= 30_000
        return [SessionEnd("t", "s", SessionEndReason.REPLACED)]


class _Queue:
    """What the hub has of its queue."""

    def __init__(self) -> None:
        self.topics: Any = _QueueTopics()
        self.publishing: Any = self.topics
        self.managing: Any = _Managing()
        self.subscriptions: Any = _Subscriptions()


@functools.cache
def _loop() -> Runtime:
    """What the hub delivers on: a loop in a thread, which lives as long as the process."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()

    async def made() -> Runtime:
        return Runtime(1)

    return asyncio.run_coroutine_threadsafe(made(), loop).result(ANSWER_S_MAX)


def _other_call(method: str, mode: int, port: int, text: str, number: int) -> bytes:
    """A call of the other methods, as their arguments are named."""
    idl, structs = load("hub"), load("subscriber")
    given = {
        "mode": mode,
        "delivery": idl.TDelivery("h", port, text, True),
        "preferences": idl.TPreferences(number, number, number, {text: text}),
        "messageID": structs.TMessageID(number, 1),
        "session": text,
        "since": structs.TMessageID(number, min(port, 32_767)),
        "number": number,
        "publisher": text,
        "caller": text,
        "rules": idl.TTopicAccess(publish=[text] * max(0, mode), manage=[text, "*"]),
        "host": text,
        "port": port,
        "messages": [structs.TMessage(topic=b"", value=text.encode())],
        "waitMs": number,
        "queue": "q",
        "subscriber": "s",
        "topic": "t",
        "redirected": False,
    }
    sent = TMemoryBuffer()
    service = load("hub").HQueueHubService
    named = [each[1] for each in getattr(service, f"{method}_args").thrift_spec.values()]
    client = TClient(service, TBinaryProtocol(sent))
    client._send(method, **{name: given[name] for name in named})
    call: bytes = sent.getvalue()
    return call


def _own_call(given: Sequence[tuple[bytes, bytes | None, Headers]]) -> bytes:
    structs = load("subscriber")
    messages = [
        structs.TMessage(
            topic=b"",
            value=value,
            key=key,
            headers=[structs.THeader(name.encode(), data) for name, data in found],
        )
        for value, key, found in given
    ]
    sent = TMemoryBuffer()
    client = TClient(load("hub").HQueueHubService, TBinaryProtocol(sent))
    client._send(
        "publishMessages",
        queue="q",
        publisher="me",
        topic="t",
        messages=messages,
        redirected=False,
    )
    call: bytes = sent.getvalue()
    return call


class _Hub:
    """A hub's port, and a caller of it that is as it should be."""

    def __init__(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.address = listener.getsockname()
        queue: ServedQueue = _Queue()
        self.service = HubService(
            {"q": queue},
            HubMetrics(dict, lambda: 0),
            PENDING_BYTES_MAX,
            runtime=_loop(),
            session_ms=60_000,
            callbacks=Networks("any"),
        )
        ThriftServer(
            hub_service(),
            self.service,
            listener,
            threads=2,
            connections_max=16,
            call_bytes_max=CALL_BYTES_MAX,
            idle_ms_max=1_000,
        ).start()
        self._call = _own_call([(b"v", None, ())])
        self._caller = self.connect()

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=ANSWER_S_MAX)

    def answer(self) -> None:
        """See that the caller is answered, and that nothing is left waiting."""
        self._caller.sendall(self._call)
        answer = self._caller.recv(200)
        assert answer.startswith(b"\x80\x01\x00\x02"), answer
        assert self.service.pending_bytes == 0


@functools.cache
def _hub() -> _Hub:
    return _Hub()


def _publish(given: Bytes) -> None:
    call_as_stranger(_hub(), given)


own_calls = st.lists(st.tuples(st.binary(max_size=50), keys, headers), max_size=4).map(_own_call)

other_calls = st.builds(
    _other_call,
    st.sampled_from(
        [
            "subscribe",
            "unsubscribe",
            "closeSubscription",
            "consume",
            "detached",
            "publishOnce",
            "newestNumber",
            "moveTopic",
            "deleteTopic",
            "changeAccess",
        ]
    ),
    st.integers(-1, 3),
    st.integers(-1, 70_000),
    st.text(max_size=20),
    st.integers(-1, 2**31 - 1),
)

TARGETS: list[Target[Any]] = [
    Target("hub", nearly(own_calls | other_calls, b"publishMessages"), _publish)
]
