"""Checking a queue: ``check``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from hqueue.cli.exits import ExitCode
from hqueue.cli.output import show_table, write_json
from hqueue.cli.progress import Advance, size_text
from hqueue.cli.registering import add_command
from hqueue.cli.session import session_of

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add this command to the application."""
    add_command(app, "check", check, "Queues")


def check(
    context: typer.Context,
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.")],
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", help="Only these partitions.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="JSON, a document a line.")] = False,
) -> None:
    """Walk a queue's log and verify it: links, ordinals and the checksums of all bytes.

    What is wrong is listed with its partition and row; the rest is checked all the same. The
    exit code is 5 if anything was found.
    """
    with session_of(context).client.queue(queue) as opened, Advance("check") as bar:
        results = {}
        seen_bytes = 0
        for result in opened.check(partition or None):
            results[result.partition] = result
            total = sum(r.bytes for r in results.values())
            bar.advance(total - seen_bytes)
            seen_bytes = total
    findings = [finding for result in results.values() for finding in result.findings]
    if json:
        for finding in findings:
            write_json(
                {"partition": finding.partition, "row": finding.row, "problem": finding.problem}
            )
    elif findings:
        rows = ((f.partition, f.row, f.problem) for f in findings)
        show_table(("partition", "row", "problem"), rows, numbers=("partition",))
    batches = sum(result.batches for result in results.values())
    messages = sum(result.messages for result in results.values())
    expired = sum(result.expired for result in results.values())
    print(
        f"{len(findings)} problems in {batches:,} batches, {messages:,} messages "
        f"({expired:,} expired), {size_text(seen_bytes)}.",
        file=sys.stderr,
    )
    if findings:
        raise typer.Exit(ExitCode.CORRUPT)
