"""The part of the handler of ``HQueueHubService`` that is about subscriptions."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from hqueue import Address, HQueueError, InvalidInputError, MessageID
from hqueue.errors import QueueNotFoundError
from hqueue.metadata import check_name
from hqueue.metadata.managers import SubscriptionPreferences
from hqueue.net.audit import Audit
from hqueue.rpc.server import calling_host, calling_principal
from hqueue.rpc.services import given, load
from hqueue.settings import reserved
from hqueue.settings.limits import APPLICATION_MAX
from hqueue.settings.numbers import check_whole
from hqueue_workers.hub.authorizer import Operation
from hqueue_workers.hub.owning.queue_topics import QueueTopics
from hqueue_workers.hub.serving.answers import as_thrift, message_id_of, text_of, topic_of
from hqueue_workers.hub.serving.callers import Named, audited, calling_by
from hqueue_workers.hub.serving.managing import Managing
from hqueue_workers.hub.serving.publishing import Publishing
from hqueue_workers.hub.subscribing.client_sessions import SessionEnd, SessionKey
from hqueue_workers.hub.subscribing.subscription_session import Claimant, Delivery
from hqueue_workers.hub.subscribing.subscriptions import Subscribed, SubscribeMode, Subscriptions
from hqueue_workers.hub.writing.owned_topic import OwnedTopic
from hqueue_workers.node.networks import Networks
from hqueue_workers.node.runtime import Runtime

__all__ = ["ServedQueue", "SubscriptionService"]

WAIT_MS_MAX = 30_000
DELIVERIES_MAX = 4_096

_Result = TypeVar("_Result")


class ServedQueue(Protocol):
    """The objects of a hub for a queue, as its service needs them."""

    topics: QueueTopics
    publishing: Publishing
    managing: Managing
    subscriptions: Subscriptions


def _declared(call: Callable[..., Future[Any]]) -> Callable[..., Future[Any]]:
    """Decorate a method of the service: convert errors that it raises at once into those of the
    IDL.
    """

    @functools.wraps(call)
    def begun(*arguments: Any) -> Future[Any]:
        try:
            return call(*arguments)
        except HQueueError as exc:
            raise as_thrift(exc) from exc

    return begun


class SubscriptionService:
    """Handles the calls about subscriptions. Each call is checked before anything happens, and its
    answer is a future.

    Args:
        queues: the hub's objects for each queue, by its name.
        runtime: the hub's runtime.
        session_ms: how long a session may be silent.
        callbacks: the networks that may be called.
    """

    def __init__(
        self,
        queues: Mapping[str, ServedQueue],
        runtime: Runtime,
        session_ms: int,
        callbacks: Networks,
    ) -> None:
        self.audit = Audit()
        self._idl = load("hub")
        self._message_id = load("subscriber").TMessageID
        self._queues = queues
        self._runtime = runtime
        self._session_ms = session_ms
        self._callbacks = callbacks

    # ruff: noqa: N802, N803, PLR0917  (the IDL's)

    @audited("subscribe")
    @_declared
    def subscribe(
        self,
        queue: Any,
        subscriber: Any,
        topic: Any,
        mode: Any,
        delivery: Any,
        preferences: Any,
        redirected: Any,
    ) -> Future[Any]:
        """As the IDL has it."""
        try:
            wanted_mode = SubscribeMode(mode)
        except ValueError as exc:
            raise InvalidInputError("mode must be a TSubscribeMode", mode=mode) from exc
        reserved.check_topic(topic_of(topic))
        where, wanted = delivery_of(given(delivery)), preferences_of(given(preferences))
        if where is not None and not self._callbacks.may_have(where.address.host):
            raise InvalidInputError(
                "the hub may not call this host: see its setting callback_networks",
                host=where.address.host,
            )
        host = calling_host()
        return self._served(
            (queue, subscriber, topic, redirected),
            Operation.SUBSCRIBE,
            lambda at, owned, by: at.subscribe(owned, by, wanted_mode, where, wanted, host=host),
            self._subscribed,
            create=wanted_mode is not SubscribeMode.ATTACH,
        )

    @audited("unsubscribe")
    @_declared
    def unsubscribe(self, queue: Any, subscriber: Any, topic: Any, redirected: Any) -> Future[Any]:
        """As the IDL has it."""
        called = (queue, subscriber, topic, redirected)
        return self._served(
            called, Operation.UNSUBSCRIBE, lambda at, owned, by: at.unsubscribe(owned, by)
        )

    @_declared
    def closeSubscription(
        self, queue: Any, subscriber: Any, topic: Any, session: Any
    ) -> Future[Any]:
        """As the IDL has it."""
        at = self._queue(queue)
        on = topic_of(topic)
        name = check_name(text_of(subscriber, "subscriber"))
        of = _session_key(session)
        return self._answer(lambda: at.subscriptions.close_subscription(on, name, of))

    @audited("consume")
    @_declared
    def consume(
        self, queue: Any, subscriber: Any, topic: Any, messageID: Any, redirected: Any
    ) -> Future[Any]:
        """As the IDL has it."""
        consumed = message_id_of(messageID, "messageID")
        return self._served(
            (queue, subscriber, topic, redirected),
            Operation.CONSUME,
            lambda at, owned, by: at.consume(owned, by, int(consumed)),
        )

    @_declared
    def detached(self, queue: Any, session: Any, waitMs: Any) -> Future[Any]:
        """As the IDL has it."""
        at = self._queue(queue)
        of = _session_key(session)
        wait = check_whole(waitMs, 0, WAIT_MS_MAX, option="waitMs")
        return self._answer(lambda: at.subscriptions.detached(of, wait), self._detached_structs)

    def _queue(self, queue: Any) -> ServedQueue:
        name = text_of(queue, "queue")
        found = self._queues.get(name)
        if found is None:
            raise QueueNotFoundError("this hub does not serve that queue", queue=name[:200])
        return found

    def _served(
        self,
        called: tuple[Any, Any, Any, Any],
        operation: Operation,
        work: Callable[[Subscriptions, OwnedTopic, Claimant], Awaitable[_Result]],
        say: Callable[[_Result], Any] = lambda _: None,
        *,
        create: bool = False,
    ) -> Future[Any]:
        """Do something once this hub owns the topic, if the subscriber may do it."""
        queue, subscriber, topic, redirected = called
        at = self._queue(queue)
        by, on = calling_by(subscriber, "subscriber"), topic_of(topic)
        serving = at.topics.serve(
            by.caller, operation, on, redirected=bool(redirected), create=create
        )

        async def served() -> _Result:
            owned = await asyncio.wrap_future(serving)
            at.topics.check_allowed(by.caller, operation, owned)
            return await work(at.subscriptions, owned, _claimant(at, by, operation, on))

        return self._answer(served, say)

    def _answer(
        self,
        work: Callable[[], Awaitable[_Result]],
        say: Callable[[_Result], Any] = lambda _: None,
    ) -> Future[Any]:
        async def answer() -> Any:
            try:
                return say(await work())
            except (Exception, asyncio.CancelledError) as exc:  # Its caller must learn it.
                raise as_thrift(exc) from exc

        return self._runtime.submit(answer())

    def _subscribed(self, found: Subscribed) -> Any:
        kept = found.preferences
        at = MessageID.from_int(found.consumed)
        return self._idl.TSubscribed(
            self._message_id(at.timestamp, at.sequence),
            found.created,
            self._idl.TPreferences(
                kept.message_bound,
                kept.consume_interval,
                kept.delivery_window,
                dict(kept.application),
                kept.unanswered_calls_max,
            ),
            self._session_ms,
        )

    def _detached_structs(self, found: list[SessionEnd]) -> list[Any]:
        return [
            self._idl.TDetached(each.subscriber, each.topic, int(each.reason)) for each in found
        ]


def _claimant(at: ServedQueue, by: Named, operation: Operation, topic: str) -> Claimant:
    """Return the caller, if it may use the subscription of this name."""

    def check(owner: str | None) -> None:
        at.topics.check_name(by.principal, operation, topic, by.name, owner)

    return Claimant(by.name, by.principal, check)


def _session_key(session: Any) -> SessionKey:
    """Return the key of the caller's own session of this name."""
    return SessionKey(check_name(text_of(session, "session")), calling_principal())


def delivery_of(struct: Any) -> Delivery | None:
    # Where each field of a struct is sent, zero values are what was not given.
    if struct is None or not (struct.host or struct.port or struct.session):
        return None
    host, port = text_of(struct.host, "host"), struct.port
    check_whole(port, 1, 65_535, option="port")
    address = Address(host, port)
    if Address.parse(str(address)) != address:
        raise InvalidInputError("host is not a valid host name", host=host[:200])
    session = check_name(text_of(struct.session, "session"))
    explicit = bool(struct.explicitConsume)
    return _shared_delivery(address, session, explicit, calling_host(), calling_principal())


@functools.lru_cache(maxsize=DELIVERIES_MAX)
def _shared_delivery(
    address: Address, session: str, explicit: bool, host: str, principal: str | None
) -> Delivery:
    """Share one object among all subscriptions of a client, which has many."""
    return Delivery(address, session, explicit, host, principal)


def preferences_of(struct: Any) -> SubscriptionPreferences | None:
    if struct is None:
        return None
    if len(struct.application or ()) > APPLICATION_MAX:
        raise InvalidInputError("a subscription can't keep so many preferences of its application")
    application = {
        text_of(name, "application", 4_000): text_of(value, "application", 4_000)
        for name, value in (struct.application or {}).items()
    }
    if any(len(name) + len(value) > 1_000 for name, value in application.items()):
        raise InvalidInputError(
            "an application's preference is too long: its name and value together can have at most "
            "1000 characters"
        )
    return SubscriptionPreferences(
        struct.messageBound,
        struct.consumeInterval,
        struct.deliveryWindow,
        application,
        struct.unansweredCallsMax,
    )
