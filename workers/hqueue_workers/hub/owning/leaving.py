"""What is known of a topic is deleted: in such an order that a deletion that ends half-way can be
done again.
"""

from __future__ import annotations

import contextlib

from hqueue.errors import NoSubscriptionStateError, Outcome, StoreUnavailableError
from hqueue.metadata.managers import TopicMetadata
from hqueue_workers.hub.writing.committer import Committer
from hqueue_workers.hub.writing.owned_topic import OwnedListener, OwnedTopic

__all__ = ["leave"]


def leave(
    owned: OwnedTopic,
    metadata: TopicMetadata,
    committer: Committer,
    listener: OwnedListener,
    bound_s: float,
    *,
    delete: bool,
) -> None:
    """Release a topic that this hub owns, and accepts nothing more of: append what waits, have its
    subscriptions left, and delete it, if that is wanted. For threads that may wait.

    Raises:
        StoreUnavailableError: another hub took the topic over before it was deleted.
        HQueueError, TimeoutError: not now. It is this hub's still.
    """
    committer.drained(owned, bound_s)
    committer.drop(owned)
    # The next owner must read what is stored now.
    listener.leave(owned, deleted=delete).result(bound_s)
    if delete:
        _erase(owned, metadata, committer, bound_s)
    metadata.election.release(owned.name, owned.verdict).result(bound_s)


def _erase(
    owned: OwnedTopic, metadata: TopicMetadata, committer: Committer, bound_s: float
) -> None:
    """Delete a topic that this hub owns, and no longer appends to.

    First the topic's range is closed in the log, so that no earlier owner appends to it. Then its
    subscriptions are deleted, and last its persistence record, without which a topic does not
    exist. The caller deletes the owner record.

    Raises:
        StoreUnavailableError: another hub has taken the topic over.
        HQueueError, TimeoutError: a store is not available now. The topic still exists, perhaps
            without its subscriptions.
    """
    topic = owned.name
    committer.close_range(topic, owned.epoch + 1, owned.first).result(bound_s)
    subscriptions = metadata.subscriptions
    for name, found in subscriptions.read_subscriptions(topic).result(bound_s).items():
        with contextlib.suppress(NoSubscriptionStateError):
            subscriptions.delete_subscription_data(topic, name, found.version).result(bound_s)
    known = metadata.persistence.read_topic_persistence_info(topic).result(bound_s)
    if known is None:
        return
    if not known.value.ranges or known.value.ranges[-1].epoch != owned.epoch:
        raise StoreUnavailableError(
            "another hub has taken the topic over", outcome=Outcome.UNKNOWN, topic=topic
        )
    metadata.persistence.delete_topic_persistence_info(topic, known.version).result(bound_s)
