"""What is done with a topic as a whole: it is moved to another hub, or deleted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from hqueue import Address, InvalidInputError
from hqueue.errors import NoSubscriptionStateError, NotAllowedError
from hqueue_workers.hub.authorizer import Authorizer
from hqueue_workers.hub.owned import OwnedTopic, RedirectedError
from hqueue_workers.hub.region import Region

__all__ = ["Managing"]


class Managing:
    """Moves and deletes topics of a queue. Thread-safe.

    To move a topic its owner leaves it as it does when it sheds load, and sends its caller to the
    hub that was named, which makes it its own. Any other hub sends its caller to the owner.

    Args:
        region: the topics.
        me: this hub.
        hubs: those that are available; it may ask ZooKeeper.
        authorizer: who may do what.
        pool: the threads.
    """

    def __init__(
        self,
        region: Region,
        me: Address,
        hubs: Callable[[], Mapping[Address, object]],
        authorizer: Authorizer,
        pool: ThreadPoolExecutor,
    ) -> None:
        self._region = region
        self._me = me
        self._hubs = hubs
        self._authorizer = authorizer
        self._pool = pool

    def move(self, caller: str, topic: str, to: Address, *, redirected: bool) -> Future[None]:
        """Done when this hub is the one that was named, and owns the topic.

        The future's errors are those of `Region.serve`, and `InvalidInputError` where no such hub
        is available, or there is no such topic: then nothing was done.
        """
        done: Future[None] = Future()

        def failed(error: BaseException) -> None:
            if isinstance(error, NoSubscriptionStateError):
                error = InvalidInputError("there is no such topic", topic=topic)
            done.set_exception(error)

        def served(found: Future[OwnedTopic]) -> None:
            error = found.exception()
            if error is not None:
                failed(error)
            elif to == self._me:
                done.set_result(None)
            else:
                self._region.abandon(topic).add_done_callback(
                    lambda _: done.set_exception(RedirectedError(to))
                )

        def begin() -> None:
            try:
                if to not in self._hubs():
                    raise InvalidInputError("that hub is not available", hub=str(to))
                self._region.serve(
                    caller, topic, redirected=redirected or to == self._me, create=False
                ).add_done_callback(served)
            except Exception as exc:
                failed(exc)

        self._check_allowed(caller, topic)
        self._pool.submit(begin)
        return done

    def delete(self, caller: str, topic: str, *, redirected: bool) -> Future[bool]:
        """Delete a topic once this hub owns it; whether there was one.

        The future's errors are those of `Region.serve` and `Region.delete`.
        """
        done: Future[bool] = Future()

        def failed(error: BaseException) -> None:
            if isinstance(error, NoSubscriptionStateError):
                done.set_result(False)
            else:
                done.set_exception(error)

        def deleted(ended: Future[None]) -> None:
            error = ended.exception()
            if error is None:
                done.set_result(True)
            else:
                failed(error)

        def served(found: Future[OwnedTopic]) -> None:
            error = found.exception()
            if error is None:
                self._region.delete(topic).add_done_callback(deleted)
            else:
                failed(error)

        self._check_allowed(caller, topic)
        self._region.serve(caller, topic, redirected=redirected, create=False).add_done_callback(
            served
        )
        return done

    def _check_allowed(self, caller: str, topic: str) -> None:
        if not self._authorizer.may_manage(caller, self._region.queue, topic):
            raise NotAllowedError("the caller may not manage the topic", topic=topic)
