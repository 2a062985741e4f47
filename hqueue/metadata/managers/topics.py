"""The owners, ranges and subscriptions of topics: Hedwig's managers."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future

from hqueue.errors import (
    InvalidInputError,
    NoSubscriptionStateError,
    NoTopicOwnerInfoError,
    NoTopicPersistenceInfoError,
    SubscriptionStateExistsError,
    UnsupportedFormatError,
)
from hqueue.metadata.managers.encoding import (
    decode_owner_info,
    decode_persistence_info,
    decode_subscription,
    encode_owner_info,
    encode_persistence_info,
    encode_subscription,
)
from hqueue.metadata.managers.infos import (
    HubInfo,
    SubscriptionData,
    TopicPersistenceInfo,
    Versioned,
)
from hqueue.metadata.managers.layout import Layout, segment_name
from hqueue.metadata.managers.manager import Kind
from hqueue.metadata.managers.pipeline import Pipeline
from hqueue.metadata.ports import NEW, Version
from hqueue.runtime.logs import Log

__all__ = ["SubscriptionDataManager", "TopicOwnershipManager", "TopicPersistenceManager"]

logger = Log(__name__)


class TopicOwnershipManager:
    """The owners of a queue's topics. Thread-safe. Each method returns a future, which
    `asyncio.wrap_future` awaits. `Pipeline` says what its callbacks may do.

    An impossible name or version raises an error at once. All other errors are those of the future:

    - `BadVersionError`: the record has another version. With `NEW`: the topic has an owner.
    - `NoTopicOwnerInfoError`: the topic has no owner.
    - `UnsupportedFormatError`: the record can't be read.
    - `StoreUnavailableError`: the store was unavailable. The outcome says whether a change
      may have been made.

    Args:
        pipeline: the pipeline to the store.
        layout: the keys of the records.
    """

    def __init__(self, pipeline: Pipeline, layout: Layout) -> None:
        self._layout = layout
        self._kind: Kind[HubInfo] = Kind(
            pipeline,
            HubInfo,
            encode_owner_info,
            decode_owner_info,
            name="owner record",
            missing=NoTopicOwnerInfoError,
        )

    def read_owner_info(self, topic: str) -> Future[Versioned[HubInfo] | None]:
        """Read the owner; None if the topic has none."""
        return self._kind.read(self._layout.owner(topic))

    def write_owner_info(self, topic: str, owner: HubInfo, version: Version) -> Future[Version]:
        """Make a hub the owner if the owner's record has this version; with `NEW`, if there is no
        record.
        """
        return self._kind.write(self._layout.owner(topic), owner, version)

    def delete_owner_info(self, topic: str, version: Version) -> Future[None]:
        """Remove the topic's owner if the owner's record has this version."""
        return self._kind.delete(self._layout.owner(topic), version)


class TopicPersistenceManager:
    """The ranges and the ACL of each topic of a queue. Both are in one record, so a hub that takes
    a topic over has its ACL, and a hub that lost the topic can't change it any more.

    Like `TopicOwnershipManager`, with `NoTopicPersistenceInfoError` for a topic without a record.

    Args:
        pipeline: the pipeline to the store.
        layout: the keys of the records.
    """

    def __init__(self, pipeline: Pipeline, layout: Layout) -> None:
        self._pipeline = pipeline
        self._layout = layout
        self._kind: Kind[TopicPersistenceInfo] = Kind(
            pipeline,
            TopicPersistenceInfo,
            encode_persistence_info,
            decode_persistence_info,
            name="persistence record",
            missing=NoTopicPersistenceInfoError,
        )

    def read_topic_persistence_info(
        self, topic: str
    ) -> Future[Versioned[TopicPersistenceInfo] | None]:
        """Read a topic's record; None if there is no such topic."""
        return self._kind.read(self._layout.ranges(topic))

    def write_topic_persistence_info(
        self, topic: str, info: TopicPersistenceInfo, version: Version
    ) -> Future[Version]:
        """Write a topic's record if it has this version."""
        return self._kind.write(self._layout.ranges(topic), info, version)

    def delete_topic_persistence_info(self, topic: str, version: Version) -> Future[None]:
        """Delete a topic's record if it has this version."""
        return self._kind.delete(self._layout.ranges(topic), version)

    def topics(self) -> Iterator[str]:
        """All topics, in the order of their keys."""
        for key, _ in self._pipeline.scan(self._layout.topics, 1):
            name = segment_name(key.rpartition("/")[2])
            if name is not None:
                yield name


class SubscriptionDataManager:
    """The subscriptions to each topic of a queue.

    Like `TopicOwnershipManager`, with `NoSubscriptionStateError` if a subscription does not exist,
    and `SubscriptionStateExistsError` if one to create exists already.

    Args:
        pipeline: the pipeline to the store.
        layout: the keys of the records.
    """

    def __init__(self, pipeline: Pipeline, layout: Layout) -> None:
        self._pipeline = pipeline
        self._layout = layout
        self._kind: Kind[SubscriptionData] = Kind(
            pipeline,
            SubscriptionData,
            encode_subscription,
            decode_subscription,
            name="subscription of this name",
            missing=NoSubscriptionStateError,
            exists=SubscriptionStateExistsError,
        )

    @property
    def is_partial_update_supported(self) -> bool:
        """Whether preferences and state can be updated separately."""
        return self._pipeline.store.partial

    def create_subscription_data(
        self, topic: str, subscriber: str, data: SubscriptionData
    ) -> Future[Version]:
        """Create a subscription, with both of its parts."""
        _check_whole(data)
        return self._kind.write(self._layout.subscription(topic, subscriber), data, NEW)

    def update_subscription_data(
        self, topic: str, subscriber: str, data: SubscriptionData, version: Version
    ) -> Future[Version]:
        """Update the given parts of a subscription, if it has this version. The other parts stay,
        even if they are written at the same time. Give all of them if partial updates are not
        supported.
        """
        _check(data)
        if not self.is_partial_update_supported:
            _check_whole(data)
        if data == SubscriptionData():
            raise InvalidInputError("an update needs preferences, a state, or an owner")
        _check_exists(version)
        key = self._layout.subscription(topic, subscriber)
        whole = not self.is_partial_update_supported
        return self._kind.write(key, data, version, whole=whole)

    def replace_subscription_data(
        self, topic: str, subscriber: str, data: SubscriptionData, version: Version
    ) -> Future[Version]:
        """Replace both parts of a subscription, if it has this version."""
        _check_whole(data)
        _check_exists(version)
        return self._kind.write(self._layout.subscription(topic, subscriber), data, version)

    def delete_subscription_data(
        self, topic: str, subscriber: str, version: Version
    ) -> Future[None]:
        """Delete a subscription, if it has this version."""
        return self._kind.delete(self._layout.subscription(topic, subscriber), version)

    def read_subscription_data(
        self, topic: str, subscriber: str
    ) -> Future[Versioned[SubscriptionData] | None]:
        """Read a subscription; None if it does not exist."""
        return self._kind.read(self._layout.subscription(topic, subscriber))

    def read_subscriptions(self, topic: str) -> Future[dict[str, Versioned[SubscriptionData]]]:
        """Read all subscriptions to a topic, by subscriber. A record that can't be read is left out
        and logged.
        """
        return self._pipeline.run(lambda: self._subscriptions(topic))

    def _subscriptions(self, topic: str) -> dict[str, Versioned[SubscriptionData]]:
        there: dict[str, Versioned[SubscriptionData]] = {}
        for key, found in self._pipeline.scan(self._layout.subscriptions(topic), 1):
            name = segment_name(key.rpartition("/")[2])
            try:
                value = self._kind.decoded(key, found)
            except UnsupportedFormatError as exc:
                logger.warning("a subscription can't be read, and is left out: %s", exc)
                continue
            if name is not None and value is not None:
                there[name] = value
        return there


def _check(data: SubscriptionData) -> None:
    if not isinstance(data, SubscriptionData):
        raise InvalidInputError(
            "the value to write must be a SubscriptionData", type=type(data).__name__
        )


def _check_whole(data: SubscriptionData) -> None:
    _check(data)
    if data.preferences is None or data.state is None:
        raise InvalidInputError(
            "a subscription to create or replace needs both preferences and a state"
        )


def _check_exists(version: Version) -> None:
    if version == NEW:
        raise InvalidInputError(
            "a subscription that does not exist can't be updated: create it with "
            "create_subscription_data"
        )
