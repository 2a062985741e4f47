"""A subscriber: registered in ZooKeeper, and listening for workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypedDict

from hqueue.errors import HQueueError, InvalidInputError
from hqueue.handle import QueueLog
from hqueue.metadata import (
    Address,
    Coordinate,
    DeliveryOptions,
)
from hqueue.push.listener import Listener
from hqueue.push.reception import Reception
from hqueue.push.serving import Serving, ThreadServing
from hqueue.push.subscription import Subscription
from hqueue.runtime.forgotten import Watched
from hqueue.runtime.fork import OwnProcess
from hqueue.runtime.logs import Log
from hqueue.runtime.program_loop import ProgramLoop
from hqueue.runtime.stopping import stopping
from hqueue.settings.addresses import PORT_MAX, is_host
from hqueue.settings.kinds import check_kind, check_timeout_s
from hqueue.settings.numbers import check_whole

__all__ = ["Subscriber", "SubscriberOptions", "reception_of"]

logger = Log(__name__)


class SubscriberOptions(TypedDict, total=False):
    """The options of a `Subscriber`: where it listens, and how it handles deliveries."""

    port: int
    """The port to listen on; any free port if 0, the default."""

    host: str | None
    """The host that workers connect to, which is also listened on. If None, the default, this
    machine's address towards ZooKeeper.
    """

    listen_host: str | None
    """The host to listen on, if it differs from `host`."""

    calls_max: int
    """How many deliveries to handle at a time; 1 by default. With more, the listeners must be
    thread-safe. Messages of one partition stay in order.
    """

    connections_max: int
    """How many connections of workers to accept; further ones wait. 1,024 by default."""

    shared: bool
    """Whether to share the partitions with all other subscribers of this name that share them, too.
    False by default: then only one subscriber of this name may be connected.
    """


class Subscriber:
    """Receives the messages of a subscription, which workers deliver. Made by `Queue.subscriber`.

    From `start` to `stop` it is registered in ZooKeeper, with a session of its own, and serves
    ``HQueueSubscriberService`` for the workers, which deliver at least once, and in order within a
    partition. It calls the listeners in threads of its own. When the session is lost, it registers
    again. When its process dies, its registration ends with the session; its checkpoints stay, and
    the next subscriber of its name continues there.

    **Shared**, it is one of any number of members: processes with subscribers of the same name.
    Each member is registered for a share of the partitions, which changes as members come and go.
    Each partition belongs to one member. A member hands a partition over after its calls for the
    partition have ended, and handles no call for a partition that another member may have. So two
    calls for one partition are never handled at the same time, as long as calls take no longer than
    half the session's time-out, or the connection to ZooKeeper is not cut for that long.

    Use it as a context manager, or `stop` it. A subscriber that was never stopped is stopped when
    Python collects it, with a `ResourceWarning`: keep a reference for as long as you want messages.
    It can't be used in a forked child.

    Args:
        log: the queue's log.
        subscription: the messages to receive.
        listeners: the listeners that get the messages. They are called in turn, one for each
            delivery.
        coordinate: opens a session with the coordination service.
        serving: makes what serves the calls.
        loop: the event loop that the subscriber belongs to; None if threads use it.
        port, host, listen_host, calls_max, connections_max, shared: as `SubscriberOptions` says.

    Raises:
        InvalidInputError: an argument is out of range.
    """

    def __init__(
        self,
        log: QueueLog,
        subscription: Subscription,
        listeners: Sequence[Listener] | Listener,
        *,
        coordinate: Coordinate,
        serving: Callable[
            [Sequence[Listener] | Listener, int, int, DeliveryOptions, str], Serving
        ] = ThreadServing,
        loop: ProgramLoop | None = None,
        port: int = 0,
        host: str | None = None,
        listen_host: str | None = None,
        calls_max: int = 1,
        connections_max: int = 1_024,
        shared: bool = False,
    ) -> None:
        port = check_whole(port, 0, PORT_MAX, option="port")
        calls_max = check_whole(calls_max, 1, 256, option="calls_max")
        connections_max = check_whole(connections_max, 1, 65_536, option="connections_max")
        if not isinstance(shared, bool):
            raise InvalidInputError("shared must be True or False", shared=shared)
        check_kind(subscription, Subscription, "subscription")
        for name, given in (("host", host), ("listen_host", listen_host)):
            if given is not None and not is_host(given):
                raise InvalidInputError("this is not a valid host name", option=name, host=given)
        served = serving(
            listeners, calls_max, connections_max, subscription.delivery, subscription.name
        )
        self._reception = reception = Reception(
            log,
            subscription,
            served,
            coordinate=coordinate,
            port=port,
            host=host,
            listen_host=listen_host,
            shared=shared,
            loop=loop,
        )
        self._process = OwnProcess("a subscriber")
        self._watched = Watched(
            self, "a subscriber", reception.end, needed=lambda: reception.is_open
        )

    def __enter__(self) -> Subscriber:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def name(self) -> str:
        """The subscriber's name, as in its subscription."""
        return self._reception.name

    @property
    def failure(self) -> HQueueError | None:
        """The error that ended the subscriber; None while it works, or if it was stopped."""
        return self._reception.failure

    @property
    def partitions(self) -> list[int]:
        """The partitions that it receives; if it shares them, those of its present share.

        Raises:
            ClosedError: this process is a forked child, which has no partitions.
        """
        self._process.check()
        return self._reception.partitions

    @property
    def address(self) -> Address | None:
        """The address on which the subscriber listens; None before the start, and in a forked
        child, which does not listen.
        """
        return None if self._process.is_left else self._reception.address

    def start(self) -> None:
        """Listen, and register in ZooKeeper. When the call returns, messages may arrive at any
        time.

        A checkpoint is created in each partition that has none. A shared subscriber gets its
        partitions a moment later.

        Raises:
            SubscriberConnectedError: another subscriber of this name is connected, and it or this
                one is not shared. If the other one has just died, the call waits until its session
                ends.
            InvalidInputError: this process can't listen on the host and port.
            StoreUnavailableError: HBase or ZooKeeper was unavailable.
            ClosedError: the subscriber was started before, or was stopped meanwhile.
        """
        self._process.check()
        self._reception.start()

    def stop(self, reason: str = "") -> bool:
        """Unregister from ZooKeeper, finish the deliveries under way, and end.

        The checkpoints stay. Messages that were delivered, but for which a worker had not yet
        written the checkpoint, come again to the next subscriber of this name.

        Args:
            reason: a text for the log line.

        Returns:
            Whether all deliveries under way were finished within the delivery's ``timeout_ms``.

        Raises:
            InvalidInputError: a listener called it, and would wait for itself.
        """
        if self._process.is_left:
            return True
        self._reception.check_caller()
        return self._reception.stop(reason)

    def run(self) -> None:
        """Start, receive until SIGTERM, Ctrl-C or `request_stop`, and stop cleanly. A program that
        only subscribes calls this in its main thread.

        Raises:
            KeyboardInterrupt: Ctrl-C came. The subscriber has stopped.
            HQueueError: as `start` and `wait`. The subscriber has stopped.
        """
        with stopping(self.request_stop), self:
            self.wait()

    def request_stop(self) -> None:
        """Make `wait` return, so that the thread that waits there can stop the subscriber.
        Listeners may call it. In a forked child it does nothing.
        """
        if not self._process.is_left:
            self._reception.serving.wanted_end.set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the subscriber is stopped, or `request_stop` is called. Returns False if the
        time-out came first.

        Raises:
            HQueueError: the subscriber ended by an error, which is its `failure`.
            InvalidInputError: the subscriber was not started, so the wait would never end.
            ClosedError: this process is a forked child, in which the subscriber can't be used.
        """
        self._process.check()
        timeout_s = check_timeout_s(timeout_s)
        if not self._reception.begun and not self._reception.serving.wanted_end.is_set():
            raise InvalidInputError(
                "the subscriber was not started: call start, or use it as a context manager, first"
            )
        ended = self._reception.serving.wanted_end.wait(timeout_s)
        if self.failure is not None:
            raise self.failure
        return ended


def reception_of(subscriber: Subscriber) -> Reception:
    """What of a subscriber works in the background, for `hqueue.aio`."""
    return subscriber._reception
