"""All subscriptions of a client of hubs, which stay attached whatever becomes of hubs."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import secrets
import threading
from collections.abc import Callable, Iterator
from typing import Any

from hqueue.errors import (
    ClosedError,
    HQueueError,
    HubUnavailableError,
    InvalidInputError,
    SubscriberConnectedError,
    SubscriberExistsError,
    SubscriberNotFoundError,
)
from hqueue.message import Message
from hqueue.message_id import MessageID
from hqueue.metadata import check_name
from hqueue.metadata.managers import SubscriptionPreferences
from hqueue.push.listener import Listener, Listeners
from hqueue.push.service import Consumption
from hqueue.rpc.accepting import host_towards
from hqueue.rpc.async_connection import AsyncConnection
from hqueue.rpc.services import load
from hqueue.runtime.alarm import needed_loop
from hqueue.runtime.backoff import Backoff
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline
from hqueue.runtime.fork import register
from hqueue.runtime.held import Held, NotHeldError
from hqueue.runtime.interrupts import is_interruption
from hqueue.runtime.logs import Log
from hqueue.runtime.loop import background, by_threads, in_thread
from hqueue.runtime.thread_pool import ThreadPool
from hqueue.runtime.waiting import Event
from hqueue.settings.addresses import PORT_MAX, Address, is_host
from hqueue.settings.kinds import check_flag
from hqueue.settings.numbers import check_whole
from hqueue.topics.calls import HubCalls
from hqueue.topics.endpoint import TIMEOUT_MS, Endpoint
from hqueue.topics.exchanges import HubMethod
from hqueue.topics.silence import share_ms
from hqueue.topics.structs import preferences_of, preferences_struct, text_of
from hqueue.topics.subscription import SubscribeMode, TopicSubscription

__all__ = ["Subscriptions"]

logger = Log(__name__)

WAIT_MS = 10_000
"""A hub answers a `detached` after so long, whether or not something was detached."""
ANSWER_MS = 10_000
"""It may take so much longer; then it is as good as dead."""
DETACHED_BYTES_MAX = 256 * 1024 * 1024
DETACHED_CONTAINERS_MAX = 1_000_000
"""Of its answer. A hub tells 100,000 at most."""
ATTACH_MS = 15_000
CLOSE_MS = 10_000
ATTACHING = 4
"""Threads that subscribe again. A topic whose hub hangs holds up one of them for a while."""
TURN_MS = 60_000.0
"""How long a topic waits for one of them, before it is put behind the others."""
RETRIES = Backoff(100.0, 5_000.0)


class Subscriptions:
    """Subscribes, keeps all subscriptions attached, and ends them. Thread-safe.

    Each hub that delivers says what it has detached, and the process's loop waits for that; a few
    threads subscribe again. A forked child has none of the parent's subscriptions, and may make its
    own.

    Args:
        calls: calls hubs.
        client: the client, which lives for as long as a subscription of it.
    """

    def __init__(self, calls: HubCalls, client: Callable[[], object | None] = lambda: None) -> None:
        self._calls = calls
        self._client = client
        self._idl = load("hub")
        self._structs = load("subscriber")
        self._attaching = ThreadPool(ATTACHING, "hqueue-subscribe")
        self.after_fork_in_child()
        register(self)

    def after_fork_in_child(self) -> None:
        self._session = secrets.token_hex(16)
        self._opening = threading.RLock()
        """Held while ports are opened and closed, and names taken with them."""
        self._lock = threading.RLock()
        """Held while it changes which hub has a subscription. The loop takes it, too."""
        self._closed = False
        self._all: dict[tuple[str, str, str], TopicSubscription] = {}
        self._listeners: dict[TopicSubscription, Listeners] = {}
        self._endpoints: dict[tuple[str, str], Endpoint] = {}
        self._attending: dict[tuple[Address, str], asyncio.Task[None] | None] = {}
        """The loop's own."""
        self._meanwhile: dict[TopicSubscription, list[tuple[Address, Any]]] = {}
        """Of each that is being attached what hubs reported of it before their answer to that was
        read, as it may have come later than the answer; None where a hub's report was lost.
        """

    @property
    def all(self) -> list[TopicSubscription]:
        """Those whose names are taken: they have begun, and have not ended."""
        return list(self._all.values())

    def subscribe(
        self,
        queue: str,
        topic: str,
        subscriber: str,
        listener: Listener,
        *,
        mode: SubscribeMode,
        preferences: SubscriptionPreferences | None,
        explicit_ack: bool,
        host: str | None,
        port: int,
        on_end: Callable[[], None] = lambda: None,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> TopicSubscription:
        """Like `HubClient.subscribe`.

        Args:
            on_end: called when it ends, by whatever thread ends it.
            is_wanted: whether the caller still wants it. Otherwise the caller closes it as soon as
                this returns.
        """
        self._calls.check_open()
        Message(topic, b"")  # Whether this can be a topic.
        check_name(subscriber)
        if mode not in [*SubscribeMode]:  # A handler's own ValueError here is its own.
            raise InvalidInputError("mode must be a SubscribeMode", mode=mode)
        mode = SubscribeMode(mode)
        if preferences is not None and not isinstance(preferences, SubscriptionPreferences):
            raise InvalidInputError(
                "preferences must be SubscriptionPreferences", type=type(preferences).__name__
            )
        check_flag(explicit_ack, "explicit_ack")
        if host is not None and not is_host(host):
            raise InvalidInputError("this is not a valid host name", option="host", host=host)
        port = check_whole(port, 0, PORT_MAX, option="port")
        listeners = Listeners(listener, TIMEOUT_MS)
        deadline = Deadline(SYSTEM_CLOCK, self._calls.settings.operation_timeout_ms)
        self._await_ending((queue, topic, subscriber), deadline)
        subscription: TopicSubscription | None = None
        try:
            with self._opening:
                endpoint = self._endpoint(queue, subscriber, host, port)
                subscription = TopicSubscription(
                    self,
                    queue,
                    topic,
                    subscriber,
                    endpoint=endpoint.address,
                    consumption=Consumption(listeners, 1, TIMEOUT_MS),
                    explicit_ack=explicit_ack,
                    on_end=on_end,
                )
                subscription.is_wanted, subscription.kept = is_wanted, self._client()
                endpoint.add(subscription)
                listeners.start()
                self._listeners[subscription] = listeners
                self._all[queue, topic, subscriber] = subscription
            self._attach(subscription, mode, preferences, deadline.remaining_ms)
            return subscription
        except BaseException:
            if subscription is None:
                self._free((queue, subscriber), None)
            else:
                self.drop(subscription)
            listeners.close()
            raise

    def unsubscribe(self, queue: str, topic: str, subscriber: str) -> None:
        """Like `HubClient.unsubscribe`."""

        def call() -> None:
            with _naming(subscriber):
                method = HubMethod("unsubscribe", (queue, subscriber, topic))
                self._calls.call(queue, topic, method)

        subscription = self._all.get((queue, topic, subscriber))
        if subscription is None:
            call()
        else:  # What the hub reports about it is known.
            self._end(subscription, call)

    def acknowledge_cumulative(
        self, subscription: TopicSubscription, message_id: MessageID
    ) -> None:
        """Move a subscription's cursor."""
        at = self._structs.TMessageID(message_id.timestamp, message_id.sequence)
        with _naming(subscription.subscriber):
            self._calls.call(
                subscription.queue,
                subscription.topic,
                HubMethod(
                    "consume", (subscription.queue, subscription.subscriber, subscription.topic, at)
                ),
                repeatable=True,
            )

    def leave(self, subscription: TopicSubscription) -> None:
        """Detach a subscription, and drop it; or, where that was begun, see that it is done."""
        leaving = subscription.leaving
        if leaving is None:
            tell = _nothing if subscription.ended else self._detach
            self._end(subscription, functools.partial(tell, subscription))
        elif not self._is_called_by(subscription):
            leaving.wait(self._calls.settings.operation_timeout_ms / 1e3)
            self.drop(subscription)

    def _await_ending(self, key: tuple[str, str, str], deadline: Deadline) -> None:
        """Wait for a subscription that is ending to free its name."""
        before = self._all.get(key)
        if before is None or (before.is_wanted() and not before.ended):
            return
        if not self._is_called_by(before):
            before.freed.wait(deadline.remaining_ms / 1e3)

    def _is_called_by(self, subscription: TopicSubscription) -> bool:
        listeners = self._listeners.get(subscription)
        return listeners is not None and listeners.is_caller()

    def _end(self, subscription: TopicSubscription, tell: Callable[[], None]) -> None:
        """End a subscription, notify its hub, and drop it. A hub waits for the listener's call that
        is under way: in that one, the hub is notified after it.
        """
        before, done = subscription.leaving, Event()

        def end() -> None:
            try:
                tell()
            finally:
                self.drop(subscription)
                done.set()

        def end_behind() -> None:
            if before is not None:
                before.wait(self._calls.settings.operation_timeout_ms / 1e3)
            try:
                end()
            except HQueueError as exc:
                text = "a subscription to %r was not ended, though its listener asked for it: %s"
                logger.warning(text, subscription.topic, exc)

        if self._is_called_by(subscription):
            subscription.leaving = done  # Before anybody sees that it ended.
        subscription.end(None)
        listeners = self._listeners.get(subscription)
        if listeners is None or not listeners.leave_behind(end_behind):
            end()

    def leave_behind(self, work: Callable[[], object]) -> bool:
        """Like `Listeners.leave_behind`, of any of these."""
        return any(each.leave_behind(work) for each in list(self._listeners.values()))

    def _detach(self, subscription: TopicSubscription) -> None:
        try:
            with Held(subscription.attaching, ATTACH_MS / 1e3):
                self._detach_now(subscription)
        except NotHeldError:  # The hub may have it, though the answer has not come.
            self._detach_now(subscription)

    def _detach_now(self, subscription: TopicSubscription) -> None:
        """Have the hub detach a subscription, if one is known to have it."""
        hub = subscription.hub
        if hub is None:
            return
        try:
            self._calls.call_one(
                hub,
                subscription.queue,
                subscription.topic,
                HubMethod(
                    "closeSubscription",
                    (
                        subscription.queue,
                        subscription.subscriber,
                        subscription.topic,
                        self._session,
                    ),
                ),
                Deadline(SYSTEM_CLOCK, CLOSE_MS),
            )
        except Exception as exc:  # The hub detaches it by itself, when the session is over.
            if is_interruption(exc):
                raise
            logger.info(
                "a subscription to %r was not closed at its hub, which closes it when the "
                "session ends: %s",
                subscription.topic,
                exc,
            )

    def close(self) -> None:
        """Close all subscriptions; also once more, if that was interrupted."""
        with self._opening:
            self._closed = True
        for each in self.all:
            each.close()
        loop = background()
        if loop is not None:
            loop.call(self._attend_no_more)
        self._attaching.shutdown(wait=False)
        for name, endpoint in list(self._endpoints.items()):
            endpoint.close(TIMEOUT_MS)
            self._endpoints.pop(name, None)

    def _attend_no_more(self) -> None:
        for task in self._attending.values():
            if task is not None:
                task.cancel()

    def _endpoint(self, queue: str, subscriber: str, host: str | None, port: int) -> Endpoint:
        """Where a name's messages come. `_opening` is held until it has the topic: without one it
        is closed.
        """
        if self._closed:
            raise ClosedError("the client was closed")
        endpoint = self._endpoints.get((queue, subscriber))
        if endpoint is None:
            endpoint = Endpoint(host or _host_towards(self._calls.settings.hubs), port)
            self._endpoints[queue, subscriber] = endpoint
            endpoint.start()
        return endpoint

    def drop(self, subscription: TopicSubscription) -> None:
        """Free what it has here; also once more, if that was interrupted."""
        self._free((subscription.queue, subscription.subscriber), subscription)
        listeners = self._listeners.get(subscription)
        if listeners is not None:
            listeners.close()
            self._listeners.pop(subscription, None)

    def _free(self, name: tuple[str, str], subscription: TopicSubscription | None) -> None:
        """Let a subscription be made again, and its port be taken, if that has no other topic. A
        call under way is not waited for: it may be this thread's.
        """
        with self._opening:  # The port is free when the name is.
            endpoint = self._endpoints.get(name)
            if endpoint is not None and endpoint.remove(subscription) and not self._closed:
                endpoint.close(0)
                del self._endpoints[name]
            if subscription is not None:
                key = subscription.queue, subscription.topic, subscription.subscriber
                if self._all.get(key) is subscription:
                    del self._all[key]
        if subscription is not None:
            subscription.freed.set()

    def _attach(
        self,
        subscription: TopicSubscription,
        mode: SubscribeMode,
        preferences: SubscriptionPreferences | None,
        timeout_ms: float | None = None,
    ) -> None:
        """Subscribe; the hub is attended from then on."""
        idl, loop = self._idl, needed_loop()
        wanted = None if preferences is None else preferences_struct(preferences)
        at = subscription.endpoint
        delivery = idl.TDelivery(at.host, at.port, self._session, subscription.explicit_ack)
        with self._lock:
            self._meanwhile[subscription] = []
        try:
            with _naming(subscription.subscriber):
                answer, hub = self._calls.call(
                    subscription.queue,
                    subscription.topic,
                    HubMethod(
                        "subscribe",
                        (
                            subscription.queue,
                            subscription.subscriber,
                            subscription.topic,
                            int(mode),
                            delivery,
                            wanted,
                        ),
                    ),
                    timeout_ms=timeout_ms,
                    repeatable=mode is not SubscribeMode.CREATE,
                )
            subscription.cursor = MessageID(answer.consumed.timestamp, answer.consumed.sequenceID)
            subscription.preferences = preferences_of(answer.preferences)
        except BaseException:
            with self._lock:
                del self._meanwhile[subscription]
            raise
        with self._lock:
            subscription.hub = hub
            meanwhile = self._meanwhile.pop(subscription)
        loop.start(self._attend, hub, subscription.queue)
        for each in [detached for at, detached in meanwhile if at == hub]:
            self._take_in(subscription, hub, each)

    async def _attend(self, hub: Address, queue: str) -> None:
        """Ask a hub what it detached, until it delivers nothing to this client."""
        if (hub, queue) in self._attending:
            return
        self._attending[hub, queue] = asyncio.current_task()
        opening_s = self._calls.settings.connect_timeout_ms / 1e3
        connection = AsyncConnection(
            hub, DETACHED_BYTES_MAX, DETACHED_CONTAINERS_MAX, connect_timeout_s=opening_s
        )
        try:
            while not self._closed and any(each.hub == hub for each in self._of(queue)):
                detached = await self._ask_detached(connection, hub, queue)
                for subscription, each in self._heard(hub, queue, detached):
                    self._take_in(subscription, hub, each)
        finally:
            connection.close()
            del self._attending[hub, queue]

    def _of(self, queue: str) -> list[TopicSubscription]:
        return [each for each in self.all if each.queue == queue]

    async def _ask_detached(
        self, by: AsyncConnection, hub: Address, queue: str
    ) -> list[Any] | None:
        """What a hub has detached; None if that is not known."""
        service, bound_ms = self._idl.HQueueHubService, WAIT_MS + ANSWER_MS
        call = by.call_method(
            service, "detached", queue, self._session, WAIT_MS, timeout_s=bound_ms / 1e3
        )
        asking = asyncio.ensure_future(call)
        try:
            await self._await(asking, hub, share_ms(bound_ms))
            detached: list[Any] = asking.result()
        except asyncio.CancelledError:
            raise
        except BaseException as exc:  # Whatever it is, they are attached again.
            if isinstance(exc, TimeoutError):
                self._calls.silent.note(hub)
            return None
        finally:
            asking.cancel()
            await asyncio.wait([asking])  # The connection is free for the next call.
        return detached

    async def _await(self, asking: asyncio.Future[Any], hub: Address, silence_ms: float) -> None:
        """Wait for a hub's report, and check now and then whether it answers at all."""
        bound_ms = silence_ms
        while not (await asyncio.wait([asking], timeout=silence_ms / 1e3))[0]:
            await self._calls.check.in_loop(hub, bound_ms)
            silence_ms *= 2

    def _heard(
        self, hub: Address, queue: str, detached: list[Any] | None
    ) -> list[tuple[TopicSubscription, Any]]:
        """The reports by subscription: of all of a queue's if it is not known what the hub
        reported.
        """
        heard: list[tuple[TopicSubscription, Any]] = []
        if detached is None:
            heard += [(each, None) for each in self._of(queue)]
        for each in detached or ():
            named = self._all.get((queue, text_of(each.topic), text_of(each.subscriber)))
            heard += [(named, each)] if named is not None else []
        with self._lock:
            for subscription, each in heard:
                self._meanwhile.get(subscription, []).append((hub, each))
        return heard

    def _take_in(self, subscription: TopicSubscription, hub: Address, detached: Any) -> None:
        """Take in that a hub detached a subscription, or may have if its report was lost."""
        loop, reasons = needed_loop(), self._idl.TDetachedReason
        with self._lock:
            if subscription.hub != hub:
                return
            subscription.hub = None
        topic, subscriber = subscription.topic, subscription.subscriber
        failure: HQueueError | None = None
        if detached is not None and detached.reason == reasons.REPLACED:
            text = "another client has subscribed under this subscriber's name"
            failure = SubscriberConnectedError(text, topic=topic, subscriber=subscriber)
        elif detached is not None and detached.reason == reasons.UNSUBSCRIBED:
            text = "the subscription was deleted"
            failure = SubscriberNotFoundError(text, topic=topic, subscriber=subscriber)
        loop.start(self._go_on, subscription, failure)

    async def _go_on(self, subscription: TopicSubscription, failure: HQueueError | None) -> None:
        """End a subscription, if it failed, or else attach it again; until that is done, or this is
        closed.
        """
        for pause_ms in RETRIES.pauses():
            try:
                if failure is not None:
                    await in_thread(self._lose, subscription, failure)
                else:
                    again = functools.partial(self._attach_again, subscription)
                    await by_threads(self._attaching, TURN_MS, again)
                return
            except asyncio.CancelledError:
                raise
            except BaseException as exc:
                logger.info("can't subscribe to %r again now: %s", subscription.topic, exc)
            await asyncio.sleep(pause_ms / 1e3)
            if self._closed:
                return

    def _attach_again(self, subscription: TopicSubscription) -> None:
        """Attach it, unless it has ended, or ends by this.

        Raises:
            HubUnavailableError: it can't be attached now.
        """
        try:
            with subscription.attaching:
                if not subscription.ended:
                    self._attach(subscription, SubscribeMode.ATTACH, None, ATTACH_MS)
        except HubUnavailableError:
            raise
        except HQueueError as exc:
            self._lose(subscription, exc)

    def _lose(self, subscription: TopicSubscription, failure: HQueueError) -> None:
        self._free((subscription.queue, subscription.subscriber), subscription)
        subscription.end(failure)  # Who waits for that may subscribe again at once.
        self.drop(subscription)


def _nothing(subscription: TopicSubscription) -> None:
    """There is nothing to tell the hub."""


def _host_towards(hubs: tuple[Address, ...]) -> str:
    """The address of this host from which it reaches a hub."""
    for hub in hubs:
        with contextlib.suppress(OSError):
            return host_towards(*hub)
    raise InvalidInputError(
        "no hub's host name can be resolved: give the host at which hubs reach this process",
        host=None,
    )


@contextlib.contextmanager
def _naming(subscriber: str) -> Iterator[None]:
    """Has a hub's answer about a subscription name the subscriber, too."""
    try:
        yield
    except (SubscriberExistsError, SubscriberNotFoundError) as exc:
        exc.facts["subscriber"] = subscriber
        raise
