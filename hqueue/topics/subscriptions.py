"""All subscriptions of a client of hubs, which stay attached whatever becomes of hubs."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from hqueue.errors import (
    ClosedError,
    HQueueError,
    HubUnavailableError,
    InvalidInputError,
    SubscriberConnectedError,
    SubscriberNotFoundError,
)
from hqueue.message import Message
from hqueue.message_id import MessageID
from hqueue.metadata import check_name
from hqueue.metadata.managers import SubscriptionPreferences
from hqueue.push.listener import Listener, Listeners
from hqueue.push.service import Consumption
from hqueue.rpc.services import load
from hqueue.runtime.backoff import Backoff
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline
from hqueue.runtime.fork import register
from hqueue.runtime.held import Held, NotHeldError
from hqueue.runtime.interrupts import is_interruption
from hqueue.runtime.threads import start, try_start
from hqueue.runtime.waiting import Condition
from hqueue.settings.addresses import PORT_MAX, Address, is_host
from hqueue.settings.kinds import check_flag
from hqueue.settings.numbers import check_whole
from hqueue.topics.calls import HubCalls
from hqueue.topics.endpoint import TIMEOUT_MS, Endpoint
from hqueue.topics.structs import preferences_of, preferences_struct, text_of
from hqueue.topics.subscription import SubscribeMode, TopicSubscription

__all__ = ["Subscriptions"]

logger = logging.getLogger(__name__)

WAIT_MS = 10_000
"""A hub answers a `detached` after so long, whether or not something was detached."""
ANSWER_MS = 10_000
"""It may take so much longer; then it is as good as dead."""
ATTACH_MS = 15_000
CLOSE_MS = 10_000
ATTACHING = 4
"""Threads that subscribe again. A topic whose hub hangs holds up one of them for a while."""
RETRIES = Backoff(100.0, 5_000.0)


class Subscriptions:
    """Subscribes, keeps all subscriptions attached, and ends them. Thread-safe.

    One thread for each hub that delivers waits to be told what was detached there; a few subscribe
    again. A forked child has none of the parent's subscriptions, and may make its own.

    Args:
        calls: calls hubs.
        client: the client, which lives for as long as a subscription of it.
    """

    def __init__(self, calls: HubCalls, client: Callable[[], object | None] = lambda: None) -> None:
        self._calls = calls
        self._client = client
        self._idl = load("hub")
        self._structs = load("subscriber")
        self.after_fork_in_child()
        register(self)

    def after_fork_in_child(self) -> None:
        self._session = secrets.token_hex(16)
        self._lock = threading.RLock()
        self._changed = Condition(self._lock)
        self._closed = False
        self._all: dict[tuple[str, str, str], TopicSubscription] = {}
        self._listeners: dict[TopicSubscription, Listeners] = {}
        self._endpoints: dict[tuple[str, str], Endpoint] = {}
        self._attending: dict[tuple[Address, str], threading.Thread] = {}
        self._meanwhile: dict[TopicSubscription, list[tuple[Address, Any]]] = {}
        """Of each that is being attached what hubs told of it before their answer to that was read,
        as it may have come later than the answer; None where what a hub told was lost.
        """
        self._due: list[tuple[float, int, Iterator[float], TopicSubscription]] = []
        """When which one is attached again, and the pauses if that fails."""
        self._order = itertools.count()
        self._attaching: list[threading.Thread] = []

    def subscribe(
        self,
        queue: str,
        topic: str,
        subscriber: str,
        listener: Listener,
        *,
        mode: SubscribeMode,
        preferences: SubscriptionPreferences | None,
        explicit_consume: bool,
        host: str | None,
        port: int,
        on_end: Callable[[], None] = lambda: None,
    ) -> TopicSubscription:
        """As `HubClient.subscribe`.

        Args:
            on_end: called when it ends, by whatever thread ends it.
        """
        self._calls.check_open()
        Message(topic, b"")  # Whether this can be a topic.
        check_name(subscriber)
        try:
            mode = SubscribeMode(mode)
        except ValueError as exc:
            raise InvalidInputError("this is no SubscribeMode", mode=mode) from exc
        if preferences is not None and not isinstance(preferences, SubscriptionPreferences):
            raise InvalidInputError(
                "preferences are SubscriptionPreferences", type=type(preferences).__name__
            )
        check_flag(explicit_consume, "explicit_consume")
        if host is not None and not is_host(host):
            raise InvalidInputError("this can be no host's name", option="host", host=host)
        port = check_whole(port, 0, PORT_MAX, option="port")
        listeners = Listeners(listener, TIMEOUT_MS)
        subscription: TopicSubscription | None = None
        try:
            with self._lock:
                endpoint = self._endpoint(queue, subscriber, host, port)
                subscription = TopicSubscription(
                    self,
                    queue,
                    topic,
                    subscriber,
                    endpoint=endpoint.address,
                    consumption=Consumption(listeners, 1, TIMEOUT_MS),
                    explicit_consume=explicit_consume,
                    on_end=on_end,
                )
                subscription.kept = self._client()
                endpoint.add(subscription)
                listeners.start()
                self._listeners[subscription] = listeners
                self._all[queue, topic, subscriber] = subscription
            self._attach(subscription, mode, preferences)
            return subscription
        except BaseException:
            self._undo((queue, subscriber), subscription)
            _close(listeners)
            raise

    def unsubscribe(self, queue: str, topic: str, subscriber: str) -> None:
        """As `HubClient.unsubscribe`."""
        with self._lock:
            subscription = self._all.get((queue, topic, subscriber))
        if subscription is not None:
            subscription.end(None)  # What the hub tells of it is known.
        try:
            self._calls.call(
                queue, topic, lambda hub, to: hub.unsubscribe(queue, subscriber, topic, to)
            )
        finally:
            if subscription is not None:
                self.forget(subscription)

    def consume(self, subscription: TopicSubscription, message_id: MessageID) -> None:
        """Move a subscription's mark."""
        at = self._structs.TMessageID(message_id.timestamp, message_id.sequence)
        self._calls.call(
            subscription.queue,
            subscription.topic,
            lambda hub, to: hub.consume(
                subscription.queue, subscription.subscriber, subscription.topic, at, to
            ),
            repeatable=True,
        )

    def leave(self, subscription: TopicSubscription) -> None:
        """Detach a subscription."""
        subscription.end(None)
        try:
            with Held(subscription.attaching, ATTACH_MS / 1e3):
                self._detach(subscription)
        except NotHeldError:  # The hub may have it, though the answer has not come.
            self._detach(subscription)
        finally:
            self.forget(subscription)

    def _detach(self, subscription: TopicSubscription) -> None:
        """Have the hub detach a subscription, if one is known to have it."""
        hub = subscription.hub
        if hub is None:
            return
        try:
            self._calls.call_one(
                hub,
                subscription.queue,
                subscription.topic,
                lambda client: client.closeSubscription(
                    subscription.queue,
                    subscription.subscriber,
                    subscription.topic,
                    self._session,
                ),
                Deadline(SYSTEM_CLOCK, CLOSE_MS),
            )
        except Exception as exc:  # The hub detaches it by itself, when the session is over.
            if is_interruption(exc):
                raise
            logger.info("a subscription to %r was not closed: %s", subscription.topic, exc)

    def close(self) -> None:
        """Close all subscriptions."""
        with self._lock:
            self._closed = True
            left = list(self._all.values())
            self._changed.notify_all()
        for each in left:
            each.close()
        with self._lock:
            endpoints, self._endpoints = list(self._endpoints.values()), {}
            attending = dict(self._attending)
            threads = [*self._attaching, *attending.values()]
        for hub, queue in attending:
            with contextlib.suppress(Exception):  # A hub that does not answer is waited for below.
                self._told(hub, queue, 0, CLOSE_MS)  # Ends the call that waits.
        for endpoint in endpoints:
            endpoint.close(TIMEOUT_MS)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join((WAIT_MS + ANSWER_MS) / 1e3)

    def _endpoint(self, queue: str, subscriber: str, host: str | None, port: int) -> Endpoint:
        """Where a name's messages come. Under the lock until it has the topic: without one it is
        closed.
        """
        if self._closed:
            raise ClosedError("the client was closed")
        endpoint = self._endpoints.get((queue, subscriber))
        if endpoint is None:
            endpoint = Endpoint(host or _host_towards(self._calls.settings.hubs), port)
            self._endpoints[queue, subscriber] = endpoint
            endpoint.start()
        return endpoint

    def _undo(self, name: tuple[str, str], subscription: TopicSubscription | None) -> None:
        """Let go what was made for a subscription that does not come to be, however far it came."""
        if subscription is not None:
            self.forget(subscription)
            return
        with self._lock:
            self._free_endpoint(name, None)

    def forget(self, subscription: TopicSubscription) -> None:
        """Free what it has here; also once more, if that was interrupted."""
        listeners = self._free(subscription)
        _close(listeners)
        with self._lock:
            self._listeners.pop(subscription, None)

    def _free(self, subscription: TopicSubscription) -> Listeners | None:
        """Let its name be taken again, and its port, if that has no other topic; what is to be
        closed.
        """
        key = subscription.queue, subscription.topic, subscription.subscriber
        with self._lock:
            self._free_endpoint((subscription.queue, subscription.subscriber), subscription)
            if self._all.get(key) is subscription:
                del self._all[key]
            return self._listeners.get(subscription)

    def _free_endpoint(self, name: tuple[str, str], subscription: TopicSubscription | None) -> None:
        """The lock is held, so that the port is free when the name is. A call under way is not
        waited for: it may be this thread's.
        """
        endpoint = self._endpoints.get(name)
        if endpoint is not None and endpoint.remove(subscription) and not self._closed:
            endpoint.close(0)
            del self._endpoints[name]

    def _attach(
        self,
        subscription: TopicSubscription,
        mode: SubscribeMode,
        preferences: SubscriptionPreferences | None,
        timeout_ms: float | None = None,
    ) -> None:
        """Subscribe; the hub is attended from then on."""
        idl = self._idl
        wanted = None if preferences is None else preferences_struct(preferences)
        at = subscription.endpoint
        delivery = idl.TDelivery(at.host, at.port, self._session, subscription.explicit_consume)
        with self._lock:
            self._meanwhile[subscription] = []
        try:
            answer, hub = self._calls.call(
                subscription.queue,
                subscription.topic,
                lambda client, to: client.subscribe(
                    subscription.queue,
                    subscription.subscriber,
                    subscription.topic,
                    int(mode),
                    delivery,
                    wanted,
                    to,
                ),
                timeout_ms=timeout_ms,
                repeatable=mode is not SubscribeMode.CREATE,
            )
            subscription.consumed = MessageID(answer.consumed.timestamp, answer.consumed.sequenceID)
            subscription.preferences = preferences_of(answer.preferences)
        except BaseException:
            with self._lock:
                del self._meanwhile[subscription]
            raise
        with self._lock:
            subscription.hub = hub
            meanwhile = self._meanwhile.pop(subscription)
            self._attend(hub, subscription.queue)
        for each in [told for at, told in meanwhile if at == hub]:
            self._take_in(subscription, hub, each)

    def _attend(self, hub: Address, queue: str) -> None:
        if (hub, queue) not in self._attending and not self._closed:
            # It begins when the lock is free.
            self._attending[hub, queue] = start(self._attend_to, hub, queue, name="hqueue-attend")

    def _attend_to(self, hub: Address, queue: str) -> None:
        """Be told by a hub what it detached, until it delivers nothing to this client."""
        this = threading.current_thread()
        with self._lock:
            # An interrupted caller left it to enter itself; another may have come before.
            if self._attending.setdefault((hub, queue), this) is not this:
                return
        while True:
            with self._lock:
                here = any(s.hub == hub and s.queue == queue for s in self._all.values())
                if not here or self._closed:
                    del self._attending[hub, queue]
                    return
            told: list[Any] | None = None
            with contextlib.suppress(Exception):  # Whatever it is, they are attached again.
                told = self._told(hub, queue, WAIT_MS, WAIT_MS + ANSWER_MS)
            with self._lock:
                heard = self._heard(hub, queue, told)
            for subscription, each in heard:
                self._take_in(subscription, hub, each)

    def _heard(
        self, hub: Address, queue: str, told: list[Any] | None
    ) -> list[tuple[TopicSubscription, Any]]:
        """What was heard of which subscription: of all of a queue if it is not known what was
        told. The lock is held.
        """
        if told is None:
            heard = [(each, None) for each in self._all.values() if each.queue == queue]
        else:
            named = [(self._named(queue, each), each) for each in told]
            heard = [(s, each) for s, each in named if s is not None]
        for subscription, each in heard:
            if subscription in self._meanwhile:
                self._meanwhile[subscription].append((hub, each))
        return heard

    def _told(self, hub: Address, queue: str, wait_ms: int, timeout_ms: float) -> list[Any]:
        """What a hub has detached."""
        told: list[Any] = self._calls.call_one(
            hub,
            queue,
            "",
            lambda client: client.detached(queue, self._session, wait_ms),
            Deadline(SYSTEM_CLOCK, timeout_ms),
        )
        return told

    def _named(self, queue: str, told: Any) -> TopicSubscription | None:
        return self._all.get((queue, text_of(told.topic), text_of(told.subscriber)))

    def _take_in(self, subscription: TopicSubscription, hub: Address, told: Any) -> None:
        """Take in that a hub detached a subscription, or may have if what it told was lost."""
        if subscription.hub != hub:
            return
        topic, subscriber = subscription.topic, subscription.subscriber
        reasons = self._idl.TDetachedReason
        reason = None if told is None else told.reason
        if reason == reasons.REPLACED:
            self._lost(
                subscription,
                SubscriberConnectedError(
                    "another client has subscribed under the name",
                    topic=topic,
                    subscriber=subscriber,
                ),
            )
        elif reason == reasons.UNSUBSCRIBED:
            self._lost(
                subscription,
                SubscriberNotFoundError(
                    "the subscription was ended", topic=topic, subscriber=subscriber
                ),
            )
        else:
            self._attach_again(hub, subscription)

    def _lost(self, subscription: TopicSubscription, failure: HQueueError) -> None:
        listeners = self._free(subscription)
        subscription.end(failure)  # Who waits for that may subscribe again at once.
        _close(listeners)
        with self._lock:
            self._listeners.pop(subscription, None)

    def _attach_again(self, hub: Address, subscription: TopicSubscription) -> None:
        now_s = time.monotonic()
        with self._lock:
            if subscription.hub != hub:
                return
            subscription.hub = None
            heapq.heappush(self._due, (now_s, next(self._order), RETRIES.pauses(), subscription))
            self._start_attaching()
            self._changed.notify()

    def _start_attaching(self) -> None:
        """The lock is held."""
        while self._due and len(self._attaching) < ATTACHING and not self._closed:
            thread = try_start(self._run_attaching, name="hqueue-subscribe")
            if thread is None:  # Those that there are do it, or one that is started later.
                return
            self._attaching.append(thread)

    def _await_due(self) -> None:
        """The lock is held."""
        while not self._closed:
            wait_s = self._due[0][0] - time.monotonic() if self._due else None
            if wait_s is not None and wait_s <= 0:
                return
            self._changed.wait(wait_s)

    def _run_attaching(self) -> None:
        while True:
            with self._lock:
                self._await_due()
                if self._closed:
                    return
                _, _, pauses, subscription = heapq.heappop(self._due)
            try:
                with subscription.attaching:
                    if not subscription.ended:
                        self._attach(subscription, SubscribeMode.ATTACH, None, ATTACH_MS)
            except HubUnavailableError as exc:
                logger.info("can't subscribe to %r again now: %s", subscription.topic, exc)
                with self._lock:
                    due_s = time.monotonic() + next(pauses) / 1e3
                    heapq.heappush(self._due, (due_s, next(self._order), pauses, subscription))
            except HQueueError as exc:
                self._lost(subscription, exc)


def _close(listeners: Listeners | None) -> None:
    if listeners is not None and not listeners.is_own_thread():
        listeners.close()


def _host_towards(hubs: tuple[Address, ...]) -> str:
    """The address of this host from which it reaches a hub."""
    for hub in hubs:
        with contextlib.suppress(OSError):
            family, kind, _, _, to = socket.getaddrinfo(hub.host, hub.port, type=socket.SOCK_DGRAM)[
                0
            ]
            with socket.socket(family, kind) as probe:
                probe.connect(to)
                return str(probe.getsockname()[0])
    raise InvalidInputError("no hub's host is known: say where hubs reach this process", host=None)
