"""The hubs that deliver to a client: they attach its subscriptions, and report what they detach."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol

from hqueue.errors import (
    HQueueError,
    HubUnavailableError,
    SubscriberConnectedError,
    SubscriberNotFoundError,
)
from hqueue.message_id import MessageID
from hqueue.metadata.managers import SubscriptionPreferences
from hqueue.rpc.async_connection import AsyncConnection
from hqueue.rpc.services import load
from hqueue.runtime.backoff import Backoff
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline
from hqueue.runtime.fork import register
from hqueue.runtime.held import NotHeldError
from hqueue.runtime.interrupts import is_interruption
from hqueue.runtime.logs import Log
from hqueue.runtime.steps import Work
from hqueue.runtime.stepwise import Stepwise, stepwise
from hqueue.settings.addresses import Address
from hqueue.topics.calls import HubCalls
from hqueue.topics.exchanges import HubMethod
from hqueue.topics.silence import share_ms
from hqueue.topics.structs import naming, preferences_of, preferences_struct, text_of
from hqueue.topics.subscription_state import SubscribeMode, SubscriptionState

__all__ = ["Background", "DeliveringHubs"]

logger = Log(__name__)

WAIT_MS = 10_000
"""A hub answers a `detached` after this long, whether or not something was detached."""
ANSWER_MS = 10_000
"""It may take this much longer; then it is as good as dead."""
DETACHED_BYTES_MAX = 256 * 1024 * 1024
DETACHED_CONTAINERS_MAX = 1_000_000
"""Of its answer. A hub tells 100,000 at most."""
ATTACH_MS = 15_000
CLOSE_MS = 10_000
ATTACHING_MAX = 4
"""Subscriptions that are attached again at a time. One whose hub hangs holds up one of these for a
while."""
RETRIES = Backoff(100.0, 5_000.0)
KEPT_S = 1e7
"""How long a loop whose tasks were cancelled may go on: four months."""


class Background(Protocol):
    """The event loop of a client's background work."""

    def start(self, function: Callable[..., Coroutine[Any, Any, Any]], /, *args: Any) -> object:
        """Have a coroutine go on by itself."""

    def call(self, function: Callable[..., object], /, *args: Any) -> object:
        """Have something called by the loop, soon."""


class DeliveringHubs(Stepwise):
    """Attaches subscriptions to the hubs that own their topics, asks each of these hubs what it
    detached, and attaches that again, in an event loop. Thread-safe.

    Args:
        calls: calls hubs.
        subscriptions: the client's subscriptions.
        background: the event loop; raises an `HQueueError` if there is none.
        lose: ends a subscription that failed.
    """

    def __init__(
        self,
        calls: HubCalls,
        subscriptions: Callable[[], Sequence[SubscriptionState]],
        background: Callable[[], Background],
        lose: Callable[[SubscriptionState, HQueueError], Awaitable[object]],
    ) -> None:
        self._calls = calls
        self._subscriptions = subscriptions
        self._background = background
        self._lose = lose
        self._idl = load("hub")
        self.after_fork_in_child()
        register(self)

    def after_fork_in_child(self) -> None:
        self._session = secrets.token_hex(16)
        self._lock = threading.RLock()
        """Held while it changes which hub has a subscription. The loop takes it, too."""
        self._closed = False
        self._attaching = asyncio.Semaphore(ATTACHING_MAX)
        self._attending: dict[tuple[Address, str], asyncio.Task[None] | None] = {}
        """The loop's own."""
        self._meanwhile: dict[SubscriptionState, list[tuple[Address, Any]]] = {}
        """Of each that is being attached what hubs reported of it before their answer to that was
        read, as it may have come later than the answer; None where a hub's report was lost.
        """

    def close(self, background: Background | None) -> None:
        """Attach nothing again, and ask no hub any more."""
        self._closed = True
        if background is not None:
            background.call(self._attend_no_more)

    @stepwise
    def attach(
        self,
        subscription: SubscriptionState,
        mode: SubscribeMode,
        preferences: SubscriptionPreferences | None,
        timeout_ms: float | None = None,
    ) -> Work[Any, None]:
        """Subscribe; the hub is attended from then on."""
        idl, background = self._idl, self._background()
        wanted = None if preferences is None else preferences_struct(preferences)
        at = subscription.endpoint
        delivery = idl.TDelivery(at.host, at.port, self._session, subscription.explicit_ack)
        queue, topic, subscriber = subscription.queue, subscription.topic, subscription.subscriber
        given = queue, subscriber, topic, int(mode), delivery, wanted
        with self._lock:
            self._meanwhile[subscription] = []
        try:
            with naming(subscriber):
                answer, hub = yield self._calls.call.asked(
                    queue,
                    topic,
                    HubMethod("subscribe", given),
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
        background.start(self._attend, hub, queue)
        for each in [detached for at, detached in meanwhile if at == hub]:
            self._take_in(subscription, hub, each)

    @stepwise
    def detach(self, subscription: SubscriptionState) -> Work[Any, None]:
        """Have the hub that delivers detach a subscription, if one is known."""
        try:
            turn = subscription.attaching
            yield from turn.take(self._detach_now(subscription), ATTACH_MS / 1e3)
        except NotHeldError:  # The hub may have it, though the answer has not come.
            yield from self._detach_now(subscription)

    def _detach_now(self, subscription: SubscriptionState) -> Work[Any, None]:
        hub = subscription.hub
        if hub is None:
            return
        queue, topic = subscription.queue, subscription.topic
        given = queue, subscription.subscriber, topic, self._session
        method, deadline = HubMethod("closeSubscription", given), Deadline(SYSTEM_CLOCK, CLOSE_MS)
        try:
            yield self._calls.call_one.asked(hub, queue, topic, method, deadline)
        except Exception as exc:  # The hub detaches it by itself, when the session is over.
            if is_interruption(exc):
                raise
            logger.info(
                "a subscription to %r was not closed at its hub, which closes it when the "
                "session ends: %s",
                topic,
                exc,
            )

    def _attend_no_more(self) -> None:
        for task in self._attending.values():
            if task is not None:
                task.cancel()

    async def _attend(self, hub: Address, queue: str) -> None:
        """Ask a hub what it detached, until it delivers nothing to this client."""
        if (hub, queue) in self._attending:
            return
        self._attending[hub, queue] = asyncio.current_task()
        opening_s = self._calls.settings.connect_timeout_ms / 1e3
        connection = AsyncConnection(
            hub,
            DETACHED_BYTES_MAX,
            DETACHED_CONTAINERS_MAX,
            connect_timeout_s=opening_s,
            tls=self._calls.tls,
        )
        try:
            while not self._closed and any(each.hub == hub for each in self._of(queue)):
                detached = await self._ask_detached(connection, hub, queue)
                for subscription, each in self._heard(hub, queue, detached):
                    self._take_in(subscription, hub, each)
        except asyncio.CancelledError:
            self._leave_to_loop([each for each in self._of(queue) if each.hub == hub])
            raise
        finally:
            connection.close()
            del self._attending[hub, queue]

    def _leave_to_loop(self, subscriptions: Sequence[SubscriptionState]) -> None:
        """The loop ends: what subscriptions keep is kept until it is closed, and then collected
        unless somebody else has it.
        """
        loop = asyncio.get_running_loop()
        for each in subscriptions:
            kept, each.kept = each.kept, None
            loop.call_later(KEPT_S, id, kept)

    def _of(self, queue: str) -> list[SubscriptionState]:
        return [each for each in self._subscriptions() if each.queue == queue]

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
            if is_interruption(exc):
                raise
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
    ) -> list[tuple[SubscriptionState, Any]]:
        """The reports by subscription: of all of a queue's if it is not known what the hub
        reported.
        """
        heard: list[tuple[SubscriptionState, Any]] = []
        if detached is None:
            heard += [(each, None) for each in self._of(queue)]
        else:
            named = {(each.topic, each.subscriber): each for each in self._of(queue)}
            for each in detached:
                found = named.get((text_of(each.topic), text_of(each.subscriber)))
                heard += [(found, each)] if found is not None else []
        with self._lock:
            for subscription, each in heard:
                self._meanwhile.get(subscription, []).append((hub, each))
        return heard

    def _take_in(self, subscription: SubscriptionState, hub: Address, detached: Any) -> None:
        """Take in that a hub detached a subscription, or may have if its report was lost."""
        background, reasons = self._background(), self._idl.TDetachedReason
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
        background.start(self._go_on, subscription, failure)

    async def _go_on(self, subscription: SubscriptionState, failure: HQueueError | None) -> None:
        """End a subscription, if it failed, or else attach it again; until that is done, or this is
        closed.
        """
        for pause_ms in RETRIES.pauses():
            try:
                if failure is None:
                    async with self._attaching:
                        failure = await self._attach_again.in_loop(subscription)
                if failure is not None:
                    await self._lose(subscription, failure)
                return
            except asyncio.CancelledError:
                self._leave_to_loop([subscription])
                raise
            except BaseException as exc:
                if is_interruption(exc):
                    raise
                logger.info("can't subscribe to %r again now: %s", subscription.topic, exc)
            await asyncio.sleep(pause_ms / 1e3)
            if self._closed:
                return

    @stepwise
    def _attach_again(self, subscription: SubscriptionState) -> Work[Any, HQueueError | None]:
        """Attach it, unless it has ended; why it ends by this, if it does.

        Raises:
            HubUnavailableError, NotHeldError: it can't be attached now.
        """

        def attach() -> Work[Any, None]:
            if not subscription.ended:
                yield from self.attach.steps(subscription, SubscribeMode.ATTACH, None, ATTACH_MS)

        try:
            yield from subscription.attaching.take(attach(), ATTACH_MS / 1e3)
        except HubUnavailableError:
            raise
        except HQueueError as exc:
            return exc
        return None
