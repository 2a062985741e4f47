"""All subscriptions of a client of hubs: how they begin and end."""

from __future__ import annotations

import abc
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol, TypeVar

from hqueue.errors import ClosedError, HQueueError, InvalidInputError
from hqueue.message import Message
from hqueue.message_id import MessageID
from hqueue.metadata import check_name
from hqueue.metadata.managers import SubscriptionPreferences
from hqueue.push.listener import Listener
from hqueue.rpc.accepting import host_towards, numeric_host
from hqueue.rpc.services import load
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline
from hqueue.runtime.fork import register
from hqueue.runtime.interrupts import is_interruption
from hqueue.runtime.logs import Log
from hqueue.runtime.sockets import looking_up
from hqueue.runtime.steps import Wait, Work
from hqueue.runtime.stepwise import Stepwise, stepwise
from hqueue.settings.addresses import PORT_MAX, Address, is_host
from hqueue.settings.kinds import check_flag
from hqueue.settings.numbers import check_whole
from hqueue.topics.calls import HubCalls
from hqueue.topics.delivering_hubs import Background, DeliveringHubs
from hqueue.topics.endpoint import TIMEOUT_MS
from hqueue.topics.exchanges import HubMethod
from hqueue.topics.structs import naming
from hqueue.topics.subscription_state import Event, SubscribeMode, SubscriptionState

__all__ = ["EndpointFace", "ListenersFace", "Subscriptions"]

logger = Log(__name__)

Result = TypeVar("Result")
Tell = Callable[[], Work[Any, None]]


class EndpointFace(Protocol):
    """Where hubs deliver the messages of one subscriber's topics."""

    address: Address

    def start(self) -> None: ...

    def add(self, subscription: Any) -> None: ...

    def remove(self, subscription: Any) -> bool: ...

    def close(self, drain_ms: float) -> None: ...


class ListenersFace(Protocol):
    """The listener of one subscription."""

    def start(self) -> None: ...

    def is_caller(self) -> bool: ...

    def leave_behind(self, work: Callable[[], Any]) -> bool: ...

    def close(self) -> None: ...


class Subscriptions(Stepwise, abc.ABC):
    """Subscribes, keeps all subscriptions attached, and ends them. A forked child has none of the
    parent's subscriptions, and may make its own.

    What differs between threads and an event loop is left to `ThreadSubscriptions` and
    `hqueue.aio`'s: where messages are received, how listeners are called, and who works in the
    background.

    Args:
        calls: calls hubs.
        client: the client, which lives for as long as a subscription of it.
    """

    def __init__(self, calls: HubCalls, client: Callable[[], object | None] = lambda: None) -> None:
        self._calls = calls
        self._client = client
        self._structs = load("subscriber")
        self.hubs = DeliveringHubs(calls, lambda: self.all, self._background, self._lose)
        self.after_fork_in_child()
        register(self)

    def after_fork_in_child(self) -> None:
        self._opening = threading.RLock()
        """Held while ports are opened and closed, and names taken with them."""
        self._closed = False
        self._all: dict[tuple[str, str, str], SubscriptionState] = {}
        self._listeners: dict[SubscriptionState, ListenersFace] = {}
        self._endpoints: dict[tuple[str, str], EndpointFace] = {}

    # What the faces say.

    @abc.abstractmethod
    def _background(self) -> Background:
        """The event loop of the work in the background."""

    @abc.abstractmethod
    def _make_endpoint(self, host: str, port: int, at: str | None) -> EndpointFace:
        """A port for a subscriber's name.

        Raises:
            InvalidInputError: it can't be listened there.
        """

    @abc.abstractmethod
    def _make_listeners(self, listener: Listener, subscriber: str) -> ListenersFace:
        """What calls a listener.

        Raises:
            InvalidInputError: it is not a listener.
        """

    @abc.abstractmethod
    def _make_subscription(
        self, name: tuple[str, str, str], listeners: Any, **options: Any
    ) -> SubscriptionState:
        """A subscription whose messages go to listeners."""

    @abc.abstractmethod
    def _event(self) -> Event:
        """A flag."""

    @abc.abstractmethod
    def _wait_for(self, event: Any, bound_ms: float) -> Wait:
        """Waits until a flag is set, no longer than the bound."""

    @abc.abstractmethod
    def _end_later(self, *ending: Any) -> Callable[[], Any]:
        """What a listener leaves behind: `_end_behind`."""

    @abc.abstractmethod
    async def _lose(self, subscription: SubscriptionState, failure: HQueueError) -> None:
        """End a subscription that failed. In the background."""

    @abc.abstractmethod
    def go_on(self, work: Work[Any, Result]) -> Awaitable[Result]:
        """Carry out work that only waits, for a caller in an event loop. It goes on when that
        caller is cancelled.
        """

    @property
    def all(self) -> list[Any]:
        """Those whose names are taken: they have begun, and have not ended."""
        return list(self._all.values())

    @stepwise
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
        made: list[SubscriptionState] | None = None,
    ) -> Work[Any, Any]:
        """Like `HubTopic.subscribe`.

        Args:
            on_end: called when it ends, by whatever thread ends it.
            is_wanted: whether the caller still wants it. Otherwise the caller closes it as soon as
                this returns.
            made: the subscription is added here when it is made.
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
        listeners = self._make_listeners(listener, subscriber)
        deadline = Deadline(SYSTEM_CLOCK, self._calls.settings.operation_timeout_ms)
        name = queue, topic, subscriber
        yield from self._await_ending(name, deadline)
        at: str | None = None
        if (queue, subscriber) not in self._endpoints:
            host = host or (yield from self._own_host.steps())
            at = yield looking_up(host, partial(numeric_host, host, port))
        if not is_wanted():
            raise ClosedError("the subscription was closed before it began: subscribe again")
        subscription: SubscriptionState | None = None
        try:
            with self._opening:
                endpoint = self._endpoint(queue, subscriber, host, port, at)
                subscription = self._make_subscription(
                    name,
                    listeners,
                    endpoint=endpoint.address,
                    explicit_ack=explicit_ack,
                    on_end=on_end,
                )
                if made is not None:
                    made.append(subscription)
                subscription.is_wanted, subscription.kept = is_wanted, self._client()
                endpoint.add(subscription)
                listeners.start()
                self._listeners[subscription] = listeners
                self._all[name] = subscription
            timeout_ms = deadline.remaining_ms
            yield from self.hubs.attach.steps(subscription, mode, preferences, timeout_ms)
            return subscription
        except BaseException:
            if subscription is None:
                self._free((queue, subscriber), None)
            else:
                self.drop(subscription)
            listeners.close()
            raise

    @stepwise
    def unsubscribe(self, queue: str, topic: str, subscriber: str) -> Work[Any, None]:
        """Like `HubTopic.unsubscribe`."""

        def tell() -> Work[Any, None]:
            method = HubMethod("unsubscribe", (queue, subscriber, topic))
            with naming(subscriber):
                yield self._calls.call.asked(queue, topic, method)

        subscription = self._all.get((queue, topic, subscriber))
        if subscription is None:
            yield from tell()
        else:  # What the hub reports about it is known.
            yield from self._end(subscription, tell)

    @stepwise
    def acknowledge_cumulative(
        self, subscription: SubscriptionState, message_id: MessageID
    ) -> Work[Any, None]:
        """Move a subscription's cursor."""
        at = self._structs.TMessageID(message_id.timestamp, message_id.sequence)
        queue, topic = subscription.queue, subscription.topic
        method = HubMethod("consume", (queue, subscription.subscriber, topic, at))
        with naming(subscription.subscriber):
            yield self._calls.call.asked(queue, topic, method, repeatable=True)

    @stepwise
    def leave(self, subscription: SubscriptionState) -> Work[Any, None]:
        """Detach a subscription, and drop it; or, where that was begun, see that it is done."""
        leaving = subscription.leaving
        if leaving is None:
            detach = partial(self.hubs.detach.steps, subscription)
            yield from self._end(subscription, _nothing if subscription.ended else detach)
        elif not self._is_called_by(subscription):
            yield self._wait_for(leaving, self._calls.settings.operation_timeout_ms)
            self.drop(subscription)

    def leave_behind(self, work: Callable[[], object]) -> bool:
        """Like `Listeners.leave_behind`, of any of these."""
        return any(each.leave_behind(work) for each in list(self._listeners.values()))

    @stepwise
    def close(self) -> Work[Any, None]:
        """Close all subscriptions; also once more, if that was interrupted."""
        with self._opening:
            self._closed = True
        for each in self.all:
            yield from self.leave.steps(each)
        for name, endpoint in list(self._endpoints.items()):
            endpoint.close(TIMEOUT_MS)
            self._endpoints.pop(name, None)

    def drop(self, subscription: SubscriptionState) -> None:
        """Free what it has here; also once more, if that was interrupted."""
        self._free((subscription.queue, subscription.subscriber), subscription)
        listeners = self._listeners.get(subscription)
        if listeners is not None:
            listeners.close()
            self._listeners.pop(subscription, None)

    def lose(self, subscription: SubscriptionState, failure: HQueueError) -> None:
        """End a subscription that failed."""
        self._free((subscription.queue, subscription.subscriber), subscription)
        subscription.end(failure)  # Who waits for that may subscribe again at once.
        self.drop(subscription)

    def _await_ending(self, name: tuple[str, str, str], deadline: Deadline) -> Work[Any, None]:
        """Wait for a subscription that is ending to free its name."""
        before = self._all.get(name)
        if before is None or (before.is_wanted() and not before.ended):
            return
        if not self._is_called_by(before):
            yield self._wait_for(before.freed, deadline.remaining_ms)

    def _is_called_by(self, subscription: SubscriptionState) -> bool:
        listeners = self._listeners.get(subscription)
        return listeners is not None and listeners.is_caller()

    def _end(self, subscription: SubscriptionState, tell: Tell) -> Work[Any, None]:
        """End a subscription, notify its hub, and drop it. A hub waits for the listener's call that
        is under way: in that one, the hub is notified after it.
        """
        before, done = subscription.leaving, self._event()
        if self._is_called_by(subscription):
            subscription.leaving = done  # Before anybody sees that it ended.
        subscription.end(None)
        listeners = self._listeners.get(subscription)
        later = self._end_later(subscription, tell, before, done)
        if listeners is None or not listeners.leave_behind(later):
            yield from self._finish(subscription, tell, done)

    def _finish(self, subscription: SubscriptionState, tell: Tell, done: Event) -> Work[Any, None]:
        try:
            yield from tell()
        finally:
            self.drop(subscription)
            done.set()

    @stepwise
    def _end_behind(
        self, subscription: SubscriptionState, tell: Tell, before: Event | None, done: Event
    ) -> Work[Any, None]:
        """End a subscription as its listener has asked for, when the listener has returned."""
        if before is not None:
            yield self._wait_for(before, self._calls.settings.operation_timeout_ms)
        try:
            yield from self._finish(subscription, tell, done)
        except HQueueError as exc:
            text = "a subscription to %r was not ended, though its listener asked for it: %s"
            logger.warning(text, subscription.topic, exc)

    def _endpoint(
        self, queue: str, subscriber: str, host: str | None, port: int, at: str | None
    ) -> EndpointFace:
        """Where a name's messages come. `_opening` is held until it has the topic: without one it
        is closed.
        """
        if self._closed:
            raise ClosedError("the client was closed")
        endpoint = self._endpoints.get((queue, subscriber))
        if endpoint is None:
            # Another thread may have closed it just now.
            endpoint = self._make_endpoint(host or self._own_host(), port, at)
            self._endpoints[queue, subscriber] = endpoint
            endpoint.start()
        return endpoint

    @stepwise
    def _own_host(self) -> Work[Any, str]:
        """The address of this machine from which it reaches a hub."""
        hubs = self._calls.settings.hubs
        for hub in hubs:
            try:
                host: str = yield looking_up(hub.host, partial(host_towards, *hub))
            except OSError as exc:
                if is_interruption(exc):
                    raise
                failure = exc
            else:
                return host
        raise InvalidInputError(
            "this machine's address can't be found, because no hub's host name can be resolved: "
            "check the hubs' names, or give the host at which hubs reach this process",
            hubs=[*map(str, hubs)],
            reason=str(failure),
        ) from failure

    def _free(self, name: tuple[str, str], subscription: SubscriptionState | None) -> None:
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


def _nothing() -> Work[Any, None]:
    """There is nothing to tell the hub."""
    yield from ()
