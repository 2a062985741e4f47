"""Administration of queues: create, list, describe, alter, enable, disable, truncate, delete."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hqueue.cli.commands import shared_options
from hqueue.cli.exits import say
from hqueue.cli.output import show_rows, show_table, write_json
from hqueue.cli.progress import count_text
from hqueue.cli.registering import commands
from hqueue.cli.session import session_of
from hqueue.errors import (
    InvalidInputError,
    QueueExistsError,
    RequestRefusedError,
    SettingsError,
)
from hqueue.runtime.only_reads import OnlyReads
from hqueue.settings.attributes import (
    ATTRIBUTES,
    QueueDescription,
    check_same_partitions,
    ttl_seconds,
)
from hqueue.texts.shown import size_text, ttl_text

if TYPE_CHECKING:
    from hqueue.client import Client
    from hqueue.log.offsets import PartitionOffsets

__all__ = ["register"]

SIZES = ("stored_bytes", "memory_bytes")

AttributeOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--attribute",
        "-a",
        metavar="NAME=VALUE",
        help=f"An attribute, by its name ({', '.join(ATTRIBUTES)}) or by its name in the shell of "
        "Alibaba's HQueue (hbase.hqueue.partitionsPerRegion, ...). May be given several times. "
        "durability=FSYNC_WAL keeps each acknowledged message if all servers lose power at once; "
        "SYNC_WAL, the default, is faster, and may then lose those of the last half minute.",
    ),
]


def create(
    context: typer.Context,
    queue: shared_options.Queue,
    partitions: Annotated[
        int,
        typer.Option(
            "--partitions",
            "-p",
            help="How many partitions, 1 to 32767. The number can't be changed later.",
        ),
    ],
    *,
    ttl: Annotated[
        str, typer.Option(help="How long messages are kept: 86400, 90s, 15m, 12h, 7d, forever.")
    ] = "7d",
    attribute: AttributeOptions = None,
    if_not_exists: Annotated[
        bool,
        typer.Option(
            "--if-not-exists",
            help="Do nothing if the queue exists with this number of partitions.",
        ),
    ] = False,
) -> None:
    """Create a queue."""
    given = _attributes(attribute)
    client = session_of(context).client
    try:
        client.create_queue(queue, partitions=partitions, ttl=ttl, **given)
    except QueueExistsError as exc:
        if not if_not_exists:
            raise QueueExistsError(
                "there is a table of that name already; --if-not-exists accepts a queue that has "
                "this number of partitions",
                queue=queue,
            ) from exc
        check_same_partitions(queue, client.describe_queue(queue).partitions, partitions)
        say(f"{queue} exists already.")
        return
    count = count_text(partitions, "partition")
    say(f"Created {queue}: {count}, messages are kept {_kept(ttl)}.")


@OnlyReads()
def list_(context: typer.Context, json: shared_options.Json = False) -> None:
    """List all queues.

    Without a terminal: name, partitions, TTL in seconds, attributes; separated by tabs.
    """
    queues = session_of(context).client.list_queues()
    if json:
        for queue in queues:
            write_json(_as_json(queue))
        return
    show_table(
        ("queue", "partitions", "ttl", "attributes"),
        ((q.name, q.partitions, _ttl_cell(q), ",".join(_assignments(q)) or None) for q in queues),
        numbers=("partitions",),
    )


@OnlyReads()
def describe(
    context: typer.Context, queue: shared_options.Queue, json: shared_options.Json = False
) -> None:
    """Describe a queue, and show where each of its partitions begins and ends.

    "messages" counts all messages that the partition ever had, including expired ones. "end" is the
    ID at which the next message can be written. "stored_bytes" are compressed, without the copies
    that HDFS keeps, and "memory_bytes" wait for their flush; HBase counts in whole MiB, and only
    tells clients that need no gateways. Without a terminal: one property per line, then
    lines that begin with "partition": its number, messages, beginning, end.
    """
    client = session_of(context).client
    description = client.describe_queue(queue)
    offsets: list[PartitionOffsets] = []
    sizes: Mapping[str, int | None] = dict.fromkeys(SIZES)
    if description.enabled is not False:
        sizes = _sizes(client, queue)
        with client.queue(queue) as opened:
            offsets = opened.offsets()
    if json:
        rows = [
            {
                "partition": each.partition,
                "messages": each.count,
                "beginning": None if each.beginning is None else str(each.beginning),
                "end": str(each.end),
            }
            for each in offsets
        ]
        described = {**_as_json(description), "enabled": description.enabled, **sizes}
        write_json({**described, "offsets": rows})
        return
    properties = [
        ("queue", description.name),
        ("partitions", description.partitions),
        ("ttl", _ttl_cell(description)),
        ("enabled", {True: "yes", False: "no", None: None}[description.enabled]),
        *((name, _size_cell(size)) for name, size in sizes.items()),
        *(tuple(text.split("=", 1)) for text in _assignments(description)),
    ]
    show_table(("property", "value"), properties)
    cells = [(each.partition, each.count, each.beginning, each.end) for each in offsets]
    if sys.stdout.isatty():
        if cells:
            columns = ("partition", "messages", "beginning", "end")
            show_table(columns, cells, numbers=columns[:2])
        return
    show_table((), [("partition", *row) for row in cells])


def alter(
    context: typer.Context,
    queue: shared_options.Queue,
    ttl: Annotated[
        str | None, typer.Option(help="How long messages are kept: 86400, 12h, 7d, forever.")
    ] = None,
    attribute: AttributeOptions = None,
) -> None:
    """Change a queue's TTL and attributes. Those that are not given stay as they are."""
    given = _attributes(attribute)
    if ttl is None and not given:
        raise InvalidInputError("no change was given: use --ttl or --attribute")
    if ttl is not None:
        given["ttl"] = ttl
    now = session_of(context).client.alter_queue(queue, **given)
    changed = ", ".join(_assignments(now)) or "no attributes set"
    say(f"Altered {queue}: messages are kept {_kept(now.ttl_seconds)}; {changed}.")


def disable(context: typer.Context, queue: shared_options.Queue) -> None:
    """Disable a queue, so that it refuses puts and reads. Its messages stay."""
    session_of(context).client.disable_queue(queue)
    say(f"Disabled {queue}.")


def enable(context: typer.Context, queue: shared_options.Queue) -> None:
    """Enable a queue, so that it accepts puts and reads again."""
    session_of(context).client.enable_queue(queue)
    say(f"Enabled {queue}.")


def truncate(
    context: typer.Context, queue: shared_options.Queue, yes: shared_options.Yes = False
) -> None:
    """Delete all messages of a queue, and keep its partitions."""
    session = session_of(context)
    session.confirm(f"Delete all messages of {queue}?", yes=yes)
    session.client.truncate_queue(queue)
    say(f"Truncated {queue}.")


def delete(
    context: typer.Context,
    queue: shared_options.Queue,
    yes: shared_options.Yes = False,
    force: Annotated[
        bool, typer.Option("--force", help="Disable the queue first if it is enabled.")
    ] = False,
) -> None:
    """Delete a disabled queue with all its messages and its topics' metadata."""
    session = session_of(context)
    session.confirm(f"Delete {queue} with all its messages?", yes=yes)
    session.client.delete_queue(queue, force=force)
    say(f"Deleted {queue}.")


@OnlyReads()
def locations(
    context: typer.Context, queue: shared_options.Queue, json: shared_options.Json = False
) -> None:
    """Show which region server serves each partition.

    Without a terminal: partition, host, port; separated by tabs.
    """
    located = session_of(context).client.locations(queue)
    show_rows(
        ("partition", "host", "port"),
        [(location.partition, location.host, location.port) for location in located],
        json=json,
        numbers=("partition", "port"),
    )


def _sizes(client: Client, queue: str) -> Mapping[str, int | None]:
    """How much room a queue takes; None where HBase does not tell this client."""
    try:
        regions = client.region_sizes(queue)
    except (SettingsError, RequestRefusedError):
        return dict.fromkeys(SIZES)
    return {name: sum(getattr(each, name) for each in regions) for name in SIZES}


def _size_cell(size: int | None) -> str | int | None:
    return size if size is None or not sys.stdout.isatty() else size_text(size)


def _kept(ttl: str | int | None) -> str:
    if isinstance(ttl, str):
        ttl = ttl_seconds(ttl)
    return "for ever" if ttl is None else f"for {ttl_text(ttl)}"


def _ttl_cell(description: QueueDescription) -> str | int:
    seconds = description.ttl_seconds
    if seconds is None or sys.stdout.isatty():
        return ttl_text(seconds)
    return seconds


def _assignments(description: QueueDescription) -> list[str]:
    return [f"{name}={value}" for name, value in description.attributes.items()]


def _as_json(description: QueueDescription) -> dict[str, Any]:
    return {
        "queue": description.name,
        "partitions": description.partitions,
        "ttl_seconds": description.ttl_seconds,
        "attributes": dict(description.attributes),
    }


def _attributes(assignments: list[str] | None) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for assignment in assignments or ():
        name, equals, value = assignment.partition("=")
        if not equals:
            raise InvalidInputError(
                "an attribute must be written as NAME=VALUE", attribute=assignment
            )
        if name.strip() in ("ttl", "name", "partitions"):
            raise InvalidInputError(
                "this attribute has its own option: use that instead of --attribute",
                attribute=assignment,
            )
        given[name.strip()] = value.strip()
    return given


register = commands(
    "Queues", create, list_, describe, alter, disable, enable, truncate, delete, locations
)
