"""``hqueue scan``: reading messages to stdout."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from hqueue.cli.commands import shared_options
from hqueue.cli.exits import say
from hqueue.cli.formats import Encode, Format, encoder
from hqueue.cli.output import Output
from hqueue.cli.progress import count_text
from hqueue.cli.registering import commands
from hqueue.cli.session import session_of
from hqueue.position import POSITION_HELP, parse_position
from hqueue.runtime.only_reads import OnlyReads

if TYPE_CHECKING:
    from hqueue.consume.scan import Scan
    from hqueue.consume.scanners import Scanner
    from hqueue.message import ReceivedMessage
    from hqueue.queue import Queue

__all__ = [
    "choose_encoder",
    "register",
    "scans_of",
    "write_messages",
]

CHUNK_BYTES = 65_536


@OnlyReads()
def scan(
    context: typer.Context,
    queue: shared_options.Queue,
    *,
    partition: shared_options.Partitions = None,
    start: Annotated[str | None, typer.Option(help=f"Begin here: {POSITION_HELP}.")] = None,
    stop: Annotated[
        str | None,
        typer.Option(help="Stop before this position, given in the same ways as --start."),
    ] = None,
    topic: shared_options.Topics = None,
    chosen: shared_options.MessageFormat = Format.TEXT,
    print_key: shared_options.PrintKey = False,
    print_headers: shared_options.PrintHeaders = False,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=0, help="Print at most this many messages.")
    ] = None,
    merge_sorted: Annotated[
        bool, typer.Option("--merge-sorted", help="Merge the partitions in the order of IDs.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="At the end of the log, wait for new messages.")
    ] = False,
    idle_ms: shared_options.Idle = None,
) -> None:
    """Scan a queue, and write its messages to stdout, from the oldest on.

    The messages of a partition are in order. Messages of different partitions are not, unless
    --merge-sorted is given.
    """
    from hqueue.consume.scan import Scan  # noqa: PLC0415  (not needed for help)

    follow = follow or idle_ms is not None
    wanted = Scan(
        None if start is None else parse_position(start),
        None if stop is None else parse_position(stop),
        topic or (),
    )
    with session_of(context).client.queue(queue) as opened:
        scanner = opened.combined_partition_scanner(
            scans_of(opened, partition, wanted),
            follow=follow,
            merge_sorted=merge_sorted,
            idle_ms_max=idle_ms,
            limit=limit,
        )
        encode = choose_encoder(chosen, opened, print_key=print_key, print_headers=print_headers)
        with scanner, Output(prompt=follow, on_closed=scanner.close) as out:
            write_messages(scanner, encode, out, promptly=follow)
        report_expired(scanner)


def scans_of(queue: Queue, partitions: Iterable[int] | None, wanted: Scan) -> dict[int, Scan]:
    """The same `Scan` for the partitions that were named, or for all."""
    return dict.fromkeys(partitions or range(queue.partitions), wanted)


def choose_encoder(chosen: Format, queue: Queue, *, print_key: bool, print_headers: bool) -> Encode:
    """The encoder for this stdout.

    Raises:
        InvalidInputError: as `encoder`.
    """
    return encoder(
        chosen,
        aligned=sys.stdout.isatty(),
        partitions=queue.partitions,
        print_key=print_key,
        print_headers=print_headers,
    )


def write_messages(
    messages: Iterable[ReceivedMessage], encode: Encode, out: Output, *, promptly: bool
) -> None:
    """Write messages as they come: each at once, or many together."""
    chunk: list[bytes] = []
    size, size_max = 0, 0 if promptly else CHUNK_BYTES
    for data in map(encode, messages):
        chunk.append(data)
        size += len(data)
        if size >= size_max:
            out.write(b"".join(chunk))
            chunk.clear()
            size = 0
    out.write(b"".join(chunk))


def report_expired(scanner: Scanner) -> None:
    """Say on stderr if messages were gone before they could be read."""
    if scanner.expired:
        say(f"{count_text(scanner.expired, 'message')} had expired.")
    if scanner.skipped:
        count = count_text(scanner.skipped, "message")
        were = "was" if scanner.skipped == 1 else "were"
        say(f"{count} can't be read, and {were} skipped, as an operator decided.")


register = commands("Messages", scan)
