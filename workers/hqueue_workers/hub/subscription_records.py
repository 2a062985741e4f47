"""Where subscriptions are kept: their marks and preferences, changed only from what was seen."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TypeVar

from hqueue import MessageID, StoreUnavailableError
from hqueue.errors import BadVersionError, NoSubscriptionStateError
from hqueue.metadata.managers import (
    SubscriptionData,
    SubscriptionDataManager,
    SubscriptionPreferences,
    SubscriptionState,
    Versioned,
)
from hqueue.metadata.ports import Version
from hqueue_workers.node.runtime import Runtime

__all__ = ["SubscriptionRecords"]

_Result = TypeVar("_Result")


class SubscriptionRecords:
    """The records of a queue's subscriptions, for the event loop. What waits is a thread.

    Args:
        manager: keeps them.
        runtime: what the hub delivers on.
        bound_s: of each thing that is asked.
    """

    def __init__(self, manager: SubscriptionDataManager, runtime: Runtime, bound_s: float) -> None:
        self._manager = manager
        self._runtime = runtime
        self._bound_s = bound_s

    async def read(self, topic: str, subscriber: str) -> Versioned[SubscriptionData] | None:
        """A subscription, if there is one."""
        return await self._do(lambda: self._manager.read_subscription_data(topic, subscriber))

    async def create(
        self, topic: str, subscriber: str, preferences: SubscriptionPreferences, consumed: int
    ) -> Version:
        """Create a subscription.

        Raises:
            SubscriptionStateExistsError: it is there already.
        """
        data = SubscriptionData(preferences, SubscriptionState(MessageID.from_int(consumed)))
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
    ) -> Version:
        """Change what is given, if the record is of this version.

        Raises:
            BadVersionError: it is of another.
            NoSubscriptionStateError: it is gone.
        """
        state = None if consumed is None else SubscriptionState(MessageID.from_int(consumed))
        given = SubscriptionData(preferences, state)
        if not self._manager.is_partial_update_supported and None in (preferences, state):
            found = await self.read(topic, subscriber)
            if found is None:
                raise NoSubscriptionStateError("there is no such subscription", topic=topic)
            if found.version != version:
                raise BadVersionError("the subscription was changed meanwhile", topic=topic)
            given = SubscriptionData(
                preferences or found.value.preferences, state or found.value.state
            )
        return await self._do(
            lambda: self._manager.update_subscription_data(topic, subscriber, given, version)
        )

    async def delete(self, topic: str, subscriber: str) -> None:
        """Delete a subscription, whatever its version.

        Raises:
            NoSubscriptionStateError: there is none.
            BadVersionError: others change it again and again.
        """
        for last in (False, False, True):
            found = await self.read(topic, subscriber)
            if found is None:
                raise NoSubscriptionStateError("there is no such subscription", topic=topic)
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

    async def _do(self, begin: Callable[[], Future[_Result]]) -> _Result:
        try:
            return await self._runtime.coordinate(lambda: begin().result(self._bound_s))
        except FutureTimeoutError as exc:
            raise StoreUnavailableError("a subscription's record did not come in time") from exc
