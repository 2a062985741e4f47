"""``hqueue publish``: messages from arguments, files and pipes to topics, through hubs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

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
from hqueue.cli.hub_clients import HubsOption, hub_client
from hqueue.cli.registering import commands
from hqueue.cli.session import session_of
from hqueue.errors import InvalidInputError
from hqueue.message import Message, topic_bytes
from hqueue.message_id import MessageID
from hqueue.texts.shown import printable

if TYPE_CHECKING:
    from hqueue.cli.commands.shipment import Producing

__all__ = ["register"]


def publish(
    context: typer.Context,
    topic: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC", help="The topic; with json, the topic of documents without one."
        ),
    ],
    values: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="VALUE", help="Messages, or documents with json; all are published, or none."
        ),
    ] = None,
    *,
    queue: Annotated[str, typer.Option("--queue", "-q", help="The queue of the topic.")],
    hubs: HubsOption = None,
    publisher: Annotated[str, typer.Option(help="The publisher's name.")] = "hqueue",
    message_key: Annotated[
        str | None, typer.Option("--message-key", help="The key to store with each message.")
    ] = None,
    header: HeaderOption = None,
    key_separator: KeySeparatorOption = None,
    sequence_number: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="The sequence number of the first value; the next values get the next numbers. "
            "The hub leaves out messages that the topic has already, so the command can be "
            "repeated. Needs --publisher.",
        ),
    ] = None,
    file: FileOption = None,
    framing: FramingOption = Framing.LINES,
    print_ids: Annotated[
        bool,
        typer.Option(
            "--print-ids",
            help="Print the messages' IDs, in their order. Those of values given as arguments are "
            "printed without it.",
        ),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print no summary.")] = False,
) -> None:
    """Publish messages to a topic through its hub: values given as arguments, or files or stdin.

    Values given as arguments are one batch: all of them are published, or none, and their IDs are
    printed. Files and stdin are published as they are read, in their order. When a publish fails,
    the command stops reading, and says on stderr how many messages were published. With --hubs it
    needs no access to HBase or ZooKeeper.
    """
    topic_bytes(topic)
    source = Source(
        session_of(context),
        values,
        file,
        framing=framing,
        topic=topic,
        key=None if message_key is None else os.fsencode(message_key),
        headers=header,
        separator=key_separator,
    )
    if sequence_number is not None and not values:
        raise InvalidInputError(
            "--sequence-number works only with values given as arguments, which make one batch"
        )
    with hub_client(context, queue, hubs, publisher) as client:

        def producer() -> Producing:
            from hqueue.cli.commands.shipment import BUFFER_BYTES_MAX  # noqa: PLC0415

            return client.producer(buffer_bytes_max=BUFFER_BYTES_MAX)

        def send(messages: Sequence[Message]) -> Sequence[MessageID]:
            to = client.topic(topic)
            if sequence_number is None:
                return to.publish_many(messages)
            return to.publish_idempotent(messages, sequence_number=sequence_number).ids

        # Documents have topics of their own.
        where = "topics" if framing is Framing.JSON and not values else f"topic {printable(topic)}"
        destination = Destination(f"{where} of {queue}", "published", producer)
        if values:
            send_values(source, send, destination, print_ids=True, wanted=print_ids, quiet=quiet)
            return
        code = send_stream(source, destination, print_ids=print_ids, quiet=quiet)
    if code:
        raise typer.Exit(code)


register = commands("Hubs", publish)
