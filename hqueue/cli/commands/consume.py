"""``hqueue consume``: a consumer of a group that writes its messages to stdout. The module also
registers ``hqueue work``, which is in `hqueue.cli.commands.work`.
"""

from __future__ import annotations

import contextlib
import enum
import math
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from hqueue.cli.commands import shared_options
from hqueue.cli.commands.groups import PANEL
from hqueue.cli.commands.work import work
from hqueue.cli.exits import say
from hqueue.cli.formats import Format, encoder
from hqueue.cli.output import Output
from hqueue.cli.registering import commands
from hqueue.cli.session import session_of
from hqueue.errors import HQueueError
from hqueue.runtime.stopping import stopping
from hqueue.texts.shown import printable

if TYPE_CHECKING:
    from hqueue.client import Client
    from hqueue.consumer import Consumer
    from hqueue.message import ConsumedMessage

__all__ = ["register"]

POLL_MESSAGES_MAX = 500
COMMIT_EVERY_MS = 1_000
PARTITIONS_OF_UNKNOWN = 100
"""How wide the column of partitions is made where the queues are not known yet."""

Encode = Callable[["ConsumedMessage"], bytes]


class Begin(str, enum.Enum):
    """Where a group begins."""

    EARLIEST = "earliest"
    LATEST = "latest"


def consume(
    context: typer.Context,
    queue: Annotated[
        list[str] | None, typer.Argument(metavar="QUEUE", help="The queues' names.")
    ] = None,
    *,
    group: Annotated[str, typer.Option("--group", "-g", help="The group's name.")],
    pattern: Annotated[
        str | None,
        typer.Option(
            help="Instead of names: all queues whose full name matches this regular expression, "
            "including queues created later."
        ),
    ] = None,
    topic: shared_options.Topics = None,
    begin: Annotated[
        Begin,
        typer.Option("--from", help="Where the group begins in partitions without an offset."),
    ] = Begin.EARLIEST,
    instance_id: Annotated[
        str | None,
        typer.Option(
            help="Makes this a static member, which keeps its partitions if it restarts in time."
        ),
    ] = None,
    chosen: shared_options.MessageFormat = Format.TEXT,
    print_key: shared_options.PrintKey = False,
    print_headers: shared_options.PrintHeaders = False,
    limit: shared_options.Limit = None,
    idle_ms: shared_options.Idle = None,
) -> None:
    """Consume queues as a member of a group, and write the messages to stdout.

    Consumers of one group share the partitions. A message is committed after it was written.
    Uncommitted messages are delivered again, to the partition's next owner. SIGINT and SIGTERM end
    the command cleanly. With several queues, or --pattern, text and json begin with the queue's
    name.
    """
    from hqueue.consumer import Consumer  # noqa: PLC0415  (not needed for help)

    client = session_of(context).client
    encode = _encoder(
        client, queue or (), pattern, chosen, print_key=print_key, print_headers=print_headers
    )
    consumer = Consumer(
        group=group,
        client=client,
        auto_commit_interval_ms=COMMIT_EVERY_MS,
        auto_offset_reset=begin.value,
        instance_id=instance_id,
    )
    with (
        Output(prompt=True, on_closed=consumer.request_stop) as out,
        stopping(consumer.request_stop),
    ):
        try:
            consumer.subscribe(queue or None, pattern=pattern, topics=topic or ())
            what = ", ".join(queue or ()) or f"queues like {pattern}"
            consumer_id = printable(consumer.consumer_id)
            say(f"Consuming {what} in {printable(group)} as {consumer_id}.")
            _write_messages(consumer, encode, out, limit, idle_ms)
        except BaseException:
            with contextlib.suppress(HQueueError):
                consumer.close(commit=True)
            raise
        consumer.close(commit=True)


def _encoder(
    client: Client,
    queues: Sequence[str],
    pattern: str | None,
    chosen: Format,
    *,
    print_key: bool,
    print_headers: bool,
) -> Encode:
    """What turns messages into bytes; with their queues' names if these may be several."""
    described = [client.describe_queue(name).partitions for name in queues]
    aligned = sys.stdout.isatty()
    encode = encoder(
        chosen,
        aligned=aligned,
        partitions=max(described, default=PARTITIONS_OF_UNKNOWN),
        print_key=print_key,
        print_headers=print_headers,
    )
    if len(queues) == 1 and pattern is None:
        return encode
    if chosen is Format.JSON:
        return lambda message: b'{"queue":"%b",' % message.queue.encode() + encode(message)[1:]
    if chosen is Format.TEXT:
        between = b"  " if aligned else b"\t"
        return lambda message: message.queue.encode() + between + encode(message)
    return encode


def _write_messages(
    consumer: Consumer, encode: Encode, out: Output, limit: int | None, idle_ms: int | None
) -> None:
    """Write messages until it is stopped, nothing came for this long, or there were this many.

    What the consumer counts as handed out, and so commits, is written and flushed.
    """
    timeout_ms = math.inf if idle_ms is None else idle_ms
    left = math.inf if limit is None else limit
    while left:
        messages = consumer.poll(timeout_ms, int(min(left, POLL_MESSAGES_MAX)))
        if not messages:
            return
        try:
            out.write(b"".join(map(encode, messages)))
            out.flush()
        except BaseException:
            first = messages[0]
            with contextlib.suppress(HQueueError):  # Others may have the partition already.
                consumer.seek((first.queue, first.partition), first.id)
            raise
        left -= len(messages)


register = commands(PANEL, consume, work)
