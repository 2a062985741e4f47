"""Subscription sessions at this hub: appends wake them, their cursors are stored, and they end."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Protocol

from hqueue import HQueueError
from hqueue.errors import BadVersionError, NoSubscriptionStateError, NotAllowedError
from hqueue.runtime.logs import Log
from hqueue_workers.hub.authorizer import Operation
from hqueue_workers.hub.keyed_locks import KeyedLocks
from hqueue_workers.hub.limits import HubLimits
from hqueue_workers.hub.subscribing.client_sessions import ClientSessions, SessionEndReason
from hqueue_workers.hub.subscribing.delivering import Delivering
from hqueue_workers.hub.subscribing.recent import Kept, Recent
from hqueue_workers.hub.subscribing.subscription_records import SubscriptionRecords
from hqueue_workers.hub.subscribing.subscription_session import (
    Delivery,
    SubscribedTopic,
    SubscriptionSession,
)
from hqueue_workers.hub.writing.owned_topic import OwnedTopic, Publish
from hqueue_workers.node.runtime import Runtime

__all__ = ["Deliver", "SubscriptionSessions"]

logger = Log(__name__)

GRACE_S = 5.0
"""How long a call under way is waited for when a subscription is detached."""
TOGETHER = 64

Deliver = Callable[
    [Callable[[SubscriptionSession], Awaitable[None]], Callable[[SubscriptionSession], None]],
    Delivering,
]
"""Makes what delivers, given what stores a cursor, and what notes one that must be stored soon."""


class _QueueTopics(Protocol):
    """What is asked of the queue's topics that this hub owns."""

    def is_owned(self, owned: OwnedTopic) -> bool: ...

    def end_of(self, owned: OwnedTopic) -> int: ...

    def check_allowed(self, caller: str, operation: Operation, owned: OwnedTopic) -> None: ...

    def check_name(
        self, principal: str | None, operation: Operation, topic: str, name: str, owner: str | None
    ) -> None: ...


class SubscriptionSessions:
    """The subscription sessions of one queue: one for each subscription that a client has attached.
    `appended`, `leave`, `lost` are for any thread; the event loop uses the rest.

    The hub is the only writer of a topic that it owns, so appends wake its subscriptions. A
    subscription without waiting messages is an object, and nothing else. Its cursor is stored on
    condition that the record is as it was read: if another program has changed the record, the
    subscription is detached.

    Args:
        records: the store of subscriptions.
        runtime: the hub's runtime.
        client_sessions: the sessions of the subscribers' clients.
        deliver: makes the object that delivers.
        limits: the bounds that no setting changes.
    """

    def __init__(
        self,
        records: SubscriptionRecords,
        *,
        runtime: Runtime,
        client_sessions: ClientSessions,
        deliver: Deliver,
        limits: HubLimits,
    ) -> None:
        self._records = records
        self._runtime = runtime
        self._client_sessions = client_sessions
        self._topics: _QueueTopics
        self._subscribed: dict[str, SubscribedTopic] = {}
        self._recent = Recent(limits.recent_bytes_max)
        self._store_every_ms = limits.store_every_ms
        self._moved: set[SubscriptionSession] = set()
        self.delivering = deliver(self._store, self._moved.add)
        """Delivers to them."""
        self.locks = KeyedLocks()
        """By topic and subscriber: held while one is attached, changed or detached."""
        self.writing = KeyedLocks()
        """Held while the record of one that is attached is written."""
        self.attached = 0
        """Subscriptions that are attached now."""
        self.attached_by: Counter[str] = Counter()
        """Of these those of each holder."""

    def start(self, topics: _QueueTopics) -> None:
        """Begin, given the queue's topics that this hub owns."""
        self._topics = topics
        self._runtime.start(self._look_after())

    def find(self, topic: str, subscriber: str) -> SubscriptionSession | None:
        """Return a subscription, if it is attached."""
        subscribed = self._subscribed.get(topic)
        return None if subscribed is None else subscribed.subscriptions.get(subscriber)

    def every(self) -> list[SubscriptionSession]:
        """Return all that are attached now."""
        return [
            each
            for subscribed in self._subscribed.values()
            for each in subscribed.subscriptions.values()
        ]

    def wake(self, subscription: SubscriptionSession) -> None:
        """Look at a subscription that was changed: it may have something to get, and its cursor may
        have moved.
        """
        if subscription.dirty:
            self._moved.add(subscription)
        self.delivering.wake(subscription)

    def attach(self, opened: SubscriptionSession, delivery: Delivery) -> None:
        """Deliver to a subscription from now on.

        Raises:
            NotAllowedError: the subscriber may not any more.
            StoreUnavailableError: the topic is not this hub's any more.
        """
        subscribed = opened.topic
        self._check(opened, delivery)
        if subscribed.left or not self._topics.is_owned(subscribed.owned):
            raise subscribed.owned.changes_hands()
        opened.delivery = delivery
        if opened.position >= subscribed.end:
            opened.waiting = 0
        subscribed.subscriptions[opened.subscriber] = opened
        self.attached += 1
        opened.holder = delivery.holder
        self.attached_by[opened.holder] += 1
        self._client_sessions.attached(delivery.session_key, *opened.key)
        self.delivering.wake(opened)

    def appended(
        self, publishes: Sequence[tuple[Publish, int]], uncertain: Sequence[OwnedTopic], end: int
    ) -> None:
        """Like `OwnedListener`."""
        subscribed = self._subscribed
        if not subscribed:
            return
        came = [
            (publish.owned, Kept(publish, first))
            for publish, first in publishes
            if publish.owned.name in subscribed
        ]
        unsure = [owned for owned in uncertain if owned.name in subscribed]
        if came or unsure:
            self._runtime.call(lambda: self._on_appended(came, unsure, end))

    def leave(self, owned: OwnedTopic, *, deleted: bool = False) -> Future[None]:
        """Like `OwnedListener`. Done when all cursors are stored, or can't be."""
        reason = SessionEndReason.UNSUBSCRIBED if deleted else SessionEndReason.TOPIC_LEFT
        return self._runtime.submit(self._leave(owned, reason))

    def lost(self, topics: Sequence[OwnedTopic]) -> None:
        """Like `OwnedListener`. Nothing is stored: others are at it."""
        self._runtime.call(lambda: self._on_lost(topics))

    @contextlib.asynccontextmanager
    async def subscribed(self, owned: OwnedTopic) -> AsyncIterator[SubscribedTopic]:
        """Return the topic with its attached subscriptions, for as long as the caller needs it.

        Raises:
            StoreUnavailableError: the topic is not this hub's any more.
        """
        if not self._topics.is_owned(owned):
            raise owned.changes_hands()
        # When it is left from here on, `leave` or `lost` come after this, and drop the topic.
        subscribed = self._subscribed.get(owned.name)
        if subscribed is not None and subscribed.owned is not owned:
            self._drop_topic(subscribed)
            subscribed = None
        if subscribed is None:
            # From here on appends are reported; what was appended before lies below the end.
            subscribed = self._subscribed[owned.name] = SubscribedTopic(owned, 0)
            try:
                subscribed.end = self._topics.end_of(owned)
            except BaseException:
                del self._subscribed[owned.name]
                raise
        subscribed.users += 1
        try:
            yield subscribed
        finally:
            subscribed.users -= 1
            self._drop_if_unused(subscribed)

    def _drop_if_unused(self, subscribed: SubscribedTopic) -> None:
        if (
            not (subscribed.users or subscribed.subscriptions)
            and self._subscribed.get(subscribed.owned.name) is subscribed
        ):
            del self._subscribed[subscribed.owned.name]

    def end(self, subscribed: SubscribedTopic) -> int:
        """Return an ID below which no message comes from now on."""
        return max(subscribed.end, self._topics.end_of(subscribed.owned))

    def _on_appended(
        self, came: Sequence[tuple[OwnedTopic, Kept]], uncertain: Sequence[OwnedTopic], end: int
    ) -> None:
        for owned in uncertain:
            subscribed = self._subscribed.get(owned.name)
            if subscribed is not None and subscribed.owned is owned:
                subscribed.clear(max(subscribed.end, end))  # What is in memory may not be all.
                for each in subscribed.subscriptions.values():
                    each.waiting = None
        woken = {owned.name for owned in uncertain}
        for owned, kept in came:
            subscribed = self._subscribed.get(owned.name)
            if subscribed is None or subscribed.owned is not owned:
                continue
            woken.add(owned.name)
            first = kept.start
            if first >= subscribed.end:
                self._recent.add(subscribed, kept)
                for each in subscribed.subscriptions.values():
                    if each.waiting is not None and first >= each.position:
                        each.waiting += kept.messages
        for name in woken & self._subscribed.keys():
            for each in self._subscribed[name].subscriptions.values():
                self.delivering.wake(each)

    async def _leave(self, owned: OwnedTopic, reason: SessionEndReason) -> None:
        subscribed = self._subscribed.get(owned.name)
        if subscribed is None or subscribed.owned is not owned:
            return
        subscribed.left = True
        leaving = list(subscribed.subscriptions.values())
        for each in leaving:
            each.left = True
        await self._detach_all(subscribed, leaving, reason)
        self._drop_topic(subscribed)

    async def restrict_all(self) -> None:
        """Do as `restrict` for all topics, after a change of the access rules."""
        for subscribed in list(self._subscribed.values()):
            await self.restrict(subscribed.owned)

    async def restrict(self, owned: OwnedTopic) -> None:
        """Detach those that may not subscribe any more, after a change of the topic's ACL. They get
        the error when they subscribe again.
        """
        subscribed = self._subscribed.get(owned.name)
        if subscribed is not None and subscribed.owned is owned:
            refused = [each for each in subscribed.subscriptions.values() if not self._may(each)]
            await self._detach_all(subscribed, refused, SessionEndReason.TOPIC_LEFT)

    def _may(self, subscription: SubscriptionSession) -> bool:
        try:
            self._check(subscription, subscription.delivery)
        except NotAllowedError:
            return False
        return True

    def _check(self, subscription: SubscriptionSession, delivery: Delivery) -> None:
        """See that messages may be delivered.

        Raises:
            NotAllowedError: the subscriber may not have them.
        """
        owned, subscriber = subscription.topic.owned, subscription.subscriber
        principal, operation = delivery.principal, Operation.SUBSCRIBE
        self._topics.check_allowed(principal or subscriber, operation, owned)
        self._topics.check_name(principal, operation, owned.name, subscriber, subscription.owner)

    async def _detach_all(
        self,
        subscribed: SubscribedTopic,
        subscriptions: Sequence[SubscriptionSession],
        reason: SessionEndReason,
    ) -> None:
        async def end(each: SubscriptionSession) -> None:
            async with self.locks.of(each.key):
                if subscribed.subscriptions.get(each.subscriber) is each:
                    with contextlib.suppress(
                        HQueueError
                    ):  # Logged; the cursor is an older one then.
                        await self.detach(each, reason)

        for some in _batches(subscriptions):
            await asyncio.gather(*map(end, some))

    def _on_lost(self, topics: Sequence[OwnedTopic]) -> None:
        for owned in topics:
            subscribed = self._subscribed.get(owned.name)
            if subscribed is not None and subscribed.owned is owned:
                self._drop_topic(subscribed)

    def _drop_topic(self, subscribed: SubscribedTopic) -> None:
        """Detach what is left of a topic that is another's."""
        subscribed.left = True
        if self._subscribed.get(subscribed.owned.name) is subscribed:
            del self._subscribed[subscribed.owned.name]
        for each in list(subscribed.subscriptions.values()):
            self._cut_off(each, SessionEndReason.TOPIC_LEFT)

    def _cut_off(self, subscription: SubscriptionSession, reason: SessionEndReason | None) -> None:
        """Detach at once: the result of a call under way no longer counts."""
        subscription.over = True
        subscribed = subscription.topic
        subscription.left = True
        if subscribed.subscriptions.get(subscription.subscriber) is not subscription:
            return
        del subscribed.subscriptions[subscription.subscriber]
        self.attached -= 1
        self.attached_by[subscription.holder] -= 1
        if not self.attached_by[subscription.holder]:
            del self.attached_by[subscription.holder]
        if reason is not None:
            self._client_sessions.detached(
                subscription.delivery.session_key, *subscription.key, reason
            )
        self._drop_if_unused(subscribed)

    async def detach(
        self,
        subscription: SubscriptionSession,
        reason: SessionEndReason | None,
        *,
        store: bool = True,
    ) -> None:
        """Detach a subscription when its call under way has ended, or takes too long. Then store
        its cursor.

        Raises:
            HQueueError: the cursor could not be stored, or may not be, because the topic was lost
                meanwhile. The subscription is detached all the same.
        """
        subscription.left = True
        if subscription.running:
            subscription.ended = asyncio.get_running_loop().create_future()
            await asyncio.wait({subscription.ended}, timeout=GRACE_S)
        is_lost = subscription.over
        self._cut_off(subscription, reason)
        if store and subscription.dirty:
            if is_lost:
                raise subscription.topic.owned.changes_hands()
            await self._store(subscription)

    async def _store(self, subscription: SubscriptionSession) -> None:
        """Store a subscription's cursor if it must be stored. If another program changed the
        record, detach the subscription.

        Raises:
            StoreUnavailableError: the store is not available now.
        """
        async with self.writing.of(subscription.key):
            consumed, since = subscription.consumed, subscription.since
            suspected = subscription.suspected
            if not subscription.dirty:
                return
            tried, subscription.tried = subscription.tried, consumed
            try:
                try:
                    version = await self._records.update(
                        *subscription.key,
                        subscription.version,
                        consumed=consumed,
                        suspected=suspected,
                    )
                except BadVersionError:
                    # Perhaps it is what was written here without an answer.
                    found = await self._records.read(*subscription.key)
                    state = None if found is None else found.value.state
                    if found is None or state is None or int(state.consumed) != tried:
                        raise
                    version = await self._records.update(
                        *subscription.key,
                        found.version,
                        consumed=consumed,
                        suspected=suspected,
                    )
            except NoSubscriptionStateError:
                self._cut_off(subscription, SessionEndReason.UNSUBSCRIBED)
            except BadVersionError:
                logger.info(
                    "another program changed a subscription of topic %r", subscription.key[0]
                )
                self._cut_off(subscription, SessionEndReason.TOPIC_LEFT)
            except HQueueError as exc:
                text = (
                    "the cursor of a subscription to %r, %r, and perhaps others are not stored: %s"
                )
                self._runtime.faults.met("cursors", text, *subscription.key, exc)
                raise
            else:
                self._runtime.faults.over("cursors", "cursors of subscriptions are stored again")
                subscription.version, subscription.stored = version, consumed
                subscription.since -= since
                if subscription.suspected == suspected:
                    subscription.must_store = False

    async def _look_after(self) -> None:
        while True:
            await self._runtime.sleep_ms(self._store_every_ms)
            over = self._client_sessions.silent()
            moved = list(self._moved)
            self._moved.clear()
            for some in _batches(moved):
                await asyncio.gather(*map(self.try_to_store, some))
            if over:
                silent = [each for each in self.every() if each.delivery.session_key in over]
                for some in _batches(silent):
                    await asyncio.gather(*map(self._end_silent, some))

    async def try_to_store(self, subscription: SubscriptionSession) -> None:
        """Store its cursor, if it moved and is this hub's to store; if that fails, again later."""
        if subscription.over:  # Its cursor was stored when it was detached, or others are at it.
            return
        try:
            await self._store(subscription)
        except HQueueError:
            if not subscription.left:
                self._moved.add(subscription)

    async def _end_silent(self, subscription: SubscriptionSession) -> None:
        async with self.locks.of(subscription.key):
            if (
                subscription.left
                or subscription.delivery.session_key not in self._client_sessions.silent()
            ):
                return
            with contextlib.suppress(HQueueError):
                await self.detach(subscription, SessionEndReason.TOPIC_LEFT)


def _batches(
    subscriptions: Sequence[SubscriptionSession],
) -> Iterator[Sequence[SubscriptionSession]]:
    """Yield a few at a time."""
    for at in range(0, len(subscriptions), TOGETHER):
        yield subscriptions[at : at + TOGETHER]
