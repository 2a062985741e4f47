"""Verifying a queue's log: ``verify``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hqueue.cli.commands import shared_options
from hqueue.cli.exits import ExitCode, say
from hqueue.cli.output import show_rows
from hqueue.cli.progress import Advance, count_text
from hqueue.cli.registering import commands
from hqueue.cli.session import session_of
from hqueue.errors import UnsupportedFormatError
from hqueue.runtime.only_reads import OnlyReads
from hqueue.texts.shown import size_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hqueue.client import Client
    from hqueue.consume.skipped_batches import SkippedBatches
    from hqueue.metadata.managers import LogRange

__all__ = ["register"]


def verify(  # noqa: PLR0917  (the command's)
    context: typer.Context,
    queue: shared_options.Queue,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", help="Only these partitions.")
    ] = None,
    json: shared_options.Json = False,
    ranges: Annotated[
        bool,
        typer.Option(
            "--ranges", help="Also verify that topics lie where hubs recorded. Needs ZooKeeper."
        ),
    ] = False,
    skip: Annotated[
        list[str] | None,
        typer.Option(
            "--skip",
            metavar="ROW",
            help="Make all readers skip what can't be read of the batch in this row.",
        ),
    ] = None,
    unskip: Annotated[
        list[str] | None,
        typer.Option(
            "--unskip", metavar="ROW", help="Make readers stop at the batch in this row again."
        ),
    ] = None,
) -> None:
    """Walk a queue's log and verify it: links, ordinals, control records and the checksums of all
    bytes.

    Each fault is listed with its partition and row, and the verification goes on. The exit code is
    5 if a fault was found. Unfinished takeovers are not faults; they are reported on stderr, as are
    batches that readers skip because of an earlier --skip.
    """
    client = session_of(context).client
    if skip or unskip:
        with client.queue(queue) as opened:
            _decide(opened.skipped_batches, skip or (), unskip or ())
        return
    known, broken = _ranges(client, queue) if ranges else (None, 0)
    with client.queue(queue) as opened, Advance("verify") as bar:
        results = {}
        seen_bytes = 0
        verified = opened.verify(partition or None, ranges=known)
        while (result := OnlyReads()(next)(verified, None)) is not None:
            results[result.partition] = result
            total = sum(r.bytes for r in results.values())
            bar.advance(total - seen_bytes)
            seen_bytes = total
    findings = [finding for result in results.values() for finding in result.findings]
    if findings:
        rows = ((f.partition, f.row, f.problem) for f in findings)
        show_rows(("partition", "row", "problem"), rows, json=json, numbers=("partition",))
    for result in results.values():
        for one in result.unfinished:
            say(f"hqueue: partition {one.partition}, row {one.row}: {one.problem}")
        for one in result.skipped:
            say(
                f"hqueue: partition {one.partition}, row {one.row}: skipped, as an operator "
                "decided: "
                f"{one.problem}"
            )
    batches = sum(result.batches for result in results.values())
    controls = sum(result.control_records for result in results.values())
    messages = sum(result.messages for result in results.values())
    expired = sum(result.expired for result in results.values())
    say(
        f"{count_text(len(findings), 'problem')} in {count_text(batches, 'batch')}, "
        f"{count_text(messages, 'message')} ({expired:,} expired), {size_text(seen_bytes)}; "
        f"{count_text(controls, 'control record')}."
    )
    if known is not None:
        outside = sum(result.outside for result in results.values())
        say(
            f"{count_text(len(known), 'topic')} with owners; "
            f"{count_text(outside, 'message')} under their names came into the queue directly."
        )
    if findings or broken:
        raise typer.Exit(ExitCode.CORRUPT)


def _decide(batches: SkippedBatches, skip: Sequence[str], unskip: Sequence[str]) -> None:
    """Name batches that readers skip, or that they stop at again."""
    for row in skip:
        count = count_text(batches.add(row), "message")
        say(f"Readers now skip what can't be read of row {row}, which has {count}.")
    for row in unskip:
        known = batches.remove(row)
        text = "Readers stop at it again" if known else "Readers did not skip it"
        say(f"{text}: row {row}.")


def _ranges(client: Client, queue: str) -> tuple[dict[str, Sequence[LogRange]], int]:
    """Where a queue's topics are said to lie, and how many records can't be read."""
    from hqueue.metadata.managers import TopicPersistenceInfo  # noqa: PLC0415

    known: dict[str, Sequence[LogRange]] = {}
    broken = 0
    with client.topic_metadata(queue) as metadata:
        for entry in metadata.entries(["persistence"]):
            if isinstance(entry.found, UnsupportedFormatError) or entry.subject is None:
                say(f"hqueue: {entry.found}")
                broken += 1
            else:
                assert isinstance(entry.found.value, TopicPersistenceInfo)
                known[entry.subject.topic] = entry.found.value.ranges
    return known, broken


register = commands("Queues", verify)
