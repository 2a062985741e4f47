"""``hqueue groups``: lists, describes, resets and deletes groups."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hqueue.cli.commands import shared_options
from hqueue.cli.exits import say
from hqueue.cli.output import show_table, write_json
from hqueue.cli.progress import count_text
from hqueue.cli.registering import group
from hqueue.cli.session import session_of
from hqueue.errors import GroupNotFoundError
from hqueue.groups.kinds import SHARE
from hqueue.position import START_HELP, check_start
from hqueue.runtime.only_reads import OnlyReads
from hqueue.texts.questions import delayed_in, overwrite_offsets
from hqueue.texts.shown import iso_timestamp, printable

if TYPE_CHECKING:
    from hqueue.groups.descriptions import GroupDescription, GroupPartition

__all__ = ["PANEL", "register"]

PANEL = "Consumer groups"
UNREADABLE = "unreadable"
LETTERS = ("rejected", "exhausted")

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The group's name.")]


@OnlyReads()
def list_(context: typer.Context, json: shared_options.Json = False) -> None:
    """List all groups.

    Without a terminal: group, number of its consumers, the queues that it consumes with commas
    between, and its kind, "consumer" or "share"; with tabs between.
    """
    listings = session_of(context).client.list_groups()
    if json:
        for each in listings:
            write_json(
                {
                    "group": each.group,
                    "members": each.members,
                    "queues": each.queues,
                    "kind": each.kind,
                }
            )
        return
    show_table(
        ("group", "members", "queues", "kind"),
        ((each.group, each.members, ",".join(each.queues) or None, each.kind) for each in listings),
        numbers=("members",),
    )


@OnlyReads()
def describe(
    context: typer.Context,
    group: GroupArgument,
    *,
    queue: Annotated[
        str | None, typer.Option("--queue", "-q", help="Only the partitions of this queue.")
    ] = None,
    members: Annotated[
        bool,
        typer.Option("--members", help="Show the group's consumers instead of its partitions."),
    ] = False,
    json: shared_options.Json = False,
) -> None:
    """Show a group's offset and lag in each partition, and the consumer that owns the partition.

    "offset" is the committed offset: the first ID that is not consumed yet. "lag" counts the
    messages of all topics from there on; it is "-" if the queue can't be read. An offset that can't
    be read is "unreadable", and is reported on stderr. Without a terminal: queue, partition,
    consumer, offset, lag; with --members: consumer, number of its partitions, queues with commas
    between; with tabs between.

    For a share group, "lag" counts the unfinished messages, and "age" is the age of the oldest one
    in milliseconds; "acquired" counts the messages that consumers have, "again" those of them that
    were delivered before, and "released" those that were given back and wait; "delayed" counts the
    messages that wait for their time, and "due" is the time of the first; "rejected" and
    "exhausted" count the messages that became dead letters, because a program rejected them or
    because they were delivered too often. Without a terminal: queue, partition, how many consumers
    have messages, offset, lag, age, acquired, again, released, delayed, due, rejected, exhausted.
    """
    described = session_of(context).client.describe_group(group, queue=queue)
    if json:
        for document in _members(described) if members else map(_as_json, described.partitions):
            write_json(document)
        return
    if members or sys.stdout.isatty():
        _show_members(described)
    if not members:
        _show_partitions(described)
        for each in described.partitions:
            if each.unreadable:
                say(f"{each.queue} {each.partition}: {each.unreadable}")


def reset(
    context: typer.Context,
    group: GroupArgument,
    queue: shared_options.Queue,
    *,
    to: Annotated[str, typer.Option("--to", help=f"Where the group continues: {START_HELP}.")],
    partition: shared_options.Partitions = None,
    yes: shared_options.Yes = False,
) -> None:
    """Set a group's offsets in a queue, backward or forward. The group must not be consuming it.

    If a partition ends before the position, its offset becomes the partition's end. A position
    beyond the end of every partition is refused, unless it is a time in the past. A share group
    gets all messages from there on again, even those that it had finished, and none before, even if
    they wait for their time.
    """
    session, _ = session_of(context), check_start(to)  # A bad position is refused at once.
    client, delayed = session.client, 0
    with contextlib.suppress(GroupNotFoundError):
        delayed = delayed_in(client.describe_group(group, queue=queue), queue, partition)
    session.confirm(overwrite_offsets(group, queue, delayed), yes=yes)
    moved = client.reset_group(group, queue, to, partitions=partition)
    positions = sorted({str(at) for at in moved.values()})
    beyond = "the end of each" if to == "latest" else f"{to}, or the end where that is before"
    where = positions[0] if len(positions) == 1 else beyond
    count = count_text(len(moved), "partition")
    say(f"{printable(group)} continues in {queue} at {where}: {count}.")


def delete(
    context: typer.Context,
    group: GroupArgument,
    *,
    queue: Annotated[
        str | None, typer.Option("--queue", "-q", help="Delete only the offsets in this queue.")
    ] = None,
    yes: shared_options.Yes = False,
) -> None:
    """Delete a group that has no consumers, and its offsets or, for a share group, its records. The
    queues may have been deleted before.

    The group's dead letters stay in the queues until they expire: delete them with hqueue
    dead-letters QUEUE --group GROUP --delete-all.
    """
    session = session_of(context)
    where = "all queues" if queue is None else queue
    session.confirm(f"Delete all that {printable(group)} has in {where}?", yes=yes)
    session.client.delete_group(group, queue=queue)
    say(f"Deleted all that {printable(group)} had in {where}.")


def _show_partitions(described: GroupDescription) -> None:
    if described.kind == SHARE:
        counts = ("lag", "age", "acquired", "again", "released", "delayed", "due", *LETTERS)
        columns, numbers = ("holders", "offset", *counts), ("partition", "holders", *counts)
        rows = [(*_place(each), *_shared(each)) for each in described.partitions]
        show_table(("queue", "partition", *columns), rows, numbers=numbers)
        return
    show_table(
        ("queue", "partition", "consumer", "offset", "lag"),
        (
            (*_place(each), each.owner, _offset(each), each.lag and each.lag.messages)
            for each in described.partitions
        ),
        numbers=("partition", "lag"),
    )


def _place(each: GroupPartition) -> tuple[object, object]:
    return each.queue, each.partition


def _offset(each: GroupPartition) -> object:
    return UNREADABLE if each.unreadable and each.lag is None else each.committed


def _shared(each: GroupPartition) -> tuple[object, ...]:
    lag = (None, None) if each.lag is None else (each.lag.messages, each.lag.age_ms)
    shared = each.shared
    if shared is None:
        return (None, _offset(each), *lag, *[None] * 7)
    counts = (shared.acquired, shared.redelivered, shared.released)
    letters = (shared.rejected, shared.exhausted)
    due = None if shared.next_due_ms is None else iso_timestamp(shared.next_due_ms)
    return (len(shared.holders), _offset(each), *lag, *counts, shared.delayed, due, *letters)


def _members(described: GroupDescription) -> list[dict[str, Any]]:
    return [
        {
            "consumer": consumer,
            "partitions": sum(_has(consumer, each) for each in described.partitions),
            "streams": dict(streams),
        }
        for consumer, streams in sorted(described.members.items())
    ]


def _has(consumer: str, each: GroupPartition) -> bool:
    """Whether a consumer owns a partition or, in a share group, has messages of it."""
    if each.shared is not None:
        return consumer in each.shared.holders
    return each.owner == consumer


def _show_members(described: GroupDescription) -> None:
    rows = (
        (each["consumer"], each["partitions"], ",".join(sorted(each["streams"])) or None)
        for each in _members(described)
    )
    show_table(("consumer", "partitions", "queues"), rows, numbers=("partitions",))


def _as_json(each: GroupPartition) -> dict[str, object]:
    return {
        "queue": each.queue,
        "partition": each.partition,
        "consumer": each.owner,
        "offset": None if each.committed is None else str(each.committed),
        "lag": None if each.lag is None else each.lag.messages,
        "age_ms": None if each.lag is None else each.lag.age_ms,
        "unreadable": None if each.unreadable is None else str(each.unreadable),
        **({} if each.shared is None else dataclasses.asdict(each.shared)),
    }


register = group(
    PANEL,
    "groups",
    "List and describe groups; reset or delete their offsets.",
    *(list_, describe, reset, delete),
)
