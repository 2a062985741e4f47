"""The kinds of topics' metadata by one face, for what holds for each of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from hqueue import MessageID
from hqueue.errors import (
    BadVersionError,
    MetadataError,
    NoSubscriptionStateError,
    NoTopicOwnerInfoError,
    NoTopicPersistenceInfoError,
    SubscriptionStateExistsError,
)
from hqueue.metadata import Address
from hqueue.metadata.managers import (
    HubInfo,
    LogRange,
    SubscriptionData,
    SubscriptionPreferences,
    SubscriptionState,
    TopicACL,
    TopicPersistenceInfo,
)
from hqueue.metadata.ports import NEW, Version
from tests.support.topic_managers import TopicManagers

__all__ = ["KINDS", "MetadataKind", "owner", "ranges", "subscription"]


def owner(number: int) -> HubInfo:
    return HubInfo(Address("10.0.0.1", 7_000 + number), f"i{number}")


def ranges(number: int) -> TopicPersistenceInfo:
    """Each other one has an ACL."""
    return TopicPersistenceInfo(
        (
            LogRange(0, MessageID(1), MessageID(5), number),
            LogRange(number, MessageID(9), None, number + 1),
        ),
        TopicACL(publish=[f"p{number}"] if number % 2 else ["*"]),
    )


def subscription(number: int) -> SubscriptionData:
    return SubscriptionData(
        SubscriptionPreferences(number + 1, None, 5, {"a": str(number)}),
        SubscriptionState(MessageID(number)),
    )


@dataclasses.dataclass(frozen=True)
class MetadataKind:
    """One kind: its operations on a topic."""

    name: str
    field: str
    value: Callable[[int], Any]
    key: Callable[[TopicManagers, str], str]
    read: Callable[[TopicManagers, str], Future[Any]]
    write: Callable[[TopicManagers, str, Any, Version], Future[Version]]
    delete: Callable[[TopicManagers, str, Version], Future[None]]
    missing: type[MetadataError]
    exists: type[MetadataError] = BadVersionError


def _write_subscription(
    managers: TopicManagers, topic: str, value: Any, version: Version
) -> Future[Version]:
    if version == NEW:
        return managers.subscriptions.create_subscription_data(topic, "s", value)
    return managers.subscriptions.replace_subscription_data(topic, "s", value, version)


KINDS = [
    MetadataKind(
        "ownership",
        "owner",
        owner,
        lambda managers, topic: managers.layout.owner(topic),
        lambda managers, topic: managers.ownership.read_owner_info(topic),
        lambda managers, *change: managers.ownership.write_owner_info(*change),
        lambda managers, *change: managers.ownership.delete_owner_info(*change),
        NoTopicOwnerInfoError,
    ),
    MetadataKind(
        "persistence",
        "ranges",
        ranges,
        lambda managers, topic: managers.layout.ranges(topic),
        lambda managers, topic: managers.persistence.read_topic_persistence_info(topic),
        lambda managers, *change: managers.persistence.write_topic_persistence_info(*change),
        lambda managers, *change: managers.persistence.delete_topic_persistence_info(*change),
        NoTopicPersistenceInfoError,
    ),
    MetadataKind(
        "subscription",
        "state",
        subscription,
        lambda managers, topic: managers.layout.subscription(topic, "s"),
        lambda managers, topic: managers.subscriptions.read_subscription_data(topic, "s"),
        _write_subscription,
        lambda managers, topic, version: managers.subscriptions.delete_subscription_data(
            topic, "s", version
        ),
        NoSubscriptionStateError,
        SubscriptionStateExistsError,
    ),
]
