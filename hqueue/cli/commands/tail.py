"""``hqueue tail``: the newest messages, and those that come."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from hqueue.cli.commands import shared_options
from hqueue.cli.commands.scan import choose_encoder, write_messages
from hqueue.cli.formats import Format
from hqueue.cli.output import Output
from hqueue.cli.registering import commands
from hqueue.cli.session import session_of
from hqueue.message_id import MessageID
from hqueue.runtime.only_reads import OnlyReads

if TYPE_CHECKING:
    from hqueue.consume.scan import Scan
    from hqueue.message import ReceivedMessage
    from hqueue.queue import Queue

__all__ = ["newest_messages", "register"]

WINDOW_MS_FIRST = 16
WINDOW_GROWTH = 4


@OnlyReads()
def tail(
    context: typer.Context,
    queue: shared_options.Queue,
    *,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, help="Show this many of the newest messages.")
    ] = 10,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing new messages.")
    ] = False,
    partition: shared_options.Partitions = None,
    topic: shared_options.Topics = None,
    chosen: shared_options.MessageFormat = Format.TEXT,
    print_key: shared_options.PrintKey = False,
    print_headers: shared_options.PrintHeaders = False,
    idle_ms: shared_options.Idle = None,
) -> None:
    """Show the newest messages of a queue, by ID; with --follow, also new ones."""
    topics = topic or ()
    with session_of(context).client.queue(queue) as opened:
        for number in partition or ():
            opened.choose_partition(number, None)
        partitions = partition or range(opened.partitions)
        newest, positions = newest_messages(opened, partitions, topics, lines)
        encode = choose_encoder(chosen, opened, print_key=print_key, print_headers=print_headers)
        if not follow:
            with Output() as out:
                write_messages(newest, encode, out, promptly=False)
            return
        scanner = opened.combined_partition_scanner(
            {number: _scan(position, topics) for number, position in positions.items()},
            follow=True,
            idle_ms_max=idle_ms,
        )
        with scanner, Output(prompt=True, on_closed=scanner.close) as out:
            write_messages(newest, encode, out, promptly=True)
            write_messages(scanner, encode, out, promptly=True)


def newest_messages(
    queue: Queue, partitions: Collection[int], topics: Sequence[str], count: int
) -> tuple[list[ReceivedMessage], dict[int, MessageID]]:
    """The newest messages of some partitions by ID, and where each partition goes on after them.

    It scans a window of time before the newest end of them all, and a wider one until there are
    enough; partitions that end before a window cost nothing. In memory are `count` messages and
    what a scanner holds.
    """
    wanted = set(partitions)
    offsets = {each.partition: each for each in queue.offsets() if each.partition in wanted}
    positions = {number: each.end for number, each in offsets.items()}
    newest_id = max(positions.values())
    messages: list[ReceivedMessage] = []
    window_ms = WINDOW_MS_FIRST
    while count:
        start = MessageID(max(0, newest_id.timestamp - window_ms))
        scans = {
            number: _scan(start, topics) for number, each in offsets.items() if each.end > start
        }
        if scans:
            with queue.combined_partition_scanner(scans) as scanner:
                messages = heapq.nlargest(count, scanner, key=_order)
                positions.update(scanner.positions())
        oldest_left = any(
            each.beginning is not None and each.beginning < start for each in offsets.values()
        )
        if len(messages) >= count or not oldest_left:
            break
        window_ms *= WINDOW_GROWTH
    return messages[::-1], positions


def _scan(start: MessageID, topics: Sequence[str]) -> Scan:
    from hqueue.consume.scan import Scan  # noqa: PLC0415  (not needed for help)

    return Scan(start, topics=topics)


def _order(message: ReceivedMessage) -> tuple[int, int]:
    return message.id, message.partition


register = commands("Messages", tail)
