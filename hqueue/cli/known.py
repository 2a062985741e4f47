"""Checks whether a name exists when nothing was found for it.

Commands ask here only when they have nothing to show, so what is found costs nothing more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hqueue.errors import GroupNotFoundError, SubscriberNotFoundError

if TYPE_CHECKING:
    from hqueue.client import Client

__all__ = ["check_group", "check_queue", "check_subscriber"]


def check_queue(client: Client, queue: str) -> None:
    """Check that there is such a queue.

    Raises:
        QueueNotFoundError: no such queue exists.
        NotAQueueError: the table of that name is not a queue.
    """
    client.describe_queue(queue)


def check_subscriber(
    client: Client, queue: str | None, subscriber: str, *, of_topics: bool = False
) -> None:
    """Check that a queue, or any queue if None, has such a subscriber.

    Args:
        client: the client.
        queue: the queue.
        subscriber: the subscriber's name.
        of_topics: whether a subscription to a topic of hubs counts, too. All of them are read.

    Raises:
        SubscriberNotFoundError: no such subscriber exists.
    """
    if any(key.subscriber == subscriber for key in client.coordination.subscriptions.list(queue)):
        return
    if of_topics and queue is not None:
        with client.topic_metadata(queue) as metadata:
            for entry in metadata.entries(["subscription"]):
                if entry.subject is not None and entry.subject.subscriber == subscriber:
                    return
    facts: dict[str, Any] = {} if queue is None else {"queue": queue}
    raise SubscriberNotFoundError("there is no such subscriber", subscriber=subscriber, **facts)


def check_group(client: Client, queue: str | None, group: str) -> None:
    """Check that there is such a group and, if a queue is given, that the group consumes it.

    Raises:
        GroupNotFoundError: no such group exists.
    """
    for listing in client.list_groups():
        if listing.group == group:
            if queue in (None, *listing.queues):
                return
            raise GroupNotFoundError(
                "the group does not consume this queue", group=group, queue=queue
            )
    raise GroupNotFoundError("there is no such group", group=group)
