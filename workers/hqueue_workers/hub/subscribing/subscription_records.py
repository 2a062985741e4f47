"""Where subscriptions are kept: their cursors and preferences, changed only from what was seen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from hqueue import MessageID, Outcome, StoreUnavailableError
from hqueue.errors import BadVersionError, NoSubscriptionStateError
from hqueue.metadata.managers import (
    SubscriptionData,
    SubscriptionDataManager,
    SubscriptionPreferences,
    SubscriptionState,
    Versioned,
)
from hqueue.metadata.ports import Version
from hqueue.metadata.unanswered_calls import UnansweredCalls

__all__ = ["SubscriptionRecords"]

ASKED_MAX = 1_000
"""Requests at a time."""

_Result = TypeVar("_Result")


class SubscriptionRecords:
    """The records of a queue's subscriptions, for the event loop. No thread waits for one. A change
    that was not answered for in time goes on: its outcome is *unknown*.

    Args:
        manager: keeps them.
        bound_s: of each thing that is asked.
    """

    def __init__(self, manager: SubscriptionDataManager, bound_s: float) -> None:
        self._manager = manager
        self._bound_s = bound_s
        # As there is always room for this many requests, none makes the event loop wait.
        self._room = asyncio.Semaphore(ASKED_MAX)

    async def read(self, topic: str, subscriber: str) -> Versioned[SubscriptionData] | None:
        """Return a subscription, if there is one."""
        return await self._do(
            lambda: self._manager.read_subscription_data(topic, subscriber), Outcome.NOT_APPLIED
        )

    async def create(
        self,
        topic: str,
        subscriber: str,
        preferences: SubscriptionPreferences,
        consumed: int,
        owner: str,
    ) -> Version:
        """Create a subscription.

        Raises:
            SubscriptionStateExistsError: it is there already.
        """
        data = SubscriptionData(
            preferences,
            SubscriptionState(MessageID.from_int(consumed)),
            None if owner == subscriber else owner,
        )
        return await self._do(
            lambda: self._manager.create_subscription_data(topic, subscriber, data)
        )

    async def update(
        self,
        topic: str,
        subscriber: str,
        version: Version,
        *,
        preferences: SubscriptionPreferences | None = None,
        consumed: int | None = None,
        suspected: UnansweredCalls | None = None,
    ) -> Version:
        """Change the given parts of a record if it still has this version. The calls without an
        answer are stored with the cursor.

        Raises:
            BadVersionError: the record has another version.
            NoSubscriptionStateError: the record is gone.
        """
        state = None
        if consumed is not None:
            state = SubscriptionState(MessageID.from_int(consumed), suspected)
        given = SubscriptionData(preferences, state)
        if not self._manager.is_partial_update_supported and None in (preferences, state):
            found = await self.read(topic, subscriber)
            if found is None:
                raise NoSubscriptionStateError("there is no such subscription", topic=topic)
            if found.version != version:
                raise BadVersionError(
                    "another program changed the subscription meanwhile", topic=topic
                )
            given = SubscriptionData(
                preferences or found.value.preferences,
                state or found.value.state,
                found.value.owner,
            )
        return await self._do(
            lambda: self._manager.update_subscription_data(topic, subscriber, given, version)
        )

    async def delete(
        self,
        topic: str,
        subscriber: str,
        check: Callable[[SubscriptionData], object] = lambda data: None,
    ) -> None:
        """Delete a subscription, whatever its version.

        Args:
            check: raises an error if a subscription that was read may not be deleted.

        Raises:
            NoSubscriptionStateError: no such subscription exists.
            BadVersionError: others change it again and again.
        """
        for last in (False, False, True):
            found = await self.read(topic, subscriber)
            if found is None:
                raise NoSubscriptionStateError("there is no such subscription", topic=topic)
            check(found.value)
            version = found.version
            try:
                await self._do(
                    lambda v=version: self._manager.delete_subscription_data(  # type: ignore[misc]
                        topic, subscriber, v
                    )
                )
            except BadVersionError:
                if last:
                    raise
            else:
                return

    async def _do(
        self, begin: Callable[[], Future[_Result]], outcome: Outcome = Outcome.UNKNOWN
    ) -> _Result:
        async with self._room:
            asked = asyncio.wrap_future(begin())
            asked.add_done_callback(_seen)
            done, _ = await asyncio.wait({asked}, timeout=self._bound_s)
        if not done:
            raise StoreUnavailableError(
                "the store of a subscription's record did not answer in time", outcome=outcome
            )
        return asked.result()


def _seen(asked: asyncio.Future[_Result]) -> None:
    """Take note of a future's error: if its caller has gone, the event loop must not report it."""
    if not asked.cancelled():
        asked.exception()
