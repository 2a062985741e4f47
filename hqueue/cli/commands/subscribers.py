"""Administration of subscribers: subscribers, add-subscriber, delete-subscriber, seek."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hqueue.cli.commands import shared_options
from hqueue.cli.exits import say
from hqueue.cli.output import show_table, write_json
from hqueue.cli.progress import count_text
from hqueue.cli.registering import commands
from hqueue.cli.session import session_of
from hqueue.position import START_HELP, check_start
from hqueue.runtime.only_reads import OnlyReads

if TYPE_CHECKING:
    from hqueue.push.administration import SubscriberState

__all__ = ["NameArgument", "register"]

PANEL = "Subscribers"
NameArgument = Annotated[str, typer.Argument(metavar="SUBSCRIBER", help="The subscriber's name.")]


@OnlyReads()
def subscribers(
    context: typer.Context,
    queue: shared_options.Queue,
    json: shared_options.Json = False,
) -> None:
    """List a queue's subscribers, in each partition.

    "checkpoint" is the stored ID of the first message not yet delivered. "lag" counts the messages
    of all topics from there on. A checkpoint that can't be read is reported on stderr, and shown as
    "unreadable". Without a terminal: subscriber, partition, address, topics (separated by commas),
    checkpoint, lag; separated by tabs.
    """
    states = session_of(context).client.list_subscribers(queue)
    if json:
        for state in states:
            write_json(_as_json(state))
        return
    show_table(
        ("subscriber", "partition", "address", "topics", "checkpoint", "lag"),
        (
            (
                state.subscriber,
                state.partition,
                state.presence.address if state.presence else None,
                _topics(state),
                "unreadable" if state.unreadable else state.checkpoint,
                state.lag,
            )
            for state in states
        ),
        numbers=("partition", "lag"),
    )
    for state in states:
        if state.unreadable:
            say(f"{state.subscriber} {state.partition}: {state.unreadable}")


def add_subscriber(
    context: typer.Context,
    queue: shared_options.Queue,
    subscriber: NameArgument,
    start: Annotated[str, typer.Option(help=f"Where it begins: {START_HELP}.")] = "earliest",
    partition: shared_options.Partitions = None,
) -> None:
    """Add a subscriber before it first connects, and set where it will begin."""
    session_of(context).client.add_subscriber(
        queue, subscriber, start=check_start(start), partitions=partition
    )
    say(f"Added {subscriber} to {queue}.")


def delete_subscriber(
    context: typer.Context,
    queue: shared_options.Queue,
    subscriber: NameArgument,
    yes: shared_options.Yes = False,
) -> None:
    """Delete a subscriber and its checkpoints. It must not be connected."""
    session = session_of(context)
    session.confirm(f"Delete {subscriber} of {queue} and its checkpoints?", yes=yes)
    session.client.delete_subscriber(queue, subscriber)
    say(f"Deleted {subscriber} of {queue}.")


def seek(
    context: typer.Context,
    queue: shared_options.Queue,
    subscriber: NameArgument,
    to: Annotated[
        str, typer.Argument(metavar="TO", help=f"Where the subscriber continues: {START_HELP}.")
    ],
    partition: shared_options.Partitions = None,
) -> None:
    """Set a subscriber's checkpoints, backward or forward. It must not be connected.

    Write a relative time with "ago" here: '10m ago'.
    """
    moved = session_of(context).client.seek_subscriber(
        queue, subscriber, check_start(to), partitions=partition
    )
    positions = sorted({str(at) for at in moved.values()})
    where = positions[0] if len(positions) == 1 else "the end of each"
    say(f"{subscriber} of {queue} continues at {where}: {count_text(len(moved), 'partition')}.")


def _topics(state: SubscriberState) -> str | None:
    if state.presence is None:
        return None
    topics = state.presence.topics
    return "(all)" if topics is None else ",".join(sorted(topics))


def _as_json(state: SubscriberState) -> dict[str, Any]:
    presence = state.presence
    return {
        "subscriber": state.subscriber,
        "partition": state.partition,
        "connected": presence is not None,
        "address": str(presence.address) if presence else None,
        "topics": sorted(presence.topics) if presence and presence.topics else None,
        "checkpoint": None if state.checkpoint is None else str(state.checkpoint),
        "lag": state.lag,
        "unreadable": None if state.unreadable is None else str(state.unreadable),
    }


register = commands(PANEL, subscribers, add_subscriber, delete_subscriber, seek)
