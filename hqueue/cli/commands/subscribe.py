"""``hqueue subscribe``: a subscriber that writes what it is sent to stdout."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from hqueue.cli.commands import shared_options
from hqueue.cli.commands.scan import choose_encoder
from hqueue.cli.commands.subscribers import PANEL
from hqueue.cli.exits import OutputError, say
from hqueue.cli.formats import Encode, Format
from hqueue.cli.output import Output
from hqueue.cli.registering import commands
from hqueue.cli.session import session_of
from hqueue.errors import InvalidInputError
from hqueue.metadata import DeliveryOptions
from hqueue.position import START_HELP, check_start
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline
from hqueue.runtime.stopping import stopping
from hqueue.settings.numbers import whole_number

if TYPE_CHECKING:
    from hqueue.message import ReceivedMessage
    from hqueue.push.answers import Status
    from hqueue.push.subscriber import Subscriber

__all__ = ["register"]

DELIVERY_OPTIONS = ", ".join(field.name for field in dataclasses.fields(DeliveryOptions))


def subscribe(
    context: typer.Context,
    queue: shared_options.Queue,
    *,
    name: Annotated[str, typer.Option(help="The subscriber's name.")],
    partition: shared_options.Partitions = None,
    topic: shared_options.Topics = None,
    start: Annotated[
        str, typer.Option(help=f"Where to begin without a checkpoint: {START_HELP}.")
    ] = "earliest",
    reset: Annotated[
        bool, typer.Option("--reset", help="Begin at --start even if there is a checkpoint.")
    ] = False,
    chosen: shared_options.MessageFormat = Format.TEXT,
    print_key: shared_options.PrintKey = False,
    print_headers: shared_options.PrintHeaders = False,
    limit: shared_options.Limit = None,
    idle_ms: shared_options.Idle = None,
    host: Annotated[
        str | None, typer.Option(help="The host to listen on, under which workers reach it.")
    ] = None,
    port: Annotated[int, typer.Option(help="The port to listen on; a free port if 0.")] = 0,
    shared: Annotated[
        bool,
        typer.Option(
            "--shared",
            help="Share the partitions with other subscribers of this name; all must use --shared.",
        ),
    ] = False,
    delivery: Annotated[
        list[str] | None,
        typer.Option(
            "--delivery",
            metavar="NAME=VALUE",
            help=f"How messages are delivered: {DELIVERY_OPTIONS}. May be given several times.",
        ),
    ] = None,
) -> None:
    """Subscribe to a queue, and write the messages to stdout as a worker delivers them.

    A message counts as delivered when it is written. SIGINT and SIGTERM end the command cleanly;
    the next subscriber of this name continues where this one stopped. With --shared several
    subscribers of one name can run at a time: each gets a share of the partitions.
    """
    from hqueue.push.subscription import Subscription  # noqa: PLC0415  (not needed for help)

    how = _delivery(delivery)
    if limit is not None:
        how = dataclasses.replace(how, batch_messages_max=1)
    wanted = Subscription(
        name, topic or (), start=check_start(start), reset=reset, delivery=how
    ).add_partitions(partition or ())
    with session_of(context).client.queue(queue) as opened:
        encode = choose_encoder(chosen, opened, print_key=print_key, print_headers=print_headers)
        printer = _Printer(encode, limit, idle_ms)
        subscriber = opened.subscriber(wanted, printer.consume, host=host, port=port, shared=shared)
        printer.stop = subscriber.request_stop
        with (
            stopping(subscriber.request_stop),
            Output(prompt=True, on_closed=subscriber.request_stop) as printer.out,
            subscriber,
        ):
            say(f"Subscribed to {queue} as {name}, listening at {subscriber.address}.")
            printer.wait(subscriber)


class _Printer:
    """The listener."""

    out: Output
    stop: Callable[[], None]

    def __init__(self, encode: Encode, limit: int | None, idle_ms: int | None) -> None:
        self._encode = encode
        self._left = limit
        self._idle_ms = math.inf if idle_ms is None else idle_ms
        self._idle = Deadline(SYSTEM_CLOCK, self._idle_ms)

    def consume(self, messages: Sequence[ReceivedMessage]) -> Status:
        """Write messages; they count as delivered if they could be written."""
        from hqueue.push.answers import Status  # noqa: PLC0415  (not needed for help)

        if self._left is not None:
            if self._left < len(messages):
                return Status.RETRY
            self._left -= len(messages)
        try:
            self.out.write(b"".join(map(self._encode, messages)))
            self.out.flush()
        except (BrokenPipeError, OutputError):  # It comes back when the output is closed.
            self.stop()
            return Status.RETRY
        self._idle = Deadline(SYSTEM_CLOCK, self._idle_ms)
        if self._left == 0:
            self.stop()
        return Status.DONE

    def wait(self, subscriber: Subscriber) -> None:
        """Wait until the subscriber must end, or nothing came for this long."""
        while (left_ms := self._idle.remaining_ms) > 0:
            if subscriber.wait(None if left_ms == math.inf else left_ms / 1e3):
                return


def _delivery(assignments: Sequence[str] | None) -> DeliveryOptions:
    given = {}
    known = {field.name for field in dataclasses.fields(DeliveryOptions)}
    for assignment in assignments or ():
        name, _, value = assignment.partition("=")
        name = name.strip().replace("-", "_")
        number = whole_number(value.strip())
        if name not in known or number is None:
            raise InvalidInputError(
                "a delivery option must be written as NAME=VALUE, with a number as its value",
                option=assignment,
                known=", ".join(sorted(known)),
            )
        given[name] = number
    return DeliveryOptions(**given)


register = commands(PANEL, subscribe)
