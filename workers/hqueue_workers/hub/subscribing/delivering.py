"""Delivery to the subscriptions that have messages waiting, with a bounded number of calls."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import itertools
import logging
from collections.abc import Awaitable, Callable, Sequence

from hqueue import HQueueError, MessageID, Queue
from hqueue.engine import LoopReader, TopicPast
from hqueue.metadata import DeliveryOptions
from hqueue.metadata.managers import LogRange
from hqueue.metadata.unanswered_calls import UnansweredCalls
from hqueue.net.security import PortSecurity
from hqueue.runtime.clock import Deadline
from hqueue.runtime.logs import Log
from hqueue_workers.delivery.caller import Caller
from hqueue_workers.delivery.connection_pool import NoAnswerError
from hqueue_workers.delivery.cursor import Cursor
from hqueue_workers.delivery.segment import SubscriptionFilter
from hqueue_workers.delivery.suspects import messages_max
from hqueue_workers.delivery.tries import Decision, Tries
from hqueue_workers.delivery.wire import Call
from hqueue_workers.hub.limits import HubLimits
from hqueue_workers.hub.metrics import HubMetrics
from hqueue_workers.hub.subscribing.backlogs import Backlogs, OpenTopic
from hqueue_workers.hub.subscribing.endpoints import SubscriberEndpoint, SubscriberEndpoints
from hqueue_workers.hub.subscribing.share import Share
from hqueue_workers.hub.subscribing.subscription_session import SubscriptionSession
from hqueue_workers.node.lease import Lease
from hqueue_workers.node.runtime import Runtime

__all__ = ["Delivering"]

logger = Log(__name__)

OPTIONS = DeliveryOptions(batch_bytes_max=256 * 1024)
RECENT = SubscriptionFilter("", None, OPTIONS.batch_messages_max, OPTIONS.batch_bytes_max)
"""The filter of reads from memory: it passes all messages of the topic."""
READ_BYTES = 1024 * 1024
LOOK_MS = 10_000.0
ERROR_MS = 1_000.0


class Delivering:
    """Delivers messages to the subscriptions of one queue. Subscriptions take turns, and each has
    one call at a time, in order. A subscription without waiting messages, or with a full window,
    costs nothing. Used by the event loop.

    Recent messages come from memory, and older ones from the log, by `Backlogs`. Before the first
    read of the log for a subscription that was just attached, a cheap check finds out whether there
    is anything to read: for most there is not.

    A call that has no answer, or is answered with *retry*, is repeated with the same messages after
    a pause, during which it holds no memory. Rejected messages become dead letters.
    An address that did not answer, or was never called, gets one call at a time until it answers.
    All such addresses together have half of the calls, and the addresses of one client's host no
    more than that half leaves free; of all calls, one host has at most three quarters. So addresses
    that hang hold up neither the others nor new clients.

    Args:
        queue: the queue.
        past: knows what topics had before.
        ranges_of: gives the ranges of the log in which a topic lies.
        log: the reader of the log.
        open_topic: opens cursors in topics.
        patience: the bound on a read of the log, with its retries.
        runtime: the hub's runtime.
        lease: whether the hub's session is certainly alive: asked before each piece is sent.
        may_reach: whether an IP address may be called. Subscribers can name any address.
        store: stores a subscription's cursor.
        moved: called with a subscription whose cursor must be stored soon.
        metrics: the hub's metrics.
        calls_max: the most calls at a time.
        limits: the bounds that no setting changes.
        security: the TLS settings of calls; calls are in clear if None.
    """

    def __init__(
        self,
        queue: Queue,
        past: TopicPast,
        ranges_of: Callable[[str], Sequence[LogRange]],
        log: LoopReader,
        open_topic: OpenTopic,
        *,
        patience: Callable[[], Deadline],
        runtime: Runtime,
        lease: Lease,
        may_reach: Callable[[str], bool],
        store: Callable[[SubscriptionSession], Awaitable[object]],
        moved: Callable[[SubscriptionSession], object],
        metrics: HubMetrics,
        calls_max: int,
        limits: HubLimits,
        security: PortSecurity | None = None,
    ) -> None:
        self._queue = queue
        self._fault = f"topics of {queue.name}"
        self._past = past
        self._ranges_of = ranges_of
        self._dropping = False
        self._runtime = runtime
        self._lease = lease
        self.caller = Caller(queue, OPTIONS, lease, runtime)
        """Makes the calls."""
        self.backlogs = Backlogs(
            queue,
            log,
            open_topic,
            OPTIONS,
            runtime=runtime,
            patience=patience,
            readings_max=calls_max,
            limits=limits,
        )
        """Reads messages that are not in memory."""
        self._store = store
        self._moved = moved
        self._metrics = metrics
        self._calls_max = calls_max
        self._ready: collections.deque[SubscriptionSession] = collections.deque()
        self._running = 0
        self._all = Share(calls_max, 3)
        self._probing = Share(max(1, calls_max // 2), 1)
        """The part of these calls for addresses that did not answer."""
        self._endpoints = SubscriberEndpoints(lambda: self._lease.holds, may_reach, security)

    def wake(self, subscription: SubscriptionSession) -> None:
        """Start delivery to a subscription if it has messages waiting."""
        if subscription.queued or subscription.running or subscription.left:
            return
        if subscription.position < subscription.topic.end and subscription.room > 0:
            self._enqueue(subscription)

    def _enqueue(self, subscription: SubscriptionSession) -> None:
        subscription.queued = True
        self._ready.append(subscription)
        if self._running < self._calls_max:
            self._running += 1
            self._runtime.start(self._run())

    def _again(self, subscription: SubscriptionSession) -> None:
        """Go on after a pause."""
        subscription.queued = False
        self.wake(subscription)

    async def _run(self) -> None:
        try:
            while self._ready:
                subscription = self._ready.popleft()
                endpoint = self._endpoints.at(
                    subscription.delivery.address, subscription.delivery.principal
                )
                if subscription.left:
                    self._give_turns(endpoint)
                else:
                    await self._turn(subscription, endpoint)
        finally:
            self._running -= 1

    async def _turn(self, subscription: SubscriptionSession, endpoint: SubscriberEndpoint) -> None:
        """Give a subscription its turn, or let it wait for its share or a connection."""
        if endpoint.room <= 0:
            endpoint.waiting.append(subscription)
            return
        host = subscription.delivery.host
        shares = [self._probing, self._all] if endpoint.silent else [self._all]
        full = next((share for share in shares if not share.has_room(host)), None)
        if full is not None:
            full.wait(subscription)
            self._give_turns(endpoint)  # Others may wait for the room that this one leaves.
            return
        endpoint.busy += 1
        for share in shares:
            share.take(host)
        subscription.running = True
        pause_ms = 0.0
        try:
            pause_ms = await self._deliver(subscription, endpoint)
        except HQueueError as exc:
            text = "subscribers to topics of queue %s get no messages now: %s"
            self._runtime.faults.met(self._fault, text, self._queue.name, exc)
            pause_ms = ERROR_MS
        else:
            text = "subscribers to topics of queue %s get messages again"
            self._runtime.faults.over(self._fault, text, self._queue.name)
        finally:
            endpoint.busy -= 1
            for share in shares:
                share.give_back(host)
            subscription.running = subscription.queued = False
            if subscription.ended is not None and not subscription.ended.done():
                subscription.ended.set_result(None)
        if subscription.dirty:
            self._moved(subscription)
        self._give_turns(endpoint)
        if subscription.left:
            return
        if pause_ms:
            self._pause(subscription, pause_ms)
        else:
            self.wake(subscription)

    def _give_turns(self, endpoint: SubscriberEndpoint) -> None:
        """Give turns to subscriptions that wait for an endpoint or a share that has room now."""
        room = endpoint.room
        while endpoint.waiting and room > 0:
            waited = endpoint.waiting.popleft()
            self._again(waited)
            room -= waited.queued
        for share in (self._all, self._probing):
            following = share.next()
            while following is not None:
                self._again(following)
                following = None if following.queued else share.next()

    def _pause(self, subscription: SubscriptionSession, pause_ms: float) -> None:
        subscription.queued = True
        asyncio.get_running_loop().call_later(pause_ms / 1e3, self._again, subscription)

    async def _deliver(
        self, subscription: SubscriptionSession, endpoint: SubscriberEndpoint
    ) -> float:
        """Make one call, and act on its answer. Returns the pause before the next call."""
        if subscription.dirty and subscription.since >= subscription.interval:
            await self._store(subscription)
        await self._drop(subscription)
        if subscription.left or subscription.room <= 0:
            return 0.0
        return await self.caller.deliver(endpoint.pool, _Turn(self, subscription, endpoint))

    async def _take(self, subscription: SubscriptionSession) -> Call | None:
        """Return the next call, with all messages below its end; None if it is no longer needed."""
        subscribed, position = subscription.topic, subscription.position
        until = subscribed.end if subscription.tries.end is None else subscription.tries.end
        count = min(OPTIONS.batch_messages_max, subscription.room, subscription.interval)
        count = messages_max(subscription.suspected, position, count)
        call: Call | None
        if position >= subscribed.start:
            self.backlogs.leave(subscription)
            recent = Cursor(self._queue, RECENT, position, subscribed, self._runtime)
            call = await recent.take(subscription.tries.end, messages_max=count)
        elif not subscription.looked and not await self._may_have(subscription, until):
            call = Call(position, until)
        else:
            call = await self.backlogs.take(subscription, count)
        if call is None or subscription.left or subscription.position >= call.end:
            return None
        return call

    async def _may_have(self, subscription: SubscriptionSession, until: int) -> bool:
        """Return whether a subscription that was just attached may have missed anything."""
        owned = subscription.topic.owned
        start, stop = MessageID.from_int(subscription.position), MessageID.from_int(until)
        subscription.looked = True

        def look() -> bool:
            ranges = owned.take_ranges() or self._ranges_of(owned.name)
            return self._past.may_have(owned.name, ranges, start, stop)

        self._drop_idle_later()
        return await self._runtime.read(look)

    def _drop_idle_later(self) -> None:
        """Drop the knowledge of the past when it has not been needed for some time."""
        if not self._dropping:
            self._dropping = True
            asyncio.get_running_loop().call_later(LOOK_MS / 1e3, self._drop_idle)

    def _drop_idle(self) -> None:
        self._dropping = False
        if self._past.drop_idle():
            self._drop_idle_later()

    async def _drop(self, subscription: SubscriptionSession) -> None:
        """Skip the oldest waiting messages if there are more than the subscriber wants."""
        bound = subscription.preferences.message_bound
        if bound is None or subscription.tries.end is not None:
            return
        subscribed, position, end = (
            subscription.topic,
            subscription.position,
            subscription.topic.end,
        )
        topic, queue = subscribed.owned.name, self._queue
        if subscription.waiting is not None and subscription.waiting <= bound:
            return

        def ids(after: int, count: int | None) -> list[int]:
            """Return `count` IDs of messages, after skipping `after`; without a count, a list with
            the number of all messages.
            """
            with queue.scan_topic(
                topic,
                start=MessageID.from_int(position),
                stop=MessageID.from_int(end),
                bytes_max=READ_BYTES,
                whole=True,
            ) as scanner:
                if count is None:
                    return [sum(1 for _ in scanner)]
                return [int(each.id) for each in itertools.islice(scanner, after, after + count)]

        if subscription.waiting is None:
            subscription.waiting = 0  # What comes meanwhile is counted as it comes.
            try:
                (counted,) = await self._runtime.read(lambda: ids(0, None))
            except BaseException:
                subscription.waiting = None
                raise
            if subscription.waiting is None or subscription.position != position:
                subscription.waiting = None
                return
            subscription.waiting += counted
        more = subscription.waiting - bound
        last = await self._runtime.read(lambda: ids(more - 1, 1)) if more > 0 else []
        if last and not subscription.over and subscription.position == position:
            waiting = subscription.waiting
            subscription.passed(last, last[0] + 1)
            subscription.waiting = None if waiting is None else waiting - more
            self._metrics.dropped.inc(more)
        elif more > 0:
            subscription.waiting = None  # Some have expired: they are counted again.


@dataclasses.dataclass
class _Turn:
    """A subscription whose turn it is, as a `Receiver`."""

    of: Delivering
    subscription: SubscriptionSession
    endpoint: SubscriberEndpoint

    @property
    def name(self) -> str:
        """Like `Receiver`."""
        return self.subscription.subscriber

    @property
    def tries(self) -> Tries:
        """Like `Receiver`."""
        return self.subscription.tries

    @property
    def unanswered_calls_max(self) -> int:
        """Like `Receiver`."""
        wanted = self.subscription.preferences.unanswered_calls_max
        return OPTIONS.unanswered_calls_max if wanted is None else wanted

    @property
    def suspected(self) -> UnansweredCalls | None:
        """Like `Receiver`."""
        return self.subscription.suspected

    @suspected.setter
    def suspected(self, unanswered: UnansweredCalls | None) -> None:
        self.subscription.suspected = unanswered

    async def is_connected(self) -> bool:
        """Like `Receiver`."""
        return not self.subscription.left

    async def is_free(self) -> bool:
        """Like `Receiver`, but this hub does not know what other hubs suspect."""
        return True

    async def keep_suspected(self) -> None:
        """Like `Receiver`."""
        self.subscription.must_store = True
        await self.of._store(self.subscription)

    def halved(self) -> None:
        """Like `Receiver`."""
        self.of._metrics.halved.inc()

    async def take(self) -> Call | None:
        """Like `Receiver`."""
        return await self.of._take(self.subscription)

    def called(self, call: Call, decision: Decision, error: NoAnswerError | None) -> bool:
        """Like `Receiver`."""
        subscription, endpoint = self.subscription, self.endpoint
        if error is not None:
            self.of._endpoints.unanswered(endpoint, error)
            self.of._metrics.unanswered.inc()
            level = logging.INFO if decision.tries.failures == 1 else logging.DEBUG
            logger.log(level, "no answer from %s: %s", self.name, error)
        elif call.count:
            self.of._endpoints.answered(endpoint)
        subscription.repeat(decision.tries)
        if not subscription.over:
            self.of._metrics.retried.inc(decision.retried)
            self.of._metrics.rejected.inc(decision.rejected)
        return not subscription.over

    async def passed(self, call: Call, decision: Decision) -> None:
        """Like `Receiver`."""
        metrics, subscription, dead = self.of._metrics, self.subscription, decision.dead
        metrics.delivered.inc(call.count - len(dead))
        metrics.dead_letters.inc(len(dead))
        if subscription.over:  # It may have ended while the dead letters were written.
            return
        ids = list(itertools.chain.from_iterable(call.ids))
        for is_dead, run in itertools.groupby(range(len(ids)), dead.__contains__):
            some = [ids[index] for index in run]
            if is_dead:
                subscription.passed(some, some[-1] + 1)
            else:
                subscription.delivered(some, some[-1] + 1)
        subscription.went_on(call.end, decision.after)
