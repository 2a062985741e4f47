"""What is done with a topic as a whole: it is moved to another hub, deleted, or given rules."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from typing import Any, Protocol

from hqueue import Address, InvalidInputError, TopicAccess
from hqueue.errors import NoSubscriptionStateError
from hqueue.runtime.thread_pool import ThreadPool
from hqueue_workers.hub.authorizer import Action
from hqueue_workers.hub.owning.region import Region
from hqueue_workers.hub.serving.access import AccessChanges
from hqueue_workers.hub.writing.owned import OwnedTopic, RedirectedError

__all__ = ["Managing"]


class _Loop(Protocol):
    """An event loop that runs in another thread."""

    def submit(self, work: Coroutine[Any, Any, TopicAccess]) -> Future[TopicAccess]: ...


class Managing:
    """Moves and deletes topics of a queue, and changes their rules. Thread-safe.

    To move a topic its owner leaves it as it does when it sheds load, and sends its caller to the
    hub that was named, which makes it its own. Any other hub sends its caller to the owner.

    Args:
        region: the topics.
        me: this hub.
        hubs: those that are available; it may ask ZooKeeper.
        access: changes rules.
        runtime: the loop that it does so on.
        pool: the threads.
    """

    def __init__(
        self,
        region: Region,
        me: Address,
        hubs: Callable[[], Mapping[Address, object]],
        *,
        access: AccessChanges,
        runtime: _Loop,
        pool: ThreadPool,
    ) -> None:
        self._region = region
        self._me = me
        self._hubs = hubs
        self._access = access
        self._runtime = runtime
        self._pool = pool

    def move(self, caller: str, topic: str, to: Address, *, redirected: bool) -> Future[None]:
        """Done when this hub is the one that was named, and owns the topic.

        The future's errors are those of `Region.serve`, `NotAllowedError`, and `InvalidInputError`
        where no such hub is available, or there is no such topic: then nothing was done.
        """
        done: Future[None] = Future()

        def served(owned: OwnedTopic) -> None:
            if to == self._me:
                done.set_result(None)
            else:
                self._region.abandon(owned.name).add_done_callback(
                    lambda _: done.set_exception(RedirectedError(to))
                )

        def begin() -> None:
            try:
                if to not in self._hubs():
                    raise InvalidInputError("that hub is not available", hub=str(to))
                self._serve(caller, topic, done, served, redirected=redirected or to == self._me)
            except BaseException as exc:  # Its caller must learn it.
                done.set_exception(exc)

        self._pool.submit(begin)
        return done

    def delete(self, caller: str, topic: str, *, redirected: bool) -> Future[bool]:
        """Delete a topic once this hub owns it; whether there was one.

        The future's errors are those of `Region.serve` and `Region.delete`, and `NotAllowedError`.
        """
        found: Future[None] = Future()
        done: Future[bool] = Future()

        def ended(_: object) -> None:
            error = found.exception()
            if error is None or isinstance(error, _NoTopicError):
                done.set_result(error is None)
            else:
                done.set_exception(error)

        def served(owned: OwnedTopic) -> None:
            self._region.delete(owned.name).add_done_callback(lambda ended: _pass_on(ended, found))

        found.add_done_callback(ended)
        self._serve(caller, topic, found, served, redirected=redirected)
        return done

    def change_access(
        self, caller: str, topic: str, given: Mapping[str, tuple[str, ...]], *, redirected: bool
    ) -> Future[TopicAccess]:
        """Change those of a topic's rules that are given; all as they are then. A topic that is not
        there is created, if something is given.

        The future's errors are those of `Region.serve` and `AccessChanges.change`,
        `NotAllowedError`, and `InvalidInputError` where nothing is given, and there is no such
        topic.
        """
        done: Future[TopicAccess] = Future()

        def served(owned: OwnedTopic) -> None:
            changed = self._runtime.submit(self._access.change(owned, given))
            changed.add_done_callback(lambda ended: _pass_on(ended, done))

        self._serve(caller, topic, done, served, redirected=redirected, create=bool(given))
        return done

    def _serve(
        self,
        caller: str,
        topic: str,
        done: Future[Any],
        work: Callable[[OwnedTopic], None],
        *,
        redirected: bool,
        create: bool = False,
    ) -> None:
        """Do something once this hub owns the topic, and the caller may."""

        def served(found: Future[OwnedTopic]) -> None:
            try:
                owned = found.result()
                self._region.check_allowed(caller, Action.MANAGE, owned)
                work(owned)
            except NoSubscriptionStateError:
                done.set_exception(_NoTopicError("there is no such topic", topic=topic))
            except BaseException as exc:  # Its caller must learn it.
                done.set_exception(exc)

        self._region.serve(caller, topic, redirected=redirected, create=create).add_done_callback(
            served
        )


class _NoTopicError(InvalidInputError):
    """There is no such topic."""


def _pass_on(ended: Future[Any], to: Future[Any]) -> None:
    error = ended.exception()
    if error is None:
        to.set_result(ended.result())
    else:
        to.set_exception(error)
