"""Moves, deletes and restricts whole topics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Future

from hqueue import Address, InvalidInputError, TopicACL
from hqueue.errors import NoSubscriptionStateError
from hqueue_workers.hub.authorizer import Operation
from hqueue_workers.hub.owning.queue_topics import QueueTopics
from hqueue_workers.hub.serving.acl_changes import ACLChanges
from hqueue_workers.hub.writing.owned_topic import OwnedTopic, RedirectedError
from hqueue_workers.node.runtime import Runtime

__all__ = ["Managing"]


class Managing:
    """Moves and deletes topics of a queue, and changes their ACLs. Thread-safe.

    To move a topic, its owner releases it as when it sheds load, and redirects the caller to the
    target hub, which acquires the topic. Any other hub redirects the caller to the owner.

    Args:
        topics: the queue's topics that this hub owns.
        me: this hub.
        hubs: gives the available hubs; it may ask ZooKeeper.
        acl_changes: changes ACLs.
        runtime: the hub's runtime.
    """

    def __init__(
        self,
        topics: QueueTopics,
        me: Address,
        hubs: Callable[[], Mapping[Address, object]],
        *,
        acl_changes: ACLChanges,
        runtime: Runtime,
    ) -> None:
        self._topics = topics
        self._me = me
        self._hubs = hubs
        self._acl_changes = acl_changes
        self._runtime = runtime

    def move(self, caller: str, topic: str, to: Address, *, redirected: bool) -> Future[None]:
        """Move a topic to a hub. The future is done when this hub is the target, and owns the
        topic.

        The future's errors are those of `QueueTopics.serve`, `NotAllowedError`, and
        `InvalidInputError` if the target is not available or there is no such topic: then nothing
        was done.
        """
        operation, redirected = Operation.MOVE, redirected or to == self._me
        serving = self._topics.serve(caller, operation, topic, redirected=redirected, create=False)

        async def move() -> None:
            owned = await self._owned(caller, operation, topic, serving)
            if to not in await self._runtime.coordinate(self._hubs):
                raise InvalidInputError(
                    "the hub to move the topic to is not available", hub=str(to)
                )
            if to != self._me:
                await asyncio.wrap_future(self._topics.abandon(owned.name))
                raise RedirectedError(to)

        return self._runtime.submit(move())

    def delete(self, caller: str, topic: str, *, redirected: bool) -> Future[bool]:
        """Delete a topic once this hub owns it. The future says whether the topic existed.

        The future's errors are those of `QueueTopics.serve` and `QueueTopics.delete`, and
        `NotAllowedError`.
        """
        operation = Operation.DELETE
        serving = self._topics.serve(caller, operation, topic, redirected=redirected, create=False)

        async def delete() -> bool:
            try:
                owned = await self._owned(caller, operation, topic, serving)
            except _NoTopicError:
                return False
            await asyncio.wrap_future(self._topics.delete(owned.name))
            return True

        return self._runtime.submit(delete())

    def change_acl(
        self, caller: str, topic: str, given: Mapping[str, tuple[str, ...]], *, redirected: bool
    ) -> Future[TopicACL]:
        """Change the given lists of a topic's ACL. The future has the whole ACL after the change. A
        topic that does not exist is created if a list is given.

        The future's errors are those of `QueueTopics.serve` and `ACLChanges.change`,
        `NotAllowedError`, and `InvalidInputError` if no list is given and there is no such topic.
        """
        operation, create = Operation.ADMINISTER, bool(given)
        serving = self._topics.serve(caller, operation, topic, redirected=redirected, create=create)

        async def change() -> TopicACL:
            owned = await self._owned(caller, operation, topic, serving)
            return await self._acl_changes.change(owned, given)

        return self._runtime.submit(change())

    async def _owned(
        self, caller: str, operation: Operation, topic: str, serving: Future[OwnedTopic]
    ) -> OwnedTopic:
        """Return the topic once this hub owns it, if the caller may do this with it."""
        try:
            owned = await asyncio.wrap_future(serving)
            self._topics.check_allowed(caller, operation, owned)
        except NoSubscriptionStateError as exc:
            raise _NoTopicError("there is no such topic", topic=topic) from exc
        return owned


class _NoTopicError(InvalidInputError):
    """There is no such topic."""
