"""A subscriber of hubs with nothing but the IDL: it follows redirects, and subscribes again."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any

from thriftpy2.rpc import make_client

import hqueue
from hqueue import Address, DeliveryAnswer, ReceivedMessage, Status
from hqueue.push.answers import Answer
from hqueue.push.listener import Listeners
from hqueue.push.service import Consumption, subscriber_service
from hqueue.rpc.server import ThriftServer
from hqueue.rpc.services import load
from hqueue_workers.hub.serving.service import hub_service

__all__ = ["IDL", "Subscriber"]

IDL, STRUCTS = load("hub"), load("subscriber")


class _Breaking(Consumption):
    """Breaks the connections of calls with some messages."""

    def __init__(self, is_fatal: Callable[[Sequence[ReceivedMessage]], bool], *given: Any) -> None:
        super().__init__(*given)
        self._is_fatal = is_fatal

    def consume(self, messages: Sequence[ReceivedMessage]) -> Answer:
        if self._is_fatal(messages):
            raise ZeroDivisionError("what no IDL declares ends the connection")
        return super().consume(messages)


class Subscriber:
    """A subscriber's service, and the calls that it makes of hubs. Used as a context manager.

    Args:
        queue: the queue.
        hubs: gives their addresses.
        name: the subscriber's.
        session: of this life.
        answer: says what becomes of the messages of a call; they are done if None.
        is_fatal: whether the connection of a call with these messages breaks.
    """

    def __init__(
        self,
        queue: str,
        hubs: Callable[[], Sequence[Address]],
        name: str = "sub",
        session: str = "life1",
        answer: Callable[[Sequence[ReceivedMessage]], Status | DeliveryAnswer] | None = None,
        *,
        is_fatal: Callable[[Sequence[ReceivedMessage]], bool] = lambda _: False,
    ) -> None:
        self.name = name
        self.session = session
        self._queue = queue
        self._hubs = hubs
        self._answer = answer or (lambda _: Status.DONE)
        self._lock = threading.Lock()
        self.messages: list[ReceivedMessage] = []
        """What was answered with done, as it came."""
        self.calls: list[list[bytes]] = []
        """The values of every call."""
        self.owner: Address
        """The hub that answered last."""
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        self._server = ThriftServer(
            subscriber_service(),
            _Breaking(is_fatal, Listeners(self._consume, 10_000, "sub"), 4, 10_000),
            listener,
            threads=4,
            connections_max=64,
            call_bytes_max=2**24,
            idle_ms_max=10_000,
        )
        self._server.start()

    def __enter__(self) -> Subscriber:
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.close(1_000)

    @property
    def values(self) -> list[bytes]:
        """What was taken, as it came."""
        with self._lock:
            return [each.value for each in self.messages]

    def _consume(self, messages: Sequence[ReceivedMessage]) -> Status | DeliveryAnswer:
        with self._lock:
            self.calls.append([each.value for each in messages])
        status = self._answer(messages)
        if status is Status.DONE:
            with self._lock:
                self.messages.extend(messages)
        return status

    def delivery(self, *, explicit: bool = False) -> Any:
        """Where messages must go."""
        return IDL.TDelivery("127.0.0.1", self.port, self.session, explicit)

    def call(self, method: str, *given: Any, at: Address | None = None) -> Any:
        """Call the hub that owns the topic: any, and then those that redirects name."""
        redirected, to = False, at or self._hubs()[0]
        for _ in range(20):
            with contextlib.closing(self.connect(to)) as client:
                try:
                    result = getattr(client, method)(self._queue, self.name, *given, redirected)
                except IDL.TRedirect as redirect:
                    redirected, to = True, Address(redirect.host, redirect.port)
                else:
                    self.owner = to
                    return result
        raise AssertionError("redirects without end")

    def subscribe(
        self,
        topic: str,
        mode: int = 2,
        *,
        explicit: bool = False,
        attach: bool = True,
        at: Address | None = None,
        **preferences: Any,
    ) -> Any:
        """Subscribe, and have messages delivered here."""
        wanted = IDL.TPreferences(**preferences) if preferences else None
        delivery = self.delivery(explicit=explicit) if attach else None
        return self.call("subscribe", topic, mode, delivery, wanted, at=at)

    def consume(self, topic: str, message_id: hqueue.MessageID) -> None:
        """Say that a message is done with."""
        self.call("consume", topic, STRUCTS.TMessageID(message_id.timestamp, message_id.sequence))

    def close_subscription(self, topic: str) -> None:
        """Detach."""
        with contextlib.closing(self.connect(self.owner)) as client:
            client.closeSubscription(self._queue, self.name, topic, self.session)

    def detached(self, wait_ms: int = 0, at: Address | None = None) -> list[tuple[str, int]]:
        """The topics that were detached, and why."""
        with contextlib.closing(self.connect(at or self.owner)) as client:
            told = client.detached(self._queue, self.session, wait_ms)
        return [(each.topic, each.reason) for each in told]

    @staticmethod
    def connect(at: Address) -> Any:
        """A connection to a hub, as the IDL has it."""
        return make_client(hub_service(), at.host, at.port, timeout=60_000)
