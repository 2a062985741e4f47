"""The operations of subscribers at a hub that owns their topics."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import NamedTuple

from hqueue import (
    Address,
    BufferFullError,
    InvalidInputError,
    Outcome,
    StoreUnavailableError,
)
from hqueue.errors import (
    NoSubscriptionStateError,
    SubscriptionStateExistsError,
)
from hqueue.metadata.managers import SubscriptionPreferences
from hqueue.net.principals import is_proven
from hqueue.net.quotas import PortQuotas
from hqueue_workers.hub.subscribing.client_sessions import (
    ClientSessions,
    SessionEnd,
    SessionEndReason,
    SessionKey,
)
from hqueue_workers.hub.subscribing.subscription_records import SubscriptionRecords
from hqueue_workers.hub.subscribing.subscription_session import (
    Claimant,
    Delivery,
    SubscribedTopic,
    SubscriptionSession,
)
from hqueue_workers.hub.subscribing.subscription_sessions import SubscriptionSessions
from hqueue_workers.hub.writing.owned_topic import OwnedTopic

__all__ = ["SubscribeMode", "Subscribed", "Subscriptions"]


_NOWHERE = Delivery(Address("", 0), "", False)


class SubscribeMode(enum.IntEnum):
    """Whether a subscription is created. The numbers are those of the IDL."""

    CREATE = 0
    ATTACH = 1
    CREATE_OR_ATTACH = 2


class Subscribed(NamedTuple):
    """The result of `subscribe`."""

    consumed: int
    created: bool
    preferences: SubscriptionPreferences


class Subscriptions:
    """The operations of subscribers in one queue. Used by the event loop.

    Args:
        records: the store of subscriptions.
        sessions: the sessions of attached subscriptions.
        client_sessions: the sessions of the subscribers' clients.
        subscriptions_max: the most subscriptions attached at a time.
        count: called before a subscription is created or its preferences change, with the caller,
            its address, whether it is created, and the bytes of its application's preferences. It
            raises a `BufferFullError` to refuse.
        quotas: the quotas of callers; None for none.
    """

    def __init__(
        self,
        records: SubscriptionRecords,
        sessions: SubscriptionSessions,
        client_sessions: ClientSessions,
        subscriptions_max: int,
        count: Callable[[str, str, bool, int], object] = lambda *_: None,
        *,
        quotas: PortQuotas | None = None,
    ) -> None:
        self.sessions = sessions
        self._records = records
        self._client_sessions = client_sessions
        self._subscriptions_max = subscriptions_max
        self._count = count
        self._quotas = quotas

    async def subscribe(
        self,
        owned: OwnedTopic,
        by: Claimant,
        mode: SubscribeMode,
        delivery: Delivery | None,
        preferences: SubscriptionPreferences | None,
        *,
        host: str = "",
    ) -> Subscribed:
        """Create or change a subscription, and attach it if a delivery is given.

        Args:
            owned: the topic.
            by: the caller, and the subscription's name.
            mode: whether it may be created.
            delivery: where to deliver.
            preferences: the preferences to store.
            host: the IP address of the caller.

        Raises:
            SubscriptionStateExistsError: it exists, and the mode asks to create it.
            NoSubscriptionStateError: it does not exist, and the mode asks to attach.
            NotAllowedError: it belongs to another principal.
            BufferFullError: the maximum number is attached, or was created.
            StoreUnavailableError: this hub does not own the topic any more, or the store is not
                available.
        """
        subscriber = by.name
        key = (owned.name, subscriber)
        caller = (by.principal or subscriber), host
        async with self.sessions.locks.of(key), self.sessions.subscribed(owned) as subscribed:
            found = subscribed.subscriptions.get(subscriber)
            if found is not None:
                by.check(found.owner)
            if delivery is not None:
                if found is None:
                    self._check_room(delivery)
                self._client_sessions.heard(delivery.session_key, host)
            if mode is SubscribeMode.CREATE and found is not None:
                raise SubscriptionStateExistsError(
                    "the subscription exists already", topic=owned.name
                )
            if found and delivery and found.delivery.session_key != delivery.session_key:
                await self.sessions.detach(found, SessionEndReason.REPLACED)
                found = None
            if found is None:
                known, created = await self._open(subscribed, by, host, mode, preferences)
                if delivery is not None:
                    self._attach(known, delivery, created=created)
                return Subscribed(known.consumed, created, known.preferences)
            if preferences is not None and preferences != found.preferences:
                self._count(*caller, False, _kept_bytes(preferences))
                async with self.sessions.writing.of(key):
                    found.version = await self._records.update(
                        *key, found.version, preferences=preferences
                    )
                found.preferences = preferences
            if delivery is not None:
                found.set_delivery(delivery)
                self._client_sessions.attached(delivery.session_key, *key)
                self.sessions.wake(found)
            return Subscribed(found.consumed, False, found.preferences)

    def _check_room(self, delivery: Delivery) -> None:
        """Raise a `BufferFullError` if no more may be attached."""
        if self.sessions.attached >= self._subscriptions_max:
            raise BufferFullError(
                "the hub has the most subscriptions that its setting subscriptions_max allows: try "
                "again later, or raise it",
                subscriptions_max=self._subscriptions_max,
            )
        if self._quotas is not None:
            attached = self.sessions.attached_by.get(delivery.holder, 0)
            self._quotas.check_held("subscriptions", attached, delivery.principal, delivery.host)

    def _attach(self, known: SubscriptionSession, delivery: Delivery, *, created: bool) -> None:
        try:
            self.sessions.attach(known, delivery)
        except StoreUnavailableError as exc:
            if created:  # So it would be there already if the call were made again.
                exc.outcome = Outcome.UNKNOWN
            raise

    async def _open(
        self,
        subscribed: SubscribedTopic,
        by: Claimant,
        host: str,
        mode: SubscribeMode,
        preferences: SubscriptionPreferences | None,
    ) -> tuple[SubscriptionSession, bool]:
        """Read a subscription that is not attached, or create it. Returns it, and whether it was
        created.
        """
        subscriber = by.name
        key = (subscribed.owned.name, subscriber)
        caller = (by.principal or subscriber), host
        owner = by.principal if is_proven(by.principal) else subscriber
        is_likely_new = mode is not SubscribeMode.ATTACH and not subscribed.owned.epoch
        known = None if is_likely_new else await self._records.read(*key)
        suspected = None
        if known is None and mode is SubscribeMode.ATTACH:
            raise NoSubscriptionStateError("there is no such subscription", topic=key[0])
        if known is None:
            by.check(None)
            wanted = preferences or SubscriptionPreferences()
            consumed = max(0, self.sessions.end(subscribed) - 1)
            self._count(*caller, True, _kept_bytes(wanted))
            try:
                version = await self._records.create(*key, wanted, consumed, owner)
            except SubscriptionStateExistsError:
                known = await self._records.read(*key) if is_likely_new else None
                if known is None:
                    raise
        if known is not None:
            owner = known.value.owner or subscriber
            by.check(owner)
            if mode is SubscribeMode.CREATE:
                raise SubscriptionStateExistsError("the subscription exists already", topic=key[0])
            assert known.value.preferences is not None
            assert known.value.state is not None
            wanted, version = known.value.preferences, known.version
            consumed = int(known.value.state.consumed)
            suspected = known.value.state.unanswered
            if preferences is not None and preferences != wanted:
                self._count(*caller, False, _kept_bytes(preferences))
                version = await self._records.update(*key, version, preferences=preferences)
                wanted = preferences
        opened = SubscriptionSession(
            subscribed,
            subscriber,
            _NOWHERE,
            preferences=wanted,
            version=version,
            consumed=consumed,
            owner=owner,
            suspected=suspected,
        )
        return opened, known is None

    async def unsubscribe(self, owned: OwnedTopic, by: Claimant) -> None:
        """Delete a subscription.

        Raises:
            NoSubscriptionStateError: there is no such subscription.
            NotAllowedError: it belongs to another principal.
        """
        key = (owned.name, by.name)
        async with self.sessions.locks.of(key), self.sessions.subscribed(owned) as subscribed:
            found = subscribed.subscriptions.get(by.name)
            if found is not None:
                by.check(found.owner)
                await self.sessions.detach(found, SessionEndReason.UNSUBSCRIBED, store=False)
            async with self.sessions.writing.of(key):
                await self._records.delete(*key, lambda data: by.check(data.owner or by.name))

    async def close_subscription(self, topic: str, subscriber: str, session: SessionKey) -> None:
        """Detach a subscription of this session, and store its cursor. This needs no right: a
        client may always detach what it has attached.

        Raises:
            NoSubscriptionStateError: it is not attached by this session.
        """
        async with self.sessions.locks.of((topic, subscriber)):
            found = self.sessions.find(topic, subscriber)
            if found is None or found.delivery.session_key != session:
                raise NoSubscriptionStateError(
                    "the subscription is not attached by this session", topic=topic
                )
            await self.sessions.detach(found, None)

    async def consume(self, owned: OwnedTopic, by: Claimant, message_id: int) -> None:
        """Move a cursor forward. A cursor that is already further stays.

        Raises:
            InvalidInputError: the topic has no message with such an ID yet.
            NoSubscriptionStateError: there is no such subscription.
            NotAllowedError: it belongs to another principal.
        """
        key = (owned.name, by.name)
        async with self.sessions.locks.of(key), self.sessions.subscribed(owned) as subscribed:
            found = subscribed.subscriptions.get(by.name)
            known = None if found is not None else await self._records.read(*key)
            if found is not None:
                by.check(found.owner)
            elif known is not None:
                by.check(known.value.owner or by.name)
            if message_id >= self.sessions.end(subscribed):
                raise InvalidInputError("the topic has no message with such an ID yet")
            if found is not None:
                found.consume(message_id)
                self.sessions.wake(found)
                return
            if known is None:
                raise NoSubscriptionStateError("there is no such subscription", topic=key[0])
            assert known.value.state is not None
            if known.value.state.consumed < message_id:
                await self._records.update(*key, known.version, consumed=message_id)

    async def detached(self, session: SessionKey, wait_ms: int) -> list[SessionEnd]:
        """Like `ClientSessions.wait`."""
        return await self._client_sessions.wait(session, wait_ms)

    def end_waits(self) -> None:
        """Like `ClientSessions.end_waits`."""
        self._client_sessions.end_waits()


def _kept_bytes(preferences: SubscriptionPreferences) -> int:
    """Return the bytes that the application's preferences take."""
    return sum(len(each.encode()) for pair in preferences.application.items() for each in pair)
