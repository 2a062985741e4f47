"""``hqueue topics consume`` and ``unsubscribe``: uses a topic's subscription through hubs."""

from __future__ import annotations

import contextlib
import math
import queue as queues
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from hqueue.cli.commands import shared_options
from hqueue.cli.exits import say
from hqueue.cli.formats import Encode, Format, encoder
from hqueue.cli.hub_clients import HubsOption, hub_client
from hqueue.cli.output import Output
from hqueue.errors import HubUnavailableError
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline
from hqueue.runtime.only_reads import OnlyReads
from hqueue.runtime.stopping import stopping
from hqueue.texts.shown import printable

if TYPE_CHECKING:
    from hqueue.message import ReceivedMessage
    from hqueue.push.answers import Status
    from hqueue.topics import TopicSubscription

__all__ = ["consume", "unsubscribe"]

CALLS_MAX = 20_000
"""Calls of hubs that may wait: no hub has as many messages out."""
MESSAGES_MAX = 500
LOOK_EVERY_S = 0.2
"""How often the command looks whether the subscription has ended."""

SubscriberOption = Annotated[
    str,
    typer.Option("--subscriber", "-s", help="The subscription's name."),
]


def consume(
    context: typer.Context,
    queue: shared_options.Queue,
    topic: shared_options.Topic,
    *,
    subscriber: SubscriberOption,
    hubs: HubsOption = None,
    create: Annotated[
        bool,
        typer.Option(
            "--create/--attach",
            help="Whether to create the subscription, at the topic's end, or to require an "
            "existing one.",
        ),
    ] = True,
    host: Annotated[
        str | None,
        typer.Option(
            help="The host at which hubs reach this process; by default the address from which it "
            "reaches them."
        ),
    ] = None,
    chosen: shared_options.MessageFormat = Format.TEXT,
    print_key: shared_options.PrintKey = False,
    print_headers: shared_options.PrintHeaders = False,
    limit: shared_options.Limit = None,
    idle_ms: shared_options.Idle = None,
) -> None:
    """Write a topic's messages to stdout, in their order, from a subscription's cursor on.

    A message is acknowledged once it is written to stdout. Unacknowledged messages are delivered
    again, to the next client that attaches. SIGINT and SIGTERM end the command cleanly. With --hubs
    it needs no access to HBase or ZooKeeper.
    """
    from hqueue.topics import SubscribeMode  # noqa: PLC0415  (not needed for help)

    encode = encoder(
        chosen,
        aligned=sys.stdout.isatty(),
        print_key=print_key,
        print_headers=print_headers,
    )
    inbox = _Inbox()
    with (
        contextlib.nullcontext() if create else OnlyReads(),  # To attach changes nothing.
        hub_client(context, queue, hubs, "hqueue") as client,
        Output(prompt=True, on_closed=inbox.stop) as out,
        stopping(inbox.stop),
        client.topic(topic).subscribe(
            subscriber,
            inbox.receive,
            mode=SubscribeMode.CREATE_OR_ATTACH if create else SubscribeMode.ATTACH,
            explicit_ack=True,
            host=host,
        ) as subscription,
    ):
        say(f"Consuming {printable(topic)} of {queue} as {printable(subscriber)}.")
        _write_messages(subscription, inbox, encode, out, limit=limit, idle_ms=idle_ms)


def unsubscribe(
    context: typer.Context,
    queue: shared_options.Queue,
    topic: shared_options.Topic,
    *,
    subscriber: SubscriberOption,
    hubs: HubsOption = None,
) -> None:
    """Delete a subscription to a topic and its cursor, even if a client is attached to it."""
    with hub_client(context, queue, hubs, "hqueue") as client:
        client.topic(topic).unsubscribe(subscriber)


class _Inbox:
    """The messages that hubs have sent and that are not written yet. Threads that hubs call fill
    it.
    """

    def __init__(self) -> None:
        self._calls: queues.Queue[Sequence[ReceivedMessage]] = queues.Queue(CALLS_MAX)
        self.stopped = False

    def receive(self, messages: Sequence[ReceivedMessage]) -> Status:
        """Take a call's messages."""
        from hqueue.push.answers import Status  # noqa: PLC0415  (not needed for help)

        try:
            self._calls.put_nowait(messages)
        except queues.Full:
            return Status.RETRY
        return Status.DONE

    def take(self, timeout_s: float) -> list[ReceivedMessage]:
        """What has come, some hundred messages or a call's; nothing if nothing does for this
        long.
        """
        taken: list[ReceivedMessage] = []
        with contextlib.suppress(queues.Empty):
            taken.extend(self._calls.get(timeout=timeout_s))
            while len(taken) < MESSAGES_MAX:
                taken.extend(self._calls.get_nowait())
        return taken

    def stop(self) -> None:
        """Let the command end."""
        self.stopped = True
        with contextlib.suppress(queues.Full):
            self._calls.put_nowait(())


def _write_messages(
    subscription: TopicSubscription,
    inbox: _Inbox,
    encode: Encode,
    out: Output,
    *,
    limit: int | None,
    idle_ms: int | None,
) -> None:
    """Write messages until it is stopped, nothing came for this long, or there were this many. What
    is consumed is written and flushed.
    """
    written = 0
    acknowledged = newest = subscription.cursor
    bound_ms = math.inf if idle_ms is None else idle_ms
    idle = Deadline(SYSTEM_CLOCK, bound_ms)
    while not inbox.stopped and (limit is None or written < limit):
        # A hub that the topic comes to sends again what it does not know as consumed.
        new = [
            each
            for each in inbox.take(LOOK_EVERY_S)
            if (newest is None or each.id > newest) and not inbox.stopped
        ]
        if new:
            new = new[: None if limit is None else limit - written]
            out.write(b"".join(map(encode, new)))
            out.flush()
            newest, written = new[-1].id, written + len(new)
            idle = Deadline(SYSTEM_CLOCK, bound_ms)
            with contextlib.suppress(HubUnavailableError):  # The next one covers it.
                subscription.acknowledge_cumulative(newest)
                acknowledged = newest
        elif subscription.wait(0):
            return
        elif idle.expired:
            break
    if newest is not None and acknowledged != newest:
        subscription.acknowledge_cumulative(newest)
