"""The owners, ranges and subscriptions of topics: Hedwig's managers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hqueue.errors import (
    InvalidInputError,
    NoSubscriptionStateError,
    NoTopicOwnerInfoError,
    NoTopicPersistenceInfoError,
    SubscriptionStateExistsError,
    UnsupportedFormatError,
)
from hqueue.metadata.fields import Found
from hqueue.metadata.managers.encoding import (
    decode_owner_info,
    decode_persistence_info,
    decode_subscription,
    encode_owner_info,
    encode_persistence_info,
    encode_subscription,
)
from hqueue.metadata.managers.following import following
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
from hqueue.runtime.steps import Give, Work, taken_in
from hqueue.runtime.stepwise import Stepwise, asked, paged, stepwise

__all__ = [
    "SubscriptionDataManager",
    "TopicOwnershipManager",
    "TopicPersistenceManager",
    "is_partial_in_loop",
]

logger = Log(__name__)


class TopicOwnershipManager(Stepwise):
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

    @following
    def read_owner_info(self, topic: str) -> Work[Any, Versioned[HubInfo] | None]:
        """Read the owner; None if the topic has none."""
        return self._kind.read(self._layout.owner(topic))

    @following
    def write_owner_info(self, topic: str, owner: HubInfo, version: Version) -> Work[Any, Version]:
        """Make a hub the owner if the owner's record has this version; with `NEW`, if there is no
        record.
        """
        return self._kind.write(self._layout.owner(topic), owner, version)

    @following
    def delete_owner_info(self, topic: str, version: Version) -> Work[Any, None]:
        """Remove the topic's owner if the owner's record has this version."""
        return self._kind.delete(self._layout.owner(topic), version)


class TopicPersistenceManager(Stepwise):
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

    @following
    def read_topic_persistence_info(
        self, topic: str
    ) -> Work[Any, Versioned[TopicPersistenceInfo] | None]:
        """Read a topic's record; None if there is no such topic."""
        return self._kind.read(self._layout.ranges(topic))

    @following
    def write_topic_persistence_info(
        self, topic: str, info: TopicPersistenceInfo, version: Version
    ) -> Work[Any, Version]:
        """Write a topic's record if it has this version."""
        return self._kind.write(self._layout.ranges(topic), info, version)

    @following
    def delete_topic_persistence_info(self, topic: str, version: Version) -> Work[Any, None]:
        """Delete a topic's record if it has this version."""
        return self._kind.delete(self._layout.ranges(topic), version)

    @paged
    def topics(self) -> Work[Any, None]:
        """All topics, in the order of their keys."""

        def named(page: Sequence[tuple[str, Found]]) -> Work[Any, None]:
            names = (segment_name(key.rpartition("/")[2]) for key, _ in page)
            yield Give([name for name in names if name is not None])

        yield from taken_in(self._pipeline.store.scan.asked(self._layout.topics, 1), named)


class SubscriptionDataManager(Stepwise):
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
        return self._is_partial()

    @following
    def create_subscription_data(
        self, topic: str, subscriber: str, data: SubscriptionData
    ) -> Work[Any, Version]:
        """Create a subscription, with both of its parts."""
        _check_whole(data)
        return self._kind.write(self._layout.subscription(topic, subscriber), data, NEW)

    @following
    def update_subscription_data(
        self, topic: str, subscriber: str, data: SubscriptionData, version: Version
    ) -> Work[Any, Version]:
        """Update the given parts of a subscription, if it has this version. The other parts stay,
        even if they are written at the same time. Give all of them if partial updates are not
        supported.
        """
        _check(data)
        is_partial: bool = yield self._is_partial.asked()
        if not is_partial:
            _check_whole(data)
        if data == SubscriptionData():
            raise InvalidInputError("an update needs preferences, a state, or an owner")
        _check_exists(version)
        key = self._layout.subscription(topic, subscriber)
        return (yield from self._kind.write(key, data, version, whole=not is_partial))

    @following
    def replace_subscription_data(
        self, topic: str, subscriber: str, data: SubscriptionData, version: Version
    ) -> Work[Any, Version]:
        """Replace both parts of a subscription, if it has this version."""
        _check_whole(data)
        _check_exists(version)
        return self._kind.write(self._layout.subscription(topic, subscriber), data, version)

    @following
    def delete_subscription_data(
        self, topic: str, subscriber: str, version: Version
    ) -> Work[Any, None]:
        """Delete a subscription, if it has this version."""
        return self._kind.delete(self._layout.subscription(topic, subscriber), version)

    @following
    def read_subscription_data(
        self, topic: str, subscriber: str
    ) -> Work[Any, Versioned[SubscriptionData] | None]:
        """Read a subscription; None if it does not exist."""
        return self._kind.read(self._layout.subscription(topic, subscriber))

    @following
    def read_subscriptions(self, topic: str) -> Work[Any, dict[str, Versioned[SubscriptionData]]]:
        """Read all subscriptions to a topic, by subscriber. A record that can't be read is left out
        and logged.
        """
        found: dict[str, Versioned[SubscriptionData]] = yield self._pipeline.apart(
            self._subscriptions.asked(self._layout.subscriptions(topic))
        )
        return found

    @stepwise
    def _subscriptions(self, prefix: str) -> Work[Any, dict[str, Versioned[SubscriptionData]]]:
        there: dict[str, Versioned[SubscriptionData]] = {}

        def take(page: Sequence[tuple[str, Found]]) -> Work[Any, None]:
            there.update(self._decoded(page))
            yield from ()

        yield from taken_in(self._pipeline.store.scan.asked(prefix, 1), take)
        return there

    def _decoded(
        self, page: Sequence[tuple[str, Found]]
    ) -> Iterator[tuple[str, Versioned[SubscriptionData]]]:
        """The subscriptions that can be read, by subscriber."""
        for key, found in page:
            name = segment_name(key.rpartition("/")[2])
            try:
                value = self._kind.decoded(key, found)
            except UnsupportedFormatError as exc:
                logger.warning("a subscription can't be read, and is left out: %s", exc)
                continue
            if name is not None and value is not None:
                yield name, value

    @stepwise
    def _is_partial(self) -> Work[Any, bool]:
        return bool((yield asked(self._pipeline.store.is_partial)))


async def is_partial_in_loop(subscriptions: SubscriptionDataManager) -> bool:
    """Like `SubscriptionDataManager.is_partial_update_supported`, for `hqueue.aio`."""
    return await subscriptions._is_partial.in_loop()


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
