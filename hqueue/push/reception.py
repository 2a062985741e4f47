"""The background part of a subscriber, from its start to its stop."""

from __future__ import annotations

import contextlib
import threading
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from hqueue.errors import ClosedError, HQueueError, InvalidInputError
from hqueue.handle import QueueLog
from hqueue.metadata import Address, Coordinate, Coordination, Presence, SubscriptionKey
from hqueue.metadata.registration import Registration
from hqueue.net.security import security_of
from hqueue.push.administration import SubscriberAdministration
from hqueue.push.member import SubscriberMember
from hqueue.push.serving import Serving
from hqueue.push.subscription import Subscription
from hqueue.rpc.accepting import host_towards, listen_at
from hqueue.runtime.alarm import needed_loop
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline
from hqueue.runtime.interrupts import is_interruption
from hqueue.runtime.logs import Log
from hqueue.runtime.program_loop import ProgramLoop
from hqueue.runtime.sockets import looking_up
from hqueue.runtime.steps import Work
from hqueue.runtime.stepwise import Stepwise, or_closed, stepwise
from hqueue.settings.addresses import zookeeper_servers

__all__ = ["Reception"]

logger = Log(__name__)


class Reception(Stepwise):
    """Starts and stops a subscriber, and owns its open resources. It holds no reference to it.

    Threads use it, or one event loop that has one call under way at a time.

    Args:
        log: the queue's log.
        subscription: the messages to receive.
        serving: serves the calls.
        coordinate: opens a session with the coordination service.
        port, host, listen_host, shared: as `hqueue.push.subscriber.SubscriberOptions` says.
        loop: the event loop that the subscriber belongs to; None if threads use it.

    Raises:
        InvalidInputError: the queue has no such partition.
    """

    def __init__(
        self,
        log: QueueLog,
        subscription: Subscription,
        serving: Serving,
        *,
        coordinate: Coordinate,
        port: int,
        host: str | None,
        listen_host: str | None,
        shared: bool,
        loop: ProgramLoop | None,
    ) -> None:
        self.name = subscription.name
        """The subscriber's name."""
        self.serving = serving
        self.lock: AbstractContextManager[object] = threading.RLock()
        """Held by the thread that starts or stops it."""
        if loop is not None:
            self.lock = contextlib.nullcontext()
        self.address: Address | None = None
        """Where it listens; None before the start."""
        self.coordination: Coordination | None = None
        self.failure: HQueueError | None = None
        """The error with which the subscriber ended although it was not stopped."""
        self.begun = self.ended = False
        self._starts = subscription.starts(log.partitions)
        self._log = log
        self._subscription = subscription
        self._coordinate = coordinate
        self._port = port
        self._host = host
        self._listen_host = listen_host
        self._loop = loop
        self._registration: Registration | None = None
        self.member: SubscriberMember | None = None
        """Its place among those that share the partitions; None if it shares them with nobody."""
        if shared:
            self.member = SubscriberMember(
                log.name,
                self.name,
                self._starts,
                every=len(self._starts) == log.partitions,
                timeout_ms=subscription.delivery.timeout_ms,
                on_failure=self._fail,
                loop=loop,
            )

    @property
    def partitions(self) -> list[int]:
        """The partitions that it receives."""
        return sorted(self._starts if self.member is None else self.member.partitions)

    @property
    def is_open(self) -> bool:
        """Whether it was started, and there is something to end."""
        return self.begun and not self.ended

    @stepwise
    def start(self) -> Work[Any, None]:
        """Like `hqueue.Subscriber.start`."""
        with self.lock:
            if self.begun:
                raise ClosedError("the subscriber was started already: a subscriber starts once")
            self.begun = True
            yield from or_closed(self._start(), self.end, self._loop or needed_loop())
        logger.info("subscriber %s of %s listens at %s", self.name, self._log.name, self.address)

    def _start(self) -> Work[Any, None]:
        security = security_of(self._log.settings)
        guard = None
        if security is not None:
            guard = security.delivery_guard()
            security.check_shown(self._host or "")
        zookeeper = self._log.settings.zookeeper
        at, _ = zookeeper_servers(zookeeper)[0]
        host = self._host or (yield looking_up(at, partial(_host_towards, zookeeper)))
        listen_host = self._listen_host or host
        listener = yield looking_up(listen_host, partial(listen_at, listen_host, self._port))
        self.address = Address(host, listener.getsockname()[1])
        member = self.member
        self.serving.start(listener, None if member is None else member.call, guard)
        self.coordination = self._coordinate(self._loop)
        keys = {
            SubscriptionKey(self._log.name, partition, self.name): start
            for partition, start in self._starts.items()
        }
        yield SubscriberAdministration(self.coordination).create_checkpoints.asked(
            self._log, keys, reset=self._subscription.reset
        )
        delivery, topics = self._subscription.delivery, self._subscription.topics
        presence = Presence(self.address, topics or None, delivery)
        if member is not None:
            yield member.start.asked(self.coordination, presence)
        else:
            self._registration = yield self.coordination.subscriptions.register.asked(
                self._log.name, self.name, presence, self.partitions, self._fail
            )
        if self.ended:  # By a handler of a signal, in the middle of it.
            raise ClosedError("the subscriber was stopped while it started")

    def check_caller(self) -> None:
        """Check that the caller may wait until the subscriber has stopped.

        Raises:
            InvalidInputError: the caller is a listener, which would wait for itself.
        """
        if self.serving.is_caller():
            raise InvalidInputError(
                "a listener can't stop its own subscriber: call request_stop instead"
            )

    @stepwise
    def stop(self, reason: str) -> Work[Any, bool]:
        """Like `hqueue.Subscriber.stop`."""
        with self.lock:
            if not self.is_open:
                return True
            logger.info("subscriber %s of %s stops: %s", self.name, self._log.name, reason)
            return (yield from self.end.steps())

    @stepwise
    def end(self) -> Work[Any, bool]:
        """Unregister, and free everything. Returns whether the calls under way ended in time.
        Workers first see that the subscriber is gone, so no further calls come.
        """
        deadline = Deadline(SYSTEM_CLOCK, self._subscription.delivery.timeout_ms)
        if self._registration is not None:
            yield self._registration.close.asked()
        if self.member is not None:
            yield self.member.leave.asked(deadline.remaining_ms)
        drained: bool = yield self.serving.closing(deadline.remaining_ms)
        if self.coordination is not None:
            yield self.coordination.close.asked()
        if self.member is not None:
            yield self.member.close.asked()
        self.ended = True
        self.serving.wanted_end.set()
        return drained

    def _fail(self, error: HQueueError) -> None:
        """Note that it can't be present any more: its session was lost, and another subscriber took
        its name.
        """
        self.failure = error
        self.serving.wanted_end.set()


def _host_towards(zookeeper: str) -> str:
    """The address from which this machine reaches ZooKeeper. Sends nothing."""
    try:
        return host_towards(*zookeeper_servers(zookeeper)[0])
    except OSError as exc:
        if is_interruption(exc):
            raise
        raise InvalidInputError(
            "this machine's address can't be found, because ZooKeeper can't be reached: give a "
            "host",
            zookeeper=zookeeper,
            reason=str(exc),
        ) from exc
