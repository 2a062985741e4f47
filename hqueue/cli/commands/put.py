"""``hqueue put``: messages from arguments, files and pipes into a queue."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from hqueue.cli.commands import shared_options
from hqueue.cli.commands.sending import (
    Destination,
    FileOption,
    FramingOption,
    HeaderOption,
    KeySeparatorOption,
    Source,
    send_stream,
    send_values,
)
from hqueue.cli.framing import Framing
from hqueue.cli.registering import commands
from hqueue.cli.session import session_of
from hqueue.errors import InvalidInputError
from hqueue.message import Message
from hqueue.message_id import MessageID
from hqueue.position import POSITION_HELP, parse_position

if TYPE_CHECKING:
    from hqueue.cli.commands.shipment import Producing

__all__ = ["register"]


def put(
    context: typer.Context,
    queue: shared_options.Queue,
    values: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="VALUE", help="Messages, or documents with json; all are written, or none."
        ),
    ] = None,
    *,
    topic: Annotated[
        str,
        typer.Option(
            "--topic",
            "-t",
            help="The messages' topic; with json, the topic of documents without one.",
        ),
    ] = "",
    partition: Annotated[
        int | None,
        typer.Option(
            "--partition", "-p", help="The partition; chosen by key or at random if not given."
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            "-k",
            help="Chooses the partition: messages with the same key go to the same partition. "
            "The key is not stored; --message-key is.",
        ),
    ] = None,
    message_key: Annotated[
        str | None,
        typer.Option(
            "--message-key",
            help="The key to store with each message. It chooses the partition like "
            "--key, unless --partition or --key is given.",
        ),
    ] = None,
    header: HeaderOption = None,
    key_separator: KeySeparatorOption = None,
    idempotency_key: Annotated[
        str | None,
        typer.Option(
            "--idempotency-key",
            help="Makes the put idempotent: values that are put again with the same key are "
            "written once. Needs --partition, --key or --message-key.",
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            help=f"A time before the first put with the idempotency key: {POSITION_HELP}. If not "
            f"given, the whole log is searched.",
        ),
    ] = None,
    file: FileOption = None,
    framing: FramingOption = Framing.LINES,
    print_ids: Annotated[
        bool, typer.Option("--print-ids", help="Print the messages' IDs, in their order.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no summary.")] = False,
) -> None:
    """Put messages into a queue: values given as arguments, or files or stdin.

    Values given as arguments are one batch: all of them are written, or none. Files and stdin are
    written as they are read. With --partition, --key or --message-key all messages keep their
    order. Otherwise the messages of each key keep theirs, and messages without a key are spread
    over the partitions. When a put fails, the command stops reading, and says on stderr how many
    messages were written.
    """
    own = None if message_key is None else os.fsencode(message_key)
    source = Source(
        session_of(context),
        values,
        file,
        framing=framing,
        topic=topic,
        key=own,
        headers=header,
        separator=key_separator,
    )
    if idempotency_key is not None and not values:
        raise InvalidInputError(
            "an idempotency key works only with values given as arguments, which make one batch"
        )
    with source.session.client.queue(queue) as opened:
        where = opened.choose_partition(partition, None if key is None else os.fsencode(key))
        if where is None:
            where = opened.choose_partition(None, own)

        def producer() -> Producing:
            from hqueue.cli.commands.shipment import BUFFER_BYTES_MAX  # noqa: PLC0415

            return opened.producer(buffer_bytes_max=BUFFER_BYTES_MAX)

        name = opened.name if where is None else f"{opened.name}, partition {where}"
        to = Destination(name, "written", producer, {"partition": where})
        if values:
            begins = None if since is None else parse_position(since)

            def send(messages: Sequence[Message]) -> Sequence[MessageID]:
                return opened.put(
                    messages, partition=where, idempotency_key=idempotency_key, since=begins
                )

            send_values(source, send, to, print_ids=print_ids, quiet=quiet)
            return
        code = send_stream(source, to, print_ids=print_ids, quiet=quiet)
    if code:
        raise typer.Exit(code)


register = commands("Messages", put)
