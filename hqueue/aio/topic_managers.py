"""The owners, ranges and subscriptions of topics, and the elections of owners, in an event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from hqueue.metadata.managers import (
    HubInfo,
    SubscriptionData,
    TopicPersistenceInfo,
    Verdict,
    Versioned,
)
from hqueue.metadata.managers import OwnerElection as BlockingElection
from hqueue.metadata.managers import SubscriptionDataManager as BlockingSubscriptions
from hqueue.metadata.managers import TopicOwnershipManager as BlockingOwnership
from hqueue.metadata.managers import TopicPersistenceManager as BlockingPersistence
from hqueue.metadata.managers.topics import is_partial_in_loop
from hqueue.metadata.ports import Version

__all__ = [
    "OwnerElection",
    "SubscriptionDataManager",
    "TopicOwnershipManager",
    "TopicPersistenceManager",
]


class TopicOwnershipManager:
    """The owners of a queue's topics, for event loops. Like
    `hqueue.metadata.managers.TopicOwnershipManager`, but each method is awaited for its result,
    instead of returning a future, and raises all errors when it is awaited. Made by
    `Client.topic_metadata`.

    If the caller of a change is cancelled, the outcome is unknown: the change may be made, now or
    in a moment. Of changes of one record that are under way at the same time, any may be the first.

    Args:
        here: returns the running loop's manager.
    """

    def __init__(self, here: Callable[[], BlockingOwnership]) -> None:
        self._here = here

    async def read_owner_info(self, topic: str) -> Versioned[HubInfo] | None:
        """Read the owner; None if the topic has none."""
        return await self._here().read_owner_info.in_loop(topic)

    async def write_owner_info(self, topic: str, owner: HubInfo, version: Version) -> Version:
        """Make a hub the owner if the owner's record has this version. Like
        `TopicOwnershipManager.write_owner_info` of `hqueue.metadata.managers`.
        """
        return await self._here().write_owner_info.in_loop(topic, owner, version)

    async def delete_owner_info(self, topic: str, version: Version) -> None:
        """Remove the topic's owner if the owner's record has this version."""
        await self._here().delete_owner_info.in_loop(topic, version)


class TopicPersistenceManager:
    """The ranges and the ACL of each topic of a queue, for event loops. Like
    `hqueue.metadata.managers.TopicPersistenceManager`, with the differences that
    `TopicOwnershipManager` describes.

    Args:
        here: returns the running loop's manager.
    """

    def __init__(self, here: Callable[[], BlockingPersistence]) -> None:
        self._here = here

    async def read_topic_persistence_info(
        self, topic: str
    ) -> Versioned[TopicPersistenceInfo] | None:
        """Read a topic's record; None if there is no such topic."""
        return await self._here().read_topic_persistence_info.in_loop(topic)

    async def write_topic_persistence_info(
        self, topic: str, info: TopicPersistenceInfo, version: Version
    ) -> Version:
        """Write a topic's record if it has this version."""
        return await self._here().write_topic_persistence_info.in_loop(topic, info, version)

    async def delete_topic_persistence_info(self, topic: str, version: Version) -> None:
        """Delete a topic's record if it has this version."""
        await self._here().delete_topic_persistence_info.in_loop(topic, version)

    def topics(self) -> AsyncIterator[str]:
        """Iterate over all topics, in the order of their keys. An iteration that was cancelled
        ends: begin another one.
        """
        return self._here().topics.in_loop()


class SubscriptionDataManager:
    """The subscriptions to each topic of a queue, for event loops. Like
    `hqueue.metadata.managers.SubscriptionDataManager`, with the differences that
    `TopicOwnershipManager` describes.

    Args:
        here: returns the running loop's manager.
    """

    def __init__(self, here: Callable[[], BlockingSubscriptions]) -> None:
        self._here = here

    async def is_partial_update_supported(self) -> bool:
        """Whether preferences and state can be updated separately."""
        return await is_partial_in_loop(self._here())

    async def create_subscription_data(
        self, topic: str, subscriber: str, data: SubscriptionData
    ) -> Version:
        """Create a subscription, with both of its parts."""
        return await self._here().create_subscription_data.in_loop(topic, subscriber, data)

    async def update_subscription_data(
        self, topic: str, subscriber: str, data: SubscriptionData, version: Version
    ) -> Version:
        """Update the given parts of a subscription, if it has this version. Like
        `SubscriptionDataManager.update_subscription_data` of `hqueue.metadata.managers`.
        """
        return await self._here().update_subscription_data.in_loop(topic, subscriber, data, version)

    async def replace_subscription_data(
        self, topic: str, subscriber: str, data: SubscriptionData, version: Version
    ) -> Version:
        """Replace both parts of a subscription, if it has this version."""
        return await self._here().replace_subscription_data.in_loop(
            topic, subscriber, data, version
        )

    async def delete_subscription_data(self, topic: str, subscriber: str, version: Version) -> None:
        """Delete a subscription, if it has this version."""
        await self._here().delete_subscription_data.in_loop(topic, subscriber, version)

    async def read_subscription_data(
        self, topic: str, subscriber: str
    ) -> Versioned[SubscriptionData] | None:
        """Read a subscription; None if it does not exist."""
        return await self._here().read_subscription_data.in_loop(topic, subscriber)

    async def read_subscriptions(self, topic: str) -> dict[str, Versioned[SubscriptionData]]:
        """Read all subscriptions to a topic, by subscriber. Like
        `SubscriptionDataManager.read_subscriptions` of `hqueue.metadata.managers`.
        """
        return await self._here().read_subscriptions.in_loop(topic)


class OwnerElection:
    """Elects the owners of a queue's topics, for event loops. Like
    `hqueue.metadata.managers.OwnerElection`, but its methods are awaited for their results and
    errors, instead of returning futures. Made by `Client.topic_metadata`.

    Args:
        here: returns the running loop's election.
    """

    def __init__(self, here: Callable[[], BlockingElection]) -> None:
        self._here = here

    async def acquire(self, topic: str, hub: HubInfo, instead_of: Version | None = None) -> Verdict:
        """Make a hub the owner of a topic, unless another hub owns it. Like
        `OwnerElection.acquire` of `hqueue.metadata.managers`. If the caller is cancelled, the hub
        may become the owner: acquire the topic again to find out.
        """
        return await self._here().acquire.in_loop(topic, hub, instead_of)

    async def release(self, topic: str, owned: Verdict) -> bool:
        """Remove a topic's owner, if it is still the one in this election's result. Returns whether
        it was. If the caller is cancelled, the owner may have been removed: the call can be
        repeated.
        """
        return await self._here().release.in_loop(topic, owned)

    async def is_available(self, hub: HubInfo) -> bool:
        """Whether an incarnation of a hub is available. The answer is no older than the call."""
        return await self._here().is_available.in_loop(hub)
