"""The topics of a queue that one hub owns, and the way of a call to its topic."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, NamedTuple

from hqueue import (
    Address,
    BufferFullError,
    HQueueError,
    Outcome,
    StoreUnavailableError,
    TopicACL,
)
from hqueue.errors import (
    NoSubscriptionStateError,
    NotAllowedError,
    NoTopicPersistenceInfoError,
)
from hqueue.metadata.managers import AvailableHub, HubInfo, TopicMetadata, Verdict
from hqueue.rpc.server import calling_host
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline
from hqueue.runtime.logs import Log
from hqueue.runtime.thread_pool import ThreadPool
from hqueue_workers.hub.authorizer import Authorizer, NameRules, Operation
from hqueue_workers.hub.metrics import HubMetrics
from hqueue_workers.hub.owning.creations import Creations
from hqueue_workers.hub.owning.flow import CREATE, OWN, SERVE, Known, Redirect, next_step
from hqueue_workers.hub.owning.leaving import leave
from hqueue_workers.hub.owning.takeover import TakeOver
from hqueue_workers.hub.owning.topic_records import Choose, Looked, TopicRecords
from hqueue_workers.hub.writing.committers import Committers
from hqueue_workers.hub.writing.owned_topic import OwnedListener, OwnedTopic, RedirectedError

__all__ = ["QueueTopics"]

logger = Log(__name__)

STEPS_MAX = 10
LOCKS = 64
TOGETHER = 64
"""This many topics are left before the event loop does something else."""
TRIES_MAX = 10
"""How often others may take a topic over at the same time before it is given up."""


class _Request(NamedTuple):
    """The caller of a request, its topic, and its kind."""

    caller: str
    operation: Operation
    topic: str
    redirected: bool
    create: bool


class _Leaving(NamedTuple):
    """A topic that this hub is releasing."""

    owned: OwnedTopic
    done: Future[None]


class QueueTopics:
    """The topics of a queue that this hub owns, or takes over when they are called for.
    Thread-safe.

    A call for a topic that this hub owns needs no other process. Any other call goes through
    `flow`, in one of a few threads; several calls for one topic go through it together, once.

    Args:
        queue: the queue.
        me: this hub.
        metadata: the metadata of the queue's topics.
        take_over: opens ranges.
        committers: the writers to partitions.
        partition_for: chooses the partition for a topic's messages.
        certain: whether the hub's session is certainly alive.
        authorizer: decides who may do what.
        names: decides who may use which names.
        metrics: the hub's metrics.
        topics_max: the most topics owned at a time.
        creations: bounds the topics that callers create.
        bound_s: the bound on the requests to ZooKeeper and HBase for one call.
        pool: the threads.
        listener: is notified of topics that are released.
        choose: chooses the hub for a topic without an owner.
        hubs: the available hubs, as last seen.
    """

    def __init__(
        self,
        queue: str,
        me: HubInfo,
        metadata: TopicMetadata,
        *,
        take_over: TakeOver,
        committers: Committers,
        partition_for: Callable[[str], int],
        certain: Callable[[], bool],
        authorizer: Authorizer,
        names: NameRules,
        metrics: HubMetrics,
        topics_max: int,
        creations: Creations,
        bound_s: float,
        pool: ThreadPool,
        listener: OwnedListener,
        choose: Choose,
        hubs: Callable[[], Mapping[Address, AvailableHub]],
    ) -> None:
        self.queue = queue
        self.committers = committers
        self._me = me
        self._metadata = metadata
        self.records = TopicRecords(
            queue, me, metadata, hubs=hubs, bound_s=bound_s, rng=random.Random(), choose=choose
        )
        """What it reads and writes on the way to owning a topic."""
        self._take_over = take_over
        self._partition_for = partition_for
        self._certain = certain
        self._authorizer = authorizer
        self._names = names
        self._metrics = metrics
        self._topics_max = topics_max
        self._creations = creations
        self._bound_s = bound_s
        self._pool = pool
        self._listener = listener
        self._lock = threading.Lock()
        self._topics: dict[str, OwnedTopic] = {}
        self._resolving: dict[_Request, Future[OwnedTopic]] = {}
        self._owning = [threading.Lock() for _ in range(LOCKS)]
        """Held while a topic is made this hub's own, so that it is once."""
        self._leaving: dict[str, _Leaving] = {}
        self._sessions = 0
        """How many sessions were lost: what was begun with one does not count with the next."""
        self.closing = False
        """Whether it ends, and takes no topic more."""

    def serve(
        self, caller: str, operation: Operation, topic: str, *, redirected: bool, create: bool
    ) -> Future[OwnedTopic]:
        """The topic, once this hub owns it. `check_allowed` says whether the caller may do the
        operation with the topic as it then is.

        The future's errors are `RedirectedError` if another hub owns the topic; `BufferFullError`
        if this hub owns the maximum number of topics; those of the store; `NotAllowedError` if
        there is no such topic, and the caller may not create it or do the operation with any topic;
        and `NoSubscriptionStateError` if there is no such topic and `create` is false.
        """
        owned = self.serving(topic)
        if owned is None:
            request = _Request(caller, operation, topic, redirected, create)
            return self._resolve(request)
        done: Future[OwnedTopic] = Future()
        done.set_result(owned)
        return done

    def serving(self, topic: str) -> OwnedTopic | None:
        """The topic, if this hub certainly owns it now."""
        owned = self._topics.get(topic)
        return owned if owned is not None and not owned.fenced and self._certain() else None

    def is_owned(self, owned: OwnedTopic) -> bool:
        """Whether this ownership lasts."""
        return self._topics.get(owned.name) is owned and not owned.fenced

    def check_allowed(self, caller: str, operation: Operation, owned: OwnedTopic) -> None:
        """Return if a caller may do this with a topic, by the current rules and ACL.

        Raises:
            NotAllowedError: it may not.
        """
        self._check_allowed(caller, operation, owned.name, owned.acl)

    def check_name(
        self, principal: str | None, operation: Operation, topic: str, name: str, owner: str | None
    ) -> None:
        """Return if a principal may do this with a topic under the name of a publisher or a
        subscriber.

        Args:
            principal: the proven principal of the caller; None if callers need not prove theirs:
                then every name is allowed.
            owner: the principal that owns the name; None if it has no owner yet.

        Raises:
            NotAllowedError: it may not.
        """
        if principal is None or self._names.allows(
            principal, operation, self.queue, topic, name, owner=owner
        ):
            return
        raise NotAllowedError(
            "this principal may not use this name for a publisher or subscriber: use the "
            "principal's own name, or allow this name with 'hqueue access' or the hub's setting "
            "'names'",
            operation=operation.value,
            topic=topic,
            name=name,
            principal=principal,
        )

    def end_of(self, owned: OwnedTopic) -> int:
        """The ID below which no message will be appended to the topic from now on.

        Raises:
            StoreUnavailableError: the ID is not known now.
        """
        return max(owned.first, self.committers.of(owned.partition).end)

    def owned(self) -> list[OwnedTopic]:
        """The topics that this hub owns now."""
        with self._lock:
            return list(self._topics.values())

    def lose(self) -> None:
        """Drop all topics, including those being released, because the session was lost: other
        hubs may own them by now.
        """
        with self._lock:
            self._sessions += 1
            lost = [*self._topics.values(), *(each.owned for each in self._leaving.values())]
            self._topics = {}
        for owned in lost:
            self.committers.of(owned.partition).drop(owned)
        self._listener.lost(lost)

    def fenced(self, owned: OwnedTopic) -> None:
        """Drop a topic whose range another owner has closed."""
        with self._lock:
            if self._topics.get(owned.name) is owned:
                del self._topics[owned.name]
                self._metrics.fenced.inc()
        self._listener.lost([owned])

    def abandon(self, topic: str) -> Future[None]:
        """Release a topic to other hubs: accept no more messages, append those that wait, release
        the topic. Calls that come meanwhile wait, and are then resolved again.
        """
        with self._lock:
            leaving = self._leaving.get(topic)
            if leaving is not None:
                return leaving.done
            owned = self._topics.get(topic)
            done: Future[None] = Future()
            if owned is None:
                done.set_result(None)
            else:
                self._begin_leaving(owned, done)
        return done

    def delete(self, topic: str) -> Future[None]:
        """Delete a topic that this hub owns: accept no more messages, append those that wait, close
        its range for good, delete its records, release it. If this fails half-way, another call
        finishes it.

        The future's errors are those of the store.
        """
        deleted: Future[None] = Future()
        with self._lock:
            owned = self._topics.get(topic)
            if owned is None or topic in self._leaving:
                deleted.set_exception(
                    StoreUnavailableError(
                        "the topic is moving to another hub",
                        outcome=Outcome.NOT_APPLIED,
                        topic=topic,
                    )
                )
                return deleted
            self._begin_leaving(owned, Future(), deleted)
        return deleted

    def _begin_leaving(
        self, owned: OwnedTopic, done: Future[None], deleted: Future[None] | None = None
    ) -> None:
        """Release a topic in a thread; the lock is held. If no thread can be started, this raises,
        and this hub keeps the topic.
        """
        self._pool.submit(self._leave, owned, done, deleted)
        del self._topics[owned.name]
        self._leaving[owned.name] = _Leaving(owned, done)

    async def close(self, wait_s: float) -> None:
        """Release all topics, including those that are being taken over, as many as the time
        allows. On an event loop.
        """
        deadline = Deadline(SYSTEM_CLOCK, wait_s * 1e3)
        with self._lock:
            self.closing = True
            resolving = list(self._resolving.values())
        await _ended(resolving, deadline)
        ending = []
        for number, owned in enumerate(self.owned(), 1):
            ending.append(self.abandon(owned.name))
            if not number % TOGETHER:
                await asyncio.sleep(0)
        late = await _ended(ending, deadline)
        if late:  # Others take them over when this hub is gone.
            logger.info("%d topics were not released in time", late)

    def _check_allowed(self, caller: str, operation: Operation, topic: str, acl: TopicACL) -> None:
        if not self._authorizer.allows(caller, operation, self.queue, topic, acl):
            raise NotAllowedError(
                "the caller may not do this with the topic: see its ACL, and the access rules",
                operation=operation.value,
                topic=topic,
            )

    def _resolve(self, key: _Request) -> Future[OwnedTopic]:
        """Run the flow, once for all that ask at the same time."""
        if not self._certain():
            raise StoreUnavailableError(
                "the hub can't confirm its session with ZooKeeper now: try again",
                outcome=Outcome.NOT_APPLIED,
                queue=self.queue,
            )
        topic, host = key.topic, calling_host()
        with self._lock:
            if self.closing:
                raise StoreUnavailableError(
                    "the hub is shutting down", outcome=Outcome.NOT_APPLIED, queue=self.queue
                )
            under_way = self._resolving.get(key)
            if under_way is not None:
                return under_way
            if topic not in self._topics and len(self._topics) >= self._topics_max:
                raise BufferFullError(
                    "the hub owns the most topics that its setting topics_max allows: try again "
                    "later, or raise it",
                    topics_max=self._topics_max,
                )
            done = self._resolving[key] = Future()
            leaving = self._leaving.get(topic)

        def start(_: object = None) -> None:
            try:
                self._pool.submit(self._run_flow, key, host, done)
            except HQueueError as exc:
                self._end(key, done, exc)

        if leaving is None:
            start()
        else:
            leaving.done.add_done_callback(start)
        return done

    def _run_flow(self, key: _Request, host: str, done: Future[OwnedTopic]) -> None:
        try:
            owned = self._flow(key, host)
        except FutureTimeoutError as exc:
            late = StoreUnavailableError(
                "ZooKeeper or HBase did not answer in time", outcome=Outcome.NOT_APPLIED
            )
            late.__cause__ = exc
            self._end(key, done, late)
        except BaseException as exc:
            if isinstance(exc, HQueueError):  # Whatever came of it, nothing was published.
                exc.outcome = Outcome.NOT_APPLIED
            self._end(key, done, exc)
        else:
            with self._lock:
                del self._resolving[key]
            done.set_result(owned)

    def _end(self, key: _Request, done: Future[OwnedTopic], error: BaseException) -> None:
        with self._lock:
            self._resolving.pop(key, None)
        done.set_exception(error)

    def _flow(self, key: _Request, host: str) -> OwnedTopic:
        caller, operation, topic, redirected, create = key
        looked = self.records.look(topic)
        for _ in range(STEPS_MAX):
            step = next_step(
                looked.known, self._me.address, redirected=redirected, choose=self.records.choose
            )
            if isinstance(step, Redirect):
                self._metrics.redirects.inc()
                raise RedirectedError(step.address)
            if step is CREATE:
                if not create:
                    self._check_allowed(caller, operation, topic, TopicACL())
                    raise NoSubscriptionStateError("there is no such topic", topic=topic)
                self._check_allowed(caller, Operation.CREATE, topic, TopicACL())
                self._creations.count(caller, host)
                looked = self.records.create(topic, looked)
            elif step is OWN:
                verdict, owned = self._own(topic, looked)
                looked = (
                    self.records.look(topic)
                    if verdict is None
                    else Looked(Known(True, verdict.owner.address, verdict.won), None, None)
                )
            elif step is SERVE:
                assert owned is not None
                return owned
        raise StoreUnavailableError(
            "other clients keep creating and deleting the topic: try again",
            outcome=Outcome.NOT_APPLIED,
            topic=topic,
            queue=self.queue,
        )

    def _own(self, topic: str, looked: Looked) -> tuple[Verdict | None, OwnedTopic | None]:
        """Try to become a topic's owner, and open a range if that succeeds: at first by what was
        read. No verdict: the topic was deleted meanwhile.
        """
        info, instead_of = looked.info, looked.instead_of
        with self._owning[hash(topic) % LOCKS]:
            with self._lock:
                owned = self._topics.get(topic)
                sessions = self._sessions
            if owned is not None and not owned.fenced:
                return owned.verdict, owned
            owned = None
            for _ in range(TRIES_MAX):
                verdict = self.records.acquire(topic, instead_of)
                if not verdict.won:
                    return verdict, None
                try:
                    partition = self._partition_for(topic)
                    owned = self._take_over.open(topic, verdict, partition, info)
                except NoTopicPersistenceInfoError:
                    self._metadata.election.release(topic, verdict).result(self._bound_s)
                    return None, None
                if owned is not None:
                    break
                info = instead_of = None  # It is not as it was read.
            else:
                raise StoreUnavailableError(
                    "other hubs took over the topic before every attempt: try again",
                    outcome=Outcome.NOT_APPLIED,
                    topic=topic,
                    queue=self.queue,
                )
            self._metrics.take_overs.inc()
            with self._lock:
                if sessions == self._sessions and not owned.fenced:
                    self._topics[topic] = owned
                # Else it may be another's: what was called for is appended if it is not fenced.
            return verdict, owned

    def _leave(
        self, owned: OwnedTopic, done: Future[None], deleted: Future[None] | None = None
    ) -> None:
        error: BaseException | None = None
        with self._lock:
            pass  # From here on nothing more is accepted of the topic.
        try:
            committer = self.committers.of(owned.partition)
            bound_s, delete = self._bound_s, deleted is not None
            leave(owned, self._metadata, committer, self._listener, bound_s, delete=delete)
        except BaseException as exc:  # It is this hub's still, and is made its own again.
            expected = isinstance(exc, (HQueueError, FutureTimeoutError))
            logger.log(
                logging.INFO if expected else logging.ERROR,
                "topic %r was not released: %s",
                owned.name,
                exc,
                exc_info=not expected,
            )
            error = exc
        finally:
            with self._lock:
                self._leaving.pop(owned.name, None)
            done.set_result(None)
            if deleted is not None and error is None:
                deleted.set_result(None)
            elif deleted is not None:
                late = StoreUnavailableError(
                    "the topic was not deleted, or only partly: delete it again",
                    outcome=Outcome.UNKNOWN,
                )
                late.__cause__ = error
                deleted.set_exception(late)


async def _ended(futures: Iterable[Future[Any]], deadline: Deadline) -> int:
    """Wait for all of these futures. Returns how many have not ended in time."""
    waiting = {asyncio.wrap_future(each) for each in futures}
    for each in waiting:
        each.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    if not waiting:
        return 0
    return len((await asyncio.wait(waiting, timeout=deadline.remaining_ms / 1e3))[1])
