"""``hqueue snapshots``: takes, lists, restores and deletes snapshots of queues."""

from __future__ import annotations

from typing import Annotated

import typer

from hqueue.cli.commands import shared_options
from hqueue.cli.exits import say
from hqueue.cli.output import show_rows
from hqueue.cli.registering import group
from hqueue.cli.session import session_of
from hqueue.runtime.only_reads import OnlyReads
from hqueue.texts.shown import iso_timestamp

__all__ = ["register"]

SnapshotArgument = Annotated[
    str, typer.Argument(metavar="SNAPSHOT", help="The snapshot's name; unique in the cluster.")
]


def create(context: typer.Context, queue: shared_options.Queue, snapshot: SnapshotArgument) -> None:
    """Take a snapshot of a queue, which stays in use meanwhile."""
    session_of(context).client.create_snapshot(queue, snapshot)
    say(f"Took the snapshot {snapshot} of {queue}.")


@OnlyReads()
def list_(
    context: typer.Context,
    queue: Annotated[
        str | None, typer.Option("--queue", "-q", help="Only snapshots of this queue.")
    ] = None,
    json: shared_options.Json = False,
) -> None:
    """List snapshots, with the queue of each, and when it was taken.

    Snapshots of tables that are not queues are listed, too. Without a terminal: snapshot, queue,
    time; separated by tabs.
    """
    show_rows(
        ("snapshot", "queue", "created"),
        [
            (each.name, each.queue, iso_timestamp(each.created_ms))
            for each in session_of(context).client.list_snapshots(queue)
        ],
        json=json,
    )


def restore(
    context: typer.Context,
    snapshot: SnapshotArgument,
    *,
    queue: Annotated[
        str | None,
        typer.Option("--as", metavar="QUEUE", help="Create a queue of this name instead."),
    ] = None,
    yes: shared_options.Yes = False,
) -> None:
    """Return a queue to the state of a snapshot. All later messages of the queue are lost.

    Takes ten seconds or more, in which the queue is disabled. Groups, subscribers and hubs keep
    their positions. A queue that was deleted is created again.
    """
    session = session_of(context)
    if queue is None:
        what = f"Discard all messages that came after the snapshot {snapshot}?"
        session.confirm(what, yes=yes)
    restored = session.client.restore_snapshot(snapshot, queue=queue)
    say(f"Restored {restored} from the snapshot {snapshot}.")


def delete(
    context: typer.Context, snapshot: SnapshotArgument, yes: shared_options.Yes = False
) -> None:
    """Delete a snapshot. Queues that were restored from it keep their messages."""
    session = session_of(context)
    session.confirm(f"Delete the snapshot {snapshot}?", yes=yes)
    session.client.delete_snapshot(snapshot)
    say(f"Deleted the snapshot {snapshot}.")


register = group(
    "Queues",
    "snapshots",
    "Take snapshots of queues, and restore queues from them. HBase must be reached natively.",
    create,
    list_,
    restore,
    delete,
)
